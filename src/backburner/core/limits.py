"""Limits on tasks that run at a time or start in a minute: per owner, per tool, per key.

Tasks under a limit of the same name count together: `owner:ann`, `tool:relax`, `key:index:my/repo`. A name
that begins with `starts:` limits starts in a minute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct, field

#: What stands before the name of a limit on how many may start.
STARTS = "starts:"
#: And the time that such a limit is about.
MINUTE_MS = 60_000


class ToolLimits(Struct, frozen=True):
    """Limits that a tool's author sets: tasks at a time in all and per key, and starts in a minute.

    None means no limit.
    """

    max_running: int | None = None
    max_starts_per_minute: int | None = None
    max_running_per_key: int | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, name) is not None for name in self.__struct_fields__)


class Limit(Struct, frozen=True):
    """One limit that a task is under: so many at a time, or so many starts in a minute."""

    name: str
    most: int

    @property
    def of_starts(self) -> bool:
        return self.name.startswith(STARTS)

    @property
    def reason(self) -> str:
        """Sentence that tells a waiting task which limit holds it."""
        kind, _, whose = self.name.removeprefix(STARTS).partition(":")
        if kind == "owner":
            whose = "one owner"
        elif kind == "key":
            tool_name, _, key = whose.partition(":")
            whose = f"{tool_name} with the key {key!r}"
        one, end = self.most == 1, "in a minute" if self.of_starts else "at a time"
        does = ("starts" if one else "start") if self.of_starts else ("runs" if one else "run")
        return f"At most {self.most} {'task' if one else 'tasks'} of {whose} {does} {end}."


class Limits(Struct, frozen=True):
    """The operator's limits; beside them there are those that tools have themselves. The least counts.

    `tools` are by name or pattern, and the first that fits counts.
    """

    max_running_per_owner: int | None = None
    max_starts_per_minute_per_owner: int | None = None
    tools: Mapping[str, ToolLimits] = field(default_factory=dict)

    def __bool__(self) -> bool:
        owners = (self.max_running_per_owner, self.max_starts_per_minute_per_owner)
        return owners != (None, None) or bool(self.tools)

    def of(self, owner: str, tool_name: str, key: str, own: ToolLimits | None) -> list[Limit]:
        """All that a task is under; `own` are the limits that its tool has itself."""
        found = ((name, self.most(name, own)) for name in names_of(owner, tool_name, key))
        return [Limit(name, most) for name, most in found if most is not None]

    def most(self, name: str, own: ToolLimits | None) -> int | None:
        """Return the number that the limit of that name allows; None for a limit that no longer exists."""
        kind = name.removeprefix(STARTS).partition(":")[0]
        of_starts = name.startswith(STARTS)
        if kind == "owner":
            return self.max_starts_per_minute_per_owner if of_starts else self.max_running_per_owner
        number = "max_starts_per_minute" if of_starts else _NUMBERS[kind]
        tool_name = tool_of(name)
        fitting = (said for pattern, said in self.tools.items() if fnmatchcase(tool_name, pattern))
        words = (getattr(said, number) for said in (own, next(fitting, None)) if said is not None)
        return min((most for most in words if most is not None), default=None)


_NUMBERS = {"tool": "max_running", "key": "max_running_per_key"}
NO_LIMITS = Limits()


def names_of(owner: str, tool_name: str, key: str) -> Iterator[str]:
    """The names of all limits that a task could be under; `key` is empty for one without."""
    yield f"owner:{owner}"
    yield f"tool:{tool_name}"
    if key:
        yield f"key:{tool_name}:{key}"
    yield f"{STARTS}owner:{owner}"
    yield f"{STARTS}tool:{tool_name}"


def tool_of(name: str) -> str:
    """The tool whose own limits decide on the limit of that name; empty for an owner's."""
    kind, _, whose = name.removeprefix(STARTS).partition(":")
    return "" if kind == "owner" else whose.partition(":")[0]
