"""What a place takes on its disk, in words, and when its store should be compacted."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from ..folders import tasks_folder
from ..store import StoreSize
from .output import size
from .place import Place

COMPACT = "write it anew with `backburner prune --compact`, when no worker is busy"
_MUCH_FREE_BYTES = 16 << 20
_COUNT_S = 1.0


def disk_use(place: Place, held: StoreSize) -> str:
    """What the store has, and what the files of its tasks have."""
    parts = [f"the store has {size(held.bytes)}"]
    if held.log_bytes:
        parts.append(f"{size(held.log_bytes)} of it a write-ahead log")
    if held.free_bytes:
        parts.append(f"{size(held.free_bytes)} of it free")
    return f"{', '.join(parts)}; the files of tasks have {_files_size(tasks_folder(place.data_dir))}"


def needs_compacting(held: StoreSize) -> bool:
    """Whether much of a store is free, and only `compact` can give that back."""
    return not held.gives_back and held.free_bytes > max(_MUCH_FREE_BYTES, held.bytes // 4)


def _files_size(folder: Path) -> str:
    """What all files below have together, as far as they can be counted in a moment."""
    total, deadline = 0, time.monotonic() + _COUNT_S
    for inner, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(inner, name).lstat().st_size
        if time.monotonic() > deadline:
            return f"more than {size(total)}"
    return size(total)
