"""The list of tasks: what a filter chooses, a page at a time, with what each of them does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, cast
from urllib.parse import urlencode

from ....lifecycle import TERMINAL, State
from ....short_names import owner_name
from ....task_ids import beginning_of_id
from ...access import Access
from ...api.models import ListTasks
from ...api.operation import parsed_query
from ...steering import FIT
from ..known_values import KnownValues
from ..pages import Asked, Desk, Page
from ..rendering import seconds_between

_PATH = "/dashboard/tasks"
_PAGE = 50
#: Of a text that says why or what, so much is shown in a list.
_NOTE_CHARS = 160
#: Spans of time that a list can be of: their name in the address, in words, and in seconds.
LAST = {
    "15m": ("15 minutes", 900),
    "1h": ("Hour", 3600),
    "24h": ("24 hours", 86_400),
    "7d": ("7 days", 7 * 86_400),
    "30d": ("30 days", 30 * 86_400),
}
#: What is mostly looked for, by its states.
_TABS: Mapping[str, Sequence[State]] = {
    "All": (),
    "Active": [state for state in State if state not in TERMINAL],
    "Needs an answer": [State.INPUT_REQUIRED],
    "Succeeded": [State.SUCCEEDED],
    "Went wrong": [State.FAILED, State.TIMED_OUT],
    "Cancelled": [State.CANCELLED],
}
_NAMES = {*ListTasks.model_fields, "last"} - {"limit"}


class Chosen:
    """What the address of a list says: the filter, and addresses of lists like it."""

    def __init__(self, query: Iterable[tuple[str, str]]) -> None:
        self.pairs = [(name, value.strip()) for name, value in query if name in _NAMES and value.strip()]

    def all(self, name: str) -> list[str]:
        return [value for one, value in self.pairs if one == name]

    def one(self, name: str) -> str:
        return next(iter(self.all(name)), "")

    def address(self, **changes: str | Sequence[str]) -> str:
        """That of the same list but for these; of its first page, if no cursor is among them."""
        kept = [(name, value) for name, value in self.pairs if name not in {*changes, "cursor"}]
        for name, value in changes.items():
            kept += [(name, one) for one in ([value] if isinstance(value, str) else value) if one]
        return _PATH + (f"?{urlencode(kept)}" if kept else "")

    @property
    def is_filtered(self) -> bool:
        return any(name not in ("cursor", "sort") for name, _ in self.pairs)

    def asked(self) -> ListTasks:
        """As the API would take it. Raises InvalidRequest."""
        given = [(name, value) for name, value in self.pairs if name != "last"]
        if beginning_of_id(text := self.one("text")) and text.startswith("tsk_"):
            given = [("id" if name == "text" else name, value) for name, value in given]
        return cast(ListTasks, parsed_query(ListTasks, given))

    @property
    def last_s(self) -> int | None:
        return LAST[self.one("last")][1] if self.one("last") in LAST else None


class TaskList:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._known = KnownValues(desk.app)

    @property
    def pages(self) -> list[Page]:
        return [Page(_PATH, "tasks.html", "tasks", self.tasks)]

    def tasks(self, asked: Asked) -> dict[str, Any]:
        chosen = Chosen(asked.query.multi_items())
        filters = chosen.asked()
        page = self._page(asked.access, chosen, filters)
        paused = {one.queue for one in self._desk.app.store.paused_queues()}
        states = frozenset(filters.state)
        return {
            "rows": page["tasks"],
            "row_of": lambda task: _row(task, paused),
            "older": page["next_cursor"],
            "newer": page["previous_cursor"],
            "chosen": chosen,
            "states": [str(state) for state in State],
            "tabs": [
                (title, chosen.address(state=list(map(str, of))), states == frozenset(of))
                for title, of in _TABS.items()
            ],
            "last": LAST,
            "known": self._known.of(asked.access),
            "bulk": _bulk(filters, chosen),
        }

    def _page(self, access: Access, chosen: Chosen, filters: ListTasks) -> dict[str, Any]:
        query: dict[str, Any] = {
            **filters.chosen(),
            "oldest_first": filters.sort == "oldest",
            "limit": _PAGE,
        }
        if chosen.last_s is not None:
            since = self._desk.app.store.now_ms() - chosen.last_s * 1000
            query["submitted_after"] = max(since, query["submitted_after"] or 0)
        page = self._desk.reading.tasks(access, **query, cursor=filters.cursor)
        if filters.cursor is not None and page["previous_cursor"] is None:
            # There is nothing before it: the first page, which may have come to be longer than this.
            page = self._desk.reading.tasks(access, **query)
        return page


def _bulk(filters: ListTasks, chosen: Chosen) -> dict[str, Any]:
    """The filter as the API's actions take it, and what can be done to tasks by their states."""
    said = filters.model_dump(mode="json", exclude={"sort", "limit", "cursor"}, exclude_none=True)
    return {
        "filter": {name: value for name, value in said.items() if value != []},
        "last_s": chosen.last_s,
        "fit": {action: sorted(map(str, states)) for action, states in FIT.items()},
    }


def _row(task: dict[str, Any], paused: Set[str]) -> dict[str, Any]:
    progress = task["progress"] or {}
    state = State(task["state"])
    began, ended = task["started_at"], task["completed_at"]
    moving = state in (State.RUNNING, State.CANCEL_REQUESTED, State.CANCELLING)
    return {
        **task,
        "label": state.replace("_", " "),
        "owner_name": owner_name(task["owner"]),
        "is_moving": moving,
        "percent": progress.get("percent") if moving else None,
        "phase": _short(progress.get("phase") or progress.get("message") or "") if moving else "",
        "note": "" if moving else _short(_note(task, state, paused)),
        "ran_s": seconds_between(began, ended) if began and ended else None,
        "is_bad": state in (State.FAILED, State.TIMED_OUT),
    }


def _note(task: dict[str, Any], state: State, paused: Set[str]) -> str:
    """Why it is as it is, in a line."""
    if state is State.INPUT_REQUIRED:
        return next((one["message"] for one in task["questions"] if one["message"]), "")
    if state in TERMINAL:
        return (task["error"] or {}).get("message") or ""
    if state is State.QUEUED and task["queue"] in paused:
        return "Its queue is paused"
    if state is State.QUEUED and task["error"]:
        return f"To be tried again after: {task['error'].get('message', '')}"
    return task["waits_for"] or ""


def _short(text: str) -> str:
    line = " ".join(text[: _NOTE_CHARS * 4].split())
    return line if len(line) <= _NOTE_CHARS else line[:_NOTE_CHARS] + "…"
