"""How many tasks may run at a time and start in a minute: of an owner, of a tool, with a key.

A limit has a name. Tasks that are under the same limit count together: `owner:ann`, `tool:relax`,
`key:index:my/repo`, and with `starts:` before it how many may start in a minute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase

#: What stands before the name of a limit on how many may start.
STARTS = "starts:"
#: And the time that such a limit is about.
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """How many tasks of one tool may run at a time, all in all and with one key, and start in a minute.

    None: any number.
    """

    max_running: int | None = None
    max_starts_per_minute: int | None = None
    max_running_per_key: int | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, entry.name) is not None for entry in fields(self))


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit that a task is under: so many at a time, or so many starts in a minute."""

    name: str
    most: int

    @property
    def of_starts(self) -> bool:
        return self.name.startswith(STARTS)

    @property
    def reason(self) -> str:
        """Why a task waits that this limit holds, as a sentence."""
        kind, _, whose = self.name.removeprefix(STARTS).partition(":")
        if kind == "owner":
            whose = "one owner"
        elif kind == "key":
            tool_name, _, key = whose.partition(":")
            whose = f"{tool_name} with the key {key!r}"
        one, end = self.most == 1, "in a minute" if self.of_starts else "at a time"
        does = ("starts" if one else "start") if self.of_starts else ("runs" if one else "run")
        return f"At most {self.most} {'task' if one else 'tasks'} of {whose} {does} {end}."


@dataclass(frozen=True, slots=True)
class Limits:
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
        """How many the limit of that name allows; None where there is none any more."""
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
