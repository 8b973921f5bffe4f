"""What an author and an operator may say of limits, and what is refused."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from backburner.core.limits import ToolLimits
from backburner.core.requests import TaskRequest
from backburner.errors import BadConcurrencyKey, ConfigError, ToolDefinitionError
from backburner.service.tasks import TaskService
from backburner.settings import Settings
from backburner.tools.spec import Registry, ToolSpec
from tests.unit.service.conftest import nothing

KEYS: dict[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] = {
    "an error": ("it raised KeyError", lambda inputs: inputs["nope"]),
    "a number": ("it gave a int", lambda inputs: 7),
    "an empty text": ("it gave a text of 0 characters", lambda inputs: ""),
    "a long text": ("it gave a text of 257 characters", lambda inputs: "x" * 257),
}


@pytest.mark.parametrize("case", KEYS)
def test_a_key_that_is_none_is_refused_at_the_submit_and_nothing_is_written(
    service: TaskService, tools: Registry, case: str
) -> None:
    reason, key = KEYS[case]
    tools.add(ToolSpec("keyed", nothing, concurrency_key=key))
    with pytest.raises(BadConcurrencyKey) as refused:
        service.submit("keyed", {"repo": "r"})
    assert refused.value.code == "bad_concurrency_key"
    assert refused.value.details["reason"] == reason
    assert service.store.count_states() == {}


def test_a_key_is_taken_from_inputs_that_were_checked_and_hides_secrets(
    service: TaskService, tools: Registry
) -> None:
    by_repo = ToolSpec("keyed", nothing, concurrency_key=lambda inputs: inputs.get("repo"))
    tools.add(by_repo)
    new = service.admission.new_task
    assert new(TaskRequest("keyed", {"repo": "r"})).concurrency_key == "r"
    assert new(TaskRequest("keyed", {})).concurrency_key == ""
    assert new(TaskRequest("keyed", {})).limits == ToolLimits(max_running_per_key=1)
    assert new(TaskRequest("any", {})).limits is None
    hidden = ToolSpec("hidden", nothing, concurrency_key=lambda a: a["token"], secrets=frozenset({"token"}))
    tools.add(hidden)
    key = new(TaskRequest("hidden", {"token": "s3cret-token"})).concurrency_key
    assert key
    assert "s3cret" not in key


@pytest.mark.parametrize(
    "options",
    [
        {"max_running": 0},
        {"max_running": True},
        {"max_starts_per_minute": 1.5},
        {"max_running_per_key": 1},
        {"concurrency_key": "repo"},
        {"concurrency_key": lambda inputs: "r", "max_running_per_key": -1},
    ],
)
def test_limits_that_are_none_are_refused_when_the_tool_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(ToolDefinitionError):
        ToolSpec("limited", nothing, **options)


def test_settings_take_a_number_or_a_table_for_each_tool() -> None:
    given = {"limits": {"tools": {"relax": 2, "dr*": {"max_starts_per_minute": 30}}}}
    settings = Settings.load("lab", given, {})
    assert settings.limits.tools == {
        "relax": ToolLimits(max_running=2),
        "dr*": ToolLimits(max_starts_per_minute=30),
    }
    assert Settings.from_json(settings.to_json()) == settings
    assert not Settings.load("lab", {}, {}).limits.of_running


@pytest.mark.parametrize(
    ("tools", "words"),
    [({"relax": 0}, "greater than 0"), ({"relax": {"max_runing": 1}}, "max_running"), (7, "for example")],
)
def test_settings_that_are_no_limits_are_refused_with_what_to_write(tools: Any, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Settings.load("lab", {"limits": {"tools": tools}}, {})
    assert refused.value.details["setting"].startswith("limits.tools")
    assert words in str(refused.value)
