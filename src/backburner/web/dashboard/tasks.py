"""Pages: the task list with its filters, and the tools."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any
from urllib.parse import urlencode

from pydantic import ValidationError

from ...app import Backburner
from ...core.lifecycle import TERMINAL, State
from ...core.task import beginning_of_id
from ...service.names import owner_name
from ...service.operator import ACTION_STATES
from ...service.records import tool_record
from ...tools.spec import ToolSpec
from ..access import Access
from ..api.framework import invalid
from ..api.models import TaskListQuery
from .pages import Dashboard, Page, PageRequest
from .rendering import seconds_between

#: Suggested filter values come from this many latest tasks, and are cached.
_LATEST_TASKS = 500
_CACHE_S = 15.0
_MAX_VALUES = 200

Values = dict[str, list[str]]


class FilterValues:
    """Suggested values of filters, by the owner that a viewer may see. Blocks."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._cached: dict[str | None, tuple[float, Values]] = {}
        self._lock = threading.Lock()

    def of(self, access: Access) -> Values:
        with self._lock:
            now = time.monotonic()
            self._cached = {owner: one for owner, one in self._cached.items() if one[0] > now}
            if access.owner not in self._cached:
                self._cached[access.owner] = (now + _CACHE_S, self._found(access))
            return self._cached[access.owner][1]

    def _found(self, access: Access) -> Values:
        app = self._app
        tasks = app.service.list(owner=access.owner, limit=_LATEST_TASKS).tasks
        owners = map(owner_name, app.store.count_owners()) if access.owner is None else ()
        return {
            "tools": _sorted([*(spec.name for spec in app.tools), *(task.tool_name for task in tasks)]),
            "queues": _sorted([*app.settings.queues, *(task.queue for task in tasks)]),
            "tags": _sorted(tag for task in tasks for tag in task.tags),
            "owners": _sorted(owners),
        }


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(set(names))[:_MAX_VALUES]


_PATH = "/dashboard/tasks"
_PAGE = 50
#: Length of an error or message in the list.
_NOTE_CHARS = 160
#: Selectable periods: title and seconds, by name in the query.
LAST = {
    "15m": ("15 minutes", 900),
    "1h": ("Hour", 3600),
    "24h": ("24 hours", 86_400),
    "7d": ("7 days", 7 * 86_400),
    "30d": ("30 days", 30 * 86_400),
}
_TABS: Mapping[str, Sequence[State]] = {
    "All": (),
    "Active": [state for state in State if state not in TERMINAL],
    "Needs an answer": [State.INPUT_REQUIRED],
    "Succeeded": [State.SUCCEEDED],
    "Failed": [State.FAILED, State.TIMED_OUT],
    "Cancelled": [State.CANCELLED],
}
_NAMES = {*TaskListQuery.model_fields, "last"} - {"limit"}


class ListAddress:
    """The filter in the address of a list, and addresses of similar lists."""

    def __init__(self, query: Iterable[tuple[str, str]]) -> None:
        self.pairs = [(name, value.strip()) for name, value in query if name in _NAMES and value.strip()]

    def all(self, name: str) -> list[str]:
        return [value for one, value in self.pairs if one == name]

    def one(self, name: str) -> str:
        return next(iter(self.all(name)), "")

    def address(self, **changes: str | Sequence[str]) -> str:
        """Return the address with changes; without a cursor, of the first page."""
        kept = [(name, value) for name, value in self.pairs if name not in {*changes, "cursor"}]
        for name, value in changes.items():
            kept += [(name, one) for one in ([value] if isinstance(value, str) else value) if one]
        return _PATH + (f"?{urlencode(kept)}" if kept else "")

    @property
    def is_filtered(self) -> bool:
        return any(name not in ("cursor", "sort") for name, _ in self.pairs)

    def query(self) -> TaskListQuery:
        """Validate as the API does. Raises InvalidRequest."""
        given: dict[str, Any] = {
            name: self.all(name) if name in ("state", "tag") else value
            for name, value in self.pairs
            if name != "last"
        }
        if beginning_of_id(text := self.one("text")) and text.startswith("tsk_"):
            given["id"] = given.pop("text")
        try:
            return TaskListQuery.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            raise invalid(first, "query", first["loc"]) from None

    @property
    def last_s(self) -> int | None:
        return LAST[self.one("last")][1] if self.one("last") in LAST else None


