"""Whatever a runner writes to its channel, the supervisor lives and other owners' tasks finish."""

import base64
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backburner.core.lifecycle import State
from tests.integration.engine.local import Local, running
from tests.integration.engine.misbehaving_tools import misbehaving_app
from tests.whole import FUZZ_CASES

pytestmark = pytest.mark.slow

#: `make soak` says 10000.
AT_ONCE = 25
HONEST_EVERY = 5

ARTIFACT = {
    "number": 1,
    "artifact_id": "art_" + 32 * "0",
    "name": "a.txt",
    "kind": "file",
    "size_bytes": 1,
    "sha256": 64 * "0",
    "path": f"TASK/artifacts/art_{32 * '0'}/a.txt",
    "created_at": 1,
}
ERROR = {"type": "tool_error", "message": "m", "exception": "E", "details": "d", "data": {}}
PROGRESS = {"percent": 1, "step": 1, "step_total": 2, "phase": "p", "message": "m", "context": {}}
METRICS = {"wall_s": 0.1, "cpu_s": 0.1, "max_rss_mb": 1}
VALID: dict[str, dict[str, Any]] = {
    "hello": {},
    "done": {"kind": "succeeded", "result_json": "1", "metrics": METRICS, "changed": False},
    "failed": {"kind": "failed", "error": ERROR, "metrics": METRICS, "changed": True, "retryable": True},
    "progress": PROGRESS,
    "checkpoint": {"number": 1, "data_json": "1"},
    "artifact": ARTIFACT,
    "ask": {"number": 1, "requests": [{"key": "k", "method": "elicitation/create", "params": {}}]},
}

plain = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.sampled_from([2**63, -(2**63) - 1, 10**400, "", "\0", "\ud800", "x" * 5000, "TASK", "../.."])
    | st.text(max_size=20)
)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@st.composite
def nearly_valid(draw: st.DrawFn) -> bytes:
    """A message that is right but for a few of its parts."""
    name = draw(st.sampled_from(sorted(VALID)))
    body = {"task_id": "TASK", "attempt": 1, **VALID[name]}
    for key in draw(st.lists(st.sampled_from([*body, "more"]), max_size=3)):
        if draw(st.booleans()):
            body[key] = draw(values)
        else:
            body.pop(key, None)
    kind = "done" if name == "failed" else name
    return json.dumps([kind, body]).encode()


words = st.one_of(
    nearly_valid(),
    values.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=200),
    st.integers(1, 3000).map(lambda depth: b"[" * depth),
    st.integers(1, 3000).map(lambda depth: b'["progress",' + b'{"a":' * depth),
    nearly_valid().flatmap(lambda data: st.integers(0, len(data)).map(lambda end: data[:end])),
)
speeches = st.lists(words, min_size=1, max_size=3).map(lambda lines: b"".join(line + b"\n" for line in lines))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    folder = tmp_path_factory.mktemp("fuzz")
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(running(misbehaving_app(store=f"sqlite:///{folder}/tasks.db"), shared=True))


@settings(
    max_examples=max(1, FUZZ_CASES // AT_ONCE),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(said=st.lists(speeches, min_size=AT_ONCE, max_size=AT_ONCE))
def test_whatever_runners_say_others_are_not_touched(local: Local, said: list[bytes]) -> None:
    supervisor = local.supervisor()
    hostile, honest = [], []
    for number, speech in enumerate(said):
        data = base64.b64encode(speech).decode()
        hostile.append(local.submit("speak_and_return", {"owner": "hostile"}, data=data))
        if number % HONEST_EVERY == 0:
            honest.append((f"n{number}", local.submit("who", {"owner": "honest"}, name=f"n{number}")))
    for name, task_id in honest:
        assert local.end(task_id).result == name
    for task_id in hostile:
        task = local.end(task_id)
        json.dumps([task.result, task.error and task.error.to_dict()], allow_nan=False).encode()
        assert task.state in (State.SUCCEEDED, State.FAILED, State.CANCELLED), task
        for artifact in local.store.artifacts(task_id):
            assert artifact.path.startswith(f"{task_id}/artifacts/")
    assert local.supervisor() == supervisor
