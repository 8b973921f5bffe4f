"""Named SQL statements from the `.sql` files beside this module.

A file has blocks that begin with `-- name: …`. A block that begins with `-- fragment: …` replaces `{…}` in
statements and other fragments; more fragments are made below, from the lifecycle and from `rows`.
Parameters are written `:name`. A block that begins with `-- template: …` is a statement for any table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from ...core.lifecycle import LEASED, TERMINAL, State
from ...core.monitoring import LATENCY_BOUNDS_MS
from .rows import INSERTED, LISTED, NEVER

_BLOCK = re.compile(r"^-- (name|fragment|template): (\w+)\n", re.MULTILINE)
_FRAGMENT = re.compile(r"\{(\w+)\}")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_DIALECTS = ("sqlite", "postgres")


def _listed(states: frozenset[State]) -> str:
    """Return states as literals, since a planner cannot match a parameter with a partial index."""
    return ", ".join(f"'{state}'" for state in State if state in states)


def _class_of(span: str) -> str:
    """Return an expression for the first latency bound above a span; NULL without a span."""
    below = " ".join(f"WHEN {span} < {bound} THEN {n}" for n, bound in enumerate(LATENCY_BOUNDS_MS))
    return f"CASE {below} WHEN {span} IS NOT NULL THEN {len(LATENCY_BOUNDS_MS)} END"


_FRAGMENTS = {
    "leased": _listed(LEASED),
    "unfinished": _listed(LEASED | {State.QUEUED}),
    "no_longer_leased": _listed(TERMINAL | {State.QUEUED}),
    "wait_class": _class_of("(coalesce(started_at, completed_at) - submitted_at)"),
    "run_class": _class_of("(completed_at - started_at)"),
    "never": str(NEVER),
    "listed": ", ".join(f"t.{column}" for column in LISTED),
    "inserted_columns": ", ".join(INSERTED),
    "inserted_values": ", ".join(f":{column}" for column in INSERTED),
}


def _blocks(text: str) -> Iterable[tuple[str, str, str]]:
    _, *parts = _BLOCK.split(text)
    return zip(parts[0::3], parts[1::3], parts[2::3], strict=True)


def _fill(body: str, fragments: dict[str, str]) -> str:
    while holes := _FRAGMENT.findall(body):
        for name in holes:
            body = body.replace("{" + name + "}", fragments[name])
    return re.sub(r"^--.*\n", "", body, flags=re.MULTILINE).strip().rstrip(";")


@cache
def _found(dialect: str) -> dict[str, dict[str, str]]:
    """Return the blocks for a dialect: by kind, then by name."""
    found: dict[str, dict[str, str]] = {"name": {}, "fragment": dict(_FRAGMENTS), "template": {}}
    other = {f"{name}.sql" for name in _DIALECTS if name != dialect}
    for file in (files(__package__) / "queries").iterdir():
        if file.name in other or not file.name.endswith(".sql"):
            continue
        for kind, name, body in _blocks(file.read_text("utf-8")):
            if name in found[kind]:
                raise ValueError(f"two SQL statements are named {name}")
            found[kind][name] = body.strip()
    return found


@cache
def statements(dialect: str) -> dict[str, str]:
    """Return all statements for `sqlite` or `postgres`, by name, with the parameters of its driver."""
    found = _found(dialect)
    filled = {name: _fill(body, found["fragment"]) for name, body in found["name"].items()}
    if dialect == "postgres":
        return {name: _PARAMETER.sub(r"%(\1)s", body.replace("%", "%%")) for name, body in filled.items()}
    return filled


def for_table(dialect: str, template: str, table: str, columns: Sequence[str] = ()) -> str:
    """Return a template's statement for a table. `{places}` is a `?` for each column."""
    quoted = [f'"{column}"' for column in columns]
    named = {"table": table, "columns": ", ".join(quoted), "places": ", ".join("?" * len(quoted))}
    return _fill(_found(dialect)["template"][template], named)


@cache
def migrations(dialect: str) -> list[tuple[int, str, str]]:
    """Return (number, name, SQL) of each migration, in order."""
    folder = files(__package__) / "migrations" / dialect
    scripts = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name[:4]), name[5:-4], (folder / name).read_text("utf-8")) for name in scripts]
