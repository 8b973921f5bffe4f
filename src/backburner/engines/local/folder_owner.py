"""Whose a data folder is: the supervisor's that holds its lock, and so of one store at a time."""

from __future__ import annotations

import hashlib

from ...config import without_password
from ...errors import DataDirTaken, StoreError
from ...store import Store
from .supervisor_lock import SupervisorLock


def mark_of(store: Store) -> dict[str, str]:
    """What a supervisor signs of its store. The id is the same by whatever URL it is reached.

    Empty while the store is away.
    """
    try:
        secret = store.secret()
    except StoreError:
        return {}
    return {"id": hashlib.sha256(secret).hexdigest()[:16], "url": without_password(store.url)}


def refuse_another_store(lock: SupervisorLock, store: Store) -> None:
    """Raises DataDirTaken while the supervisor of another store holds the lock of this data folder.

    Both would wait for the other to end, and take it for one that hangs.
    """
    holder = lock.holder() or {}
    theirs = holder.get("store")
    if theirs and (ours := mark_of(store)) and theirs["id"] != ours["id"]:
        raise DataDirTaken(
            engine="local", folder=str(lock.path.parent), pid=holder.get("pid"), store=theirs["url"]
        )
