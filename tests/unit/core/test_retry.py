from typing import Any

import pytest

from backburner import Backburner
from backburner.core.retry import NO_RETRY, Retry
from backburner.core.task import TaskError
from backburner.errors import ToolDefinitionError

CRASH = TaskError("tool_error", "It broke.", exception="OSError")
LOST = TaskError("worker_lost", "It went away.")


@pytest.mark.parametrize(
    ("policy", "error", "failures", "delay"),
    [
        (NO_RETRY, LOST, 1, None),
        (Retry(), CRASH, 1, None),
        (Retry(), LOST, 1, 0.0),
        (Retry(), LOST, 2, 2.0),
        (Retry(), LOST, 3, None),
        (Retry(on=("*",)), CRASH, 1, 1.0),
        (Retry(on=("tool_error",)), CRASH, 1, 1.0),
        (Retry(on=("OSError",)), CRASH, 2, 2.0),
        (Retry(on=("ValueError",)), CRASH, 1, None),
        (Retry(on="OSError"), CRASH, 1, 1.0),
        (Retry(on=lambda error: True), CRASH, 1, None),
        (Retry(max_attempts=2000, on=("*",)), CRASH, 1900, 300.0),
    ],
)
def test_a_policy_says_whether_and_when_to_try_again(
    policy: Retry, error: TaskError, failures: int, delay: float | None
) -> None:
    assert policy.delay_s(error, failures) == delay


def test_what_its_process_found_retryable_is_tried_again_as_often_as_the_policy_says() -> None:
    policy = Retry(max_attempts=2, on=lambda error: True)
    assert policy.delay_s(CRASH, 1, retryable=True) == 1.0
    assert policy.delay_s(CRASH, 2, retryable=True) is None


class Flaky(ConnectionResetError):
    pass


async def later(error: BaseException) -> bool:
    return True


@pytest.mark.parametrize(
    ("on", "covered"),
    [
        ("Flaky", True),
        ("OSError", True),
        ("Exception", True),
        ("flaky", False),
        (ConnectionError, True),
        (ValueError, False),
        ({"ValueError", ConnectionError}, True),
        ((error_type for error_type in (KeyError, OSError)), True),
        ([], False),
        (lambda error: "peer" in str(error), True),
        (["KeyError", lambda error: None], False),
    ],
)
def test_a_policy_covers_exceptions_and_their_kinds(on: Any, covered: bool) -> None:
    policy = Retry(on=on)
    assert policy.covers(Flaky("reset by peer")) is covered
    assert policy.covers(Flaky("reset by peer")) is covered


@pytest.mark.parametrize("on", [None, 5, int, b"OSError", later, ["OSError", None]])
def test_what_can_be_no_cause_is_refused_when_the_tool_is_defined(on: Any) -> None:
    bb = Backburner("lab", store="sqlite://")
    with pytest.raises(ToolDefinitionError, match="exception classes"):
        bb.tool(name="fetch", retries=Retry(on=on))(lambda: None)
