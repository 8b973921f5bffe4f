"""Stores of tasks on SQLite and PostgreSQL, and stores of artifacts."""

from __future__ import annotations

from ..core.times import Clock
from ..errors import ConfigError
from .protocol import Store


def open_store(url: str, *, clock: Clock | None = None, synchronous: str = "full") -> Store:
    """Open and migrate the store at `sqlite:///path`, `sqlite://` (temporary) or `postgresql://…`.

    The driver is imported here. Raises ConfigError for another URL, and StoreError. The default clock is the
    host's on SQLite and the database's on PostgreSQL.
    """
    if url.startswith("sqlite:"):
        from .sqlite import SqliteStore

        return SqliteStore(url, clock=clock, synchronous=synchronous)
    if url.startswith(("postgresql:", "postgres:")):
        try:
            from .postgres import PostgresStore
        except ImportError as error:
            reason = f"{error}; install it with: pip install 'backburner[postgres]'"
            raise ConfigError(setting="store", reason=reason) from error
        return PostgresStore(url, clock=clock)
    reason = f"{url!r} is neither sqlite:///path/to/file.db nor postgresql://user@host/database"
    raise ConfigError(setting="store", reason=reason)


def store_is_there(url: str) -> bool:
    """Return False for a SQLite file that does not exist yet. Cheap."""
    if not url.startswith("sqlite:"):
        return True
    from .sqlite import TEMPORARY, sqlite_path

    return url not in TEMPORARY and sqlite_path(url).exists()