class TaskList:
    def __init__(self, dashboard: Dashboard) -> None:
        self._app, self._records = dashboard.app, dashboard.records
        self._known = FilterValues(dashboard.app)

    @property
    def pages(self) -> list[Page]:
        return [Page(_PATH, "tasks.html", "tasks", self.tasks)]

    def tasks(self, request: PageRequest) -> dict[str, Any]:
        chosen = ListAddress(request.query.multi_items())
        filters = chosen.query()
        page = self._page(request.access, chosen, filters)
        paused = {one.queue for one in self._app.store.paused_queues()}
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
            "known": self._known.of(request.access),
            "bulk": _bulk(filters, chosen),
        }

    def _page(self, access: Access, chosen: ListAddress, filters: TaskListQuery) -> dict[str, Any]:
        query = {**filters.filters(), "limit": _PAGE}
        if chosen.last_s is not None:
            since = self._app.store.now_ms() - chosen.last_s * 1000
            query["submitted_after"] = max(since, query["submitted_after"] or 0)
        page = self._records.tasks(access, **query)
        if filters.cursor is not None and page["previous_cursor"] is None:
            # Nothing precedes it: show the first page, which may have grown since.
            page = self._records.tasks(access, **{**query, "cursor": None})
        return page


def _bulk(filters: TaskListQuery, chosen: ListAddress) -> dict[str, Any]:
    """Return the filter of bulk actions, and the states in which each action is possible."""
    given = filters.model_dump(mode="json", exclude={"sort", "limit", "cursor"}, exclude_none=True)
    return {
        "filter": {name: value for name, value in given.items() if value != []},
        "last_s": chosen.last_s,
        "fit": {action: sorted(map(str, states)) for action, states in ACTION_STATES.items()},
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
    """Return the reason for a task's state, in a line."""
    if state is State.INPUT_REQUIRED:
        return next((one["message"] for one in task["questions"] if one["message"]), "")
    if state in TERMINAL:
        return (task["error"] or {}).get("message") or ""
    if state is State.QUEUED and task["queue"] in paused:
        return "Queue paused"
    if state is State.QUEUED and task["error"]:
        return f"Retry after: {task['error'].get('message', '')}"
    return task["waits_for"] or ""


def _short(text: str) -> str:
    line = " ".join(text[: _NOTE_CHARS * 4].split())
    return line if len(line) <= _NOTE_CHARS else line[:_NOTE_CHARS] + "…"


class ToolPages:
    def __init__(self, dashboard: Dashboard) -> None:
        self._app = dashboard.app

    @property
    def pages(self) -> list[Page]:
        return [
            Page("/dashboard/tools", "tools.html", "tools", self.tools),
            Page("/dashboard/tools/{name:path}", "tool.html", "tools", self.tool),
        ]

    def tools(self, request: PageRequest) -> dict[str, Any]:
        return {"tools": [self._shown(spec) for spec in self._app.tools]}

    def tool(self, request: PageRequest) -> dict[str, Any]:
        """Raises UnknownTool."""
        spec = self._app.tools.get(request.path["name"])
        return {
            "tool": self._shown(spec),
            "schema": _with_secrets_hidden(spec),
            "queues": list(self._app.settings.queues),
        }

    def _shown(self, spec: ToolSpec) -> dict[str, Any]:
        first, _, rest = spec.description.strip().partition("\n")
        limits = {
            "running": spec.max_running,
            "per_minute": spec.max_starts_per_minute,
            "per_key": (spec.max_running_per_key or 1) if spec.concurrency_key else None,
        }
        about = {"title": spec.title, "summary": first.strip(), "rest": rest.strip(), "limits": limits}
        return {**tool_record(spec, self._app.settings), **about}


def _with_secrets_hidden(spec: ToolSpec) -> dict[str, Any]:
    """Return the input schema with secrets as password fields."""
    schema = spec.input_schema
    fields = schema.get("properties")
    if not spec.secrets or not isinstance(fields, dict):
        return schema
    shown = {
        name: {**one, "format": "password"} if name in spec.secrets and isinstance(one, dict) else one
        for name, one in fields.items()
    }
    return {**schema, "properties": shown}
