"""Pages of tasks, on and back by cursors, each of which is signed, and for one owner and one order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.task import Task
from ..errors import InvalidCursor
from ..store.protocol import Store, TaskQuery


@dataclass(frozen=True, slots=True)
class TaskPage:
    """`previous_cursor` is the page's before this one. There may be nothing there any more."""

    tasks: Sequence[Task]
    next_cursor: str | None
    previous_cursor: str | None = None


def read_page(store: Store, query: TaskQuery, cursor: str | None, *, oldest_first: bool) -> TaskPage:
    """`query.limit` tasks from where a cursor points. Raises InvalidCursor."""
    cursors = _Cursors(store, query.owner, oldest_first)
    seq, back = (None, False) if cursor is None else cursors.opened(cursor)
    begin = {"after_seq": seq or 0} if oldest_first != back else {"before_seq": seq}
    found = store.page(replace(query, limit=query.limit + 1, **begin))
    tasks, more = found[: query.limit], len(found) > query.limit
    if back:
        tasks.reverse()
    return TaskPage(
        tasks,
        cursors.made(tasks[-1]) if tasks and (more or back) else None,
        cursors.made(tasks[0], "back") if tasks and (more if back else cursor is not None) else None,
    )


class _Cursors:
    def __init__(self, store: Store, owner: str | None, oldest_first: bool) -> None:
        self._store, self._owner = store, owner
        self._order = ["oldest"] if oldest_first else []

    def _signer(self) -> Any:
        from itsdangerous import URLSafeSerializer

        return URLSafeSerializer(self._store.secret(), salt="backburner.list")

    def made(self, task: Task, *way: str) -> str:
        return str(self._signer().dumps([task.seq, self._owner, *self._order, *way]))

    def opened(self, cursor: str) -> tuple[int, bool]:
        """The task it points at, and whether it leads back."""
        from itsdangerous import BadData

        try:
            seq, of, *how = self._signer().loads(cursor)
        except (BadData, TypeError, ValueError, AttributeError):
            raise InvalidCursor from None
        if of != self._owner or [one for one in how if one != "back"] != self._order:
            raise InvalidCursor
        return int(seq), "back" in how
