"""A server whose callers mean it no good: limits, secrets, files and schemas to try it with.

python guarded.py stdio
python guarded.py http PORT
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from backburner import Backburner, ProtocolError, TaskContext, ToolSpec
from tests.told_transport import serve_as_told

#: Takes for ever to find out that `aaa…b` does not match it.
SLOW_PATTERN = "^(a|aa)+$"

bb = Backburner("guarded")


class Pin(BaseModel):
    pin: int


@bb.tool
def count(n: int = 1, step_s: float = 0.02, *, ctx: TaskContext) -> int:
    """Count to n."""
    for _ in range(n):
        if ctx.wait_cancelled(step_s):
            ctx.raise_if_cancelled()
    return n


@bb.tool
def await_gate(gate: str, *, ctx: TaskContext) -> str:
    """Make a file, and wait until that one is there."""
    ctx.artifact(b"so far, so good", name="so-far.txt", kind="text")
    while not Path(gate).exists():
        if ctx.wait_cancelled(0.05):
            ctx.raise_if_cancelled()
    return f"attempt {ctx.attempt}"


@bb.tool(timeout="1h", memory_mb=512, scratch_mb=100, cpu=2)
def limited() -> str:
    """Have limits."""
    return "done"


def not_weak(password: str) -> str:
    """A check that no JSON schema can say, so it is made in the runner."""
    if "weak" in password:
        raise ValueError("the password is weak")
    return password


@bb.tool(secrets=["password"], retries=0)
def login(
    password: Annotated[str, Field(min_length=4), AfterValidator(not_weak)],
    fails: str = "",
    user: Literal["ada", "bob"] = "ada",
    *,
    ctx: TaskContext,
) -> str:
    """Log in, or fail in a way that says the password."""
    if fails == "exception":
        raise ValueError(f"wrong password {password!r}")
    if fails == "validation":
        Pin.model_validate({"pin": password})
    if fails == "protocol":
        raise ProtocolError(-32050, f"wrong {password}", {"given": [password]})
    return "in"


@bb.tool
def keep(name: str, *, ctx: TaskContext) -> str:
    """Make a file of that name."""
    return ctx.artifact(b"kept", name=name).artifact_id


@bb.tool
def lead_out(*, ctx: TaskContext) -> str:
    """Make a file, and put a link in its place that leads out of the task's folder."""
    artifact = ctx.artifact(b"kept", name="kept.txt")
    folder = ctx.scratch.parents[1] / "artifacts" / artifact.artifact_id
    (folder / "kept.txt").unlink()
    (folder / "kept.txt").symlink_to("/etc/passwd")
    return artifact.artifact_id


@bb.tool
def ask_slowly(ctx: TaskContext) -> str:
    """Ask for what only a slow pattern can tell."""
    schema = {"type": "object", "properties": {"name": {"type": "string", "pattern": SLOW_PATTERN}}}
    return ctx.ask("Your name?", schema).action


def nothing(inputs: dict[str, Any], context: TaskContext) -> None:
    """What the tools below do: they are never run."""


def doubled(levels: int) -> dict[str, Any]:
    """A schema that refers to each of its levels twice, so that the last is checked 2**levels times."""
    twice = {
        f"level{n}": {"allOf": [{"$ref": f"#/$defs/level{n + 1}"}, {"$ref": f"#/$defs/level{n + 1}"}]}
        for n in range(levels)
    }
    return {"$ref": "#/$defs/level0", "$defs": {**twice, f"level{levels}": {"type": "object"}}}


#: Each takes for ever, or falls over, when it is held against `{"text": "aaa…b"}` without bounds.
BOMBS: dict[str, dict[str, Any]] = {
    "pattern": {"properties": {"text": {"pattern": SLOW_PATTERN}}},
    "patternProperties": {"properties": {"named": {"patternProperties": {SLOW_PATTERN: {"type": "null"}}}}},
    "additionalProperties": {
        "properties": {
            "named": {"patternProperties": {SLOW_PATTERN: True}, "additionalProperties": {"type": "null"}}
        }
    },
    "unevaluatedProperties": {
        "properties": {
            "named": {"patternProperties": {SLOW_PATTERN: True}, "unevaluatedProperties": {"type": "null"}}
        }
    },
    "propertyNames": {"properties": {"named": {"propertyNames": {"pattern": SLOW_PATTERN}}}},
    "nested_dialect": {
        "properties": {
            "text": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": SLOW_PATTERN}
        }
    },
    "doubled": doubled(40),
    "not_itself": {"not": {"$ref": "#"}},
    "itself_twice": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "elsewhere": {"$ref": "http://127.0.0.1:9/schema.json"},
    "unique": {"properties": {"many": {"uniqueItems": True}}},
}
bb.add_tool(ToolSpec("stumbles", nothing, ask_first=lambda inputs: {}[inputs["which"]]))
bb.add_tool(
    ToolSpec(
        "one_of_two",
        nothing,
        secrets=frozenset({"key", "phrase"}),
        input_schema={"type": "object", "oneOf": [{"required": ["key"]}, {"required": ["phrase"]}]},
    )
)
for name, schema in BOMBS.items():
    bb.add_tool(ToolSpec(f"bomb_{name}", nothing, input_schema={"type": "object", **schema}))

if __name__ == "__main__":
    serve_as_told(bb)
