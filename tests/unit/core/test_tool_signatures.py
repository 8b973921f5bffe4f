"""The inputs of a tool come from the signature of its function."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field

from backburner import Backburner, TaskContext
from backburner.errors import InvalidInputs, ToolDefinitionError
from backburner.testing import inline

bb = Backburner("signatures", store="sqlite://")


@bb.tool
def repeat(text: str = Field(min_length=1), n: int = Field(default=3, ge=1, description="How often")) -> str:
    return text * n


@bb.tool
def collect(names: list[str] = Field(default_factory=list)) -> list[str]:  # noqa: B008
    return [*names, "end"]


@bb.tool
def unannotated(n, ctx):  # type: ignore[no-untyped-def]
    return [n, ctx.tool_name]


@bb.tool
def optional_context(n: int, ctx: TaskContext | None = None) -> bool:
    return ctx is not None


class Lab:
    def __init__(self, name: str) -> None:
        self.name = name

    def measure(self, n: int) -> str:
        return f"{self.name} {n}"


bb.tool(Lab("red").measure)


def properties(tool: str) -> dict[str, Any]:
    found: dict[str, Any] = bb.tools.get(tool).input_schema["properties"]
    return found


def test_a_default_that_is_a_field_is_its_default_and_its_rules() -> None:
    with inline(bb) as tasks:
        assert tasks.run("repeat", text="a").result == "aaa"
        assert tasks.run("repeat", text="a", n=2).result == "aa"
        assert tasks.run("collect").result == ["end"]
        with pytest.raises(InvalidInputs):
            tasks.run("repeat", text="a", n=0)
        with pytest.raises(InvalidInputs, match="text"):
            tasks.run("repeat")
    assert {"default": 3, "minimum": 1, "description": "How often"}.items() <= properties("repeat")[
        "n"
    ].items()


def test_a_context_is_given_by_its_name_alone_and_is_no_input() -> None:
    assert properties("unannotated").keys() == properties("optional_context").keys() == {"n"}
    with inline(bb) as tasks:
        assert tasks.run("unannotated", n=1).result == [1, "unannotated"]
        assert tasks.run("optional_context", n=1).result is True


def test_a_method_is_a_tool_of_an_instance() -> None:
    assert properties("measure").keys() == {"n"}
    with inline(bb) as tasks:
        assert tasks.run("measure", n=2).result == "red 2"
    with pytest.raises(ToolDefinitionError, match=r"bb\.tool\(instance\.measure\)"):
        bb.tool(name="unbound")(Lab.measure)
