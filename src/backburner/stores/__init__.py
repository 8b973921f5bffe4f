"""The stores: one set of SQL statements on SQLite and on PostgreSQL."""

from __future__ import annotations

from ..clock import Clock
from ..errors import ConfigError
from ..store import Store


def open_store(url: str, *, clock: Clock | None = None, synchronous: str = "full") -> Store:
    """Open the store behind `sqlite:///path`, `sqlite://` (temporary) or `postgresql://…`, migrated.

    Drivers are imported only here, when a store of their kind is opened. Raises ConfigError for
    another kind of URL and StoreError when the store cannot be used. Without a clock, SQLite goes by this
    host's and PostgreSQL by the database's.
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
    """Whether there is a store to open. False for a SQLite file that opening would only make; cheap."""
    if not url.startswith("sqlite:"):
        return True
    from .sqlite import TEMPORARY, sqlite_path

    return url not in TEMPORARY and sqlite_path(url).exists()
