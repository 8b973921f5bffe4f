"""Named SQL statements, read from the `.sql` files beside this module.

A file holds blocks that begin with `-- name: …`; a block that begins with `-- fragment: …` is put
in place of `{…}` in statements and in other fragments. `{leased}`, `{unfinished}` and
`{no_longer_leased}` are lists of states, from the lifecycle, `{wait_class}` and `{run_class}` sort spans
of time, and `{never}` is a time. Parameters are written `:name`. A block that begins with `-- template: …`
is a statement for any table, whose name and columns are put in when it is used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from ..lifecycle import LEASED, TERMINAL, State
from ..looking import LATENCY_BOUNDS_MS

_BLOCK = re.compile(r"^-- (name|fragment|template): (\w+)\n", re.MULTILINE)
_FRAGMENT = re.compile(r"\{(\w+)\}")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_SHARED = (
    *("tasks", "leases", "outputs", "keeping", "calls", "clients", "limits", "webhooks"),
    *("hand_outs", "copying", "looking", "endings", "spent"),
)
#: The time at which a task is ready that waits for something else.
NEVER = 9_000_000_000_000_000


def _listed(states: frozenset[State]) -> str:
    """The states as literals, since a planner cannot match a parameter with a partial index."""
    return ", ".join(f"'{state}'" for state in State if state in states)


def _class_of(span: str) -> str:
    """Which of the bounds of `Ended` a span of milliseconds is below; NULL if there is none."""
    below = " ".join(f"WHEN {span} < {bound} THEN {n}" for n, bound in enumerate(LATENCY_BOUNDS_MS))
    return f"CASE {below} WHEN {span} IS NOT NULL THEN {len(LATENCY_BOUNDS_MS)} END"


_STATES = {
    "leased": _listed(LEASED),
    "unfinished": _listed(LEASED | {State.QUEUED}),
    "no_longer_leased": _listed(TERMINAL | {State.QUEUED}),
}
_SPANS = {
    "wait_class": _class_of("(coalesce(started_at, completed_at) - submitted_at)"),
    "run_class": _class_of("(completed_at - started_at)"),
}


def _blocks(text: str) -> list[tuple[str, str, str]]:
    marks = list(_BLOCK.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return [(mark[1], mark[2], text[mark.end() : end].strip()) for mark, end in zip(marks, ends, strict=True)]


def _fill(body: str, fragments: dict[str, str]) -> str:
    while holes := _FRAGMENT.findall(body):
        for name in holes:
            body = body.replace("{" + name + "}", fragments[name])
    return re.sub(r"^--.*\n", "", body, flags=re.MULTILINE).strip().rstrip(";")


@cache
def _found(dialect: str) -> dict[str, dict[str, str]]:
    """What the files have for a dialect: by kind, then by name."""
    found: dict[str, dict[str, str]] = {
        "name": {},
        "fragment": {**_STATES, **_SPANS, "never": str(NEVER)},
        "template": {},
    }
    for file in (*_SHARED, dialect):
        for kind, name, body in _blocks((files(__package__) / "sql" / f"{file}.sql").read_text("utf-8")):
            if name in found[kind]:
                raise ValueError(f"two SQL statements are named {name}")
            found[kind][name] = body
    return found


@cache
def statements(dialect: str) -> dict[str, str]:
    """All statements for `sqlite` or `postgres`, by name, with parameters as its driver wants them."""
    found = _found(dialect)
    filled = {name: _fill(body, found["fragment"]) for name, body in found["name"].items()}
    if dialect == "postgres":
        return {name: _PARAMETER.sub(r"%(\1)s", body.replace("%", "%%")) for name, body in filled.items()}
    return filled


def for_table(dialect: str, template: str, table: str, columns: Sequence[str] = ()) -> str:
    """The statement that a template is for a table. `{places}` are as many `?` as it has columns."""
    quoted = [f'"{column}"' for column in columns]
    named = {"table": table, "columns": ", ".join(quoted), "places": ", ".join("?" * len(quoted))}
    return _fill(_found(dialect)["template"][template], named)


@cache
def migrations(dialect: str) -> list[tuple[int, str, str]]:
    """(number, name, SQL) of each migration, in order."""
    folder = files(__package__) / "migrations" / dialect
    scripts = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name[:4]), name[5:-4], (folder / name).read_text("utf-8")) for name in scripts]
