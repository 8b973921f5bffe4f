"""Spans, from the call through the wait and each attempt into the tool, as a collector gets them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backburner import Backburner
from tests.deployment import ROOT, Deployment
from tests.integration.mcp_server.harness import connect
from tests.integration.observing.collector import Collector, Span

pytestmark = pytest.mark.slow

SERVER = Path(__file__).with_name("observed_server.py")
_SERVER_KIND, _INTERNAL = 2, 1
#: What the caller's tracing system notes beside its trace, which all spans of it are to have.
TRACESTATE = "vendor=of-the-caller,other=2"
# A loaded machine is slower than the 5 s of the SDK's own name.
PATIENT = {"mcp__patience_s": "60"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


def by_variables(collector: Collector) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address, "OTEL_BSP_SCHEDULE_DELAY": "200"}


def by_the_app(collector: Collector) -> dict[str, str]:
    return {
        "PROVIDER": "own",
        "COLLECTOR": f"{collector.address}/v1/traces",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }


class Caller:
    """Who calls with a trace of its own."""

    def __init__(self) -> None:
        self.trace_id, self.span_id = secrets.token_hex(16), secrets.token_hex(8)

    @property
    def meta(self) -> dict[str, str]:
        return {"traceparent": f"00-{self.trace_id}-{self.span_id}-01", "tracestate": TRACESTATE}


async def called(url: str, *tools: str) -> tuple[list[Caller], list[dict[str, Any]]]:
    callers, results = [Caller() for _ in tools], []
    async with connect(url, "2025", tasks=False) as peer:
        for caller, tool in zip(callers, tools, strict=True):
            results.append(await peer.call(tool, meta=caller.meta))
    return callers, results


def is_under(child: Span, parent: Span) -> bool:
    return (child.trace_id, child.parent_id) == (parent.trace_id, parent.span_id)


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("configured", [by_variables, by_the_app])
async def test_one_trace_leads_from_the_caller_into_the_tool(
    tmp_path: Path, collector: Collector, configured: Any
) -> None:
    with (
        Deployment(tmp_path, (SERVER,), PATIENT, configured(collector)) as deployment,
        deployment.http() as server,
    ):
        (caller, second), results = await called(server.url, "traced", "traced")
        names = "tools/call traced", "wait traced", "execute_tool traced", "step 0"
        spans = await asyncio.to_thread(collector.of, caller.trace_id, *names)
        again = await asyncio.to_thread(collector.of, second.trace_id, *names)
    call, wait, attempt, step = (spans[name] for name in names)
    assert call.parent_id == caller.span_id
    assert is_under(wait, call)
    assert is_under(attempt, call)
    assert is_under(step, attempt)
    assert (call.kind, attempt.kind) == (_SERVER_KIND, _INTERNAL)
    assert {one.tracestate for one in (call, wait, attempt, step)} == {TRACESTATE}
    assert wait.began_ns <= wait.ended_ns <= attempt.ended_ns
    task_id = call.attributes["backburner.task.id"]
    assert attempt.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "traced",
        "backburner.task.id": task_id,
        "backburner.attempt": 1,
        "backburner.queue": "cpu_standard",
        "backburner.outcome": "succeeded",
    }
    assert not attempt.failed
    assert is_under(again["step 0"], again["execute_tool traced"])
    if configured is by_variables:  # sending spans leaves a process as it was: it is used again
        assert results[0]["content"] == results[1]["content"]
        assert attempt.resource["service.name"] == "backburner"


async def test_attempts_that_fail_or_whose_process_is_killed_have_their_spans(
    tmp_path: Path, collector: Collector
) -> None:
    variables = by_variables(collector) | {"OTEL_SERVICE_NAME": "the-lab"}
    with Deployment(tmp_path, (SERVER,), PATIENT, variables) as deployment, deployment.http() as server:
        callers, _ = await called(server.url, "fail", "linger", "stumble")
        failed, lingered, stumbled = [
            (await asyncio.to_thread(collector.of, caller.trace_id, name))[name]
            for caller, name in zip(
                callers, ("execute_tool fail", "execute_tool linger", "execute_tool stumble"), strict=True
            )
        ]
        of_two = await asyncio.to_thread(collector.both, "execute_tool stumble")
    assert (failed.failed, failed.attributes["error.type"]) == (True, "tool_error")
    assert "no good" not in repr(failed)
    assert (lingered.failed, lingered.attributes["backburner.outcome"]) == (True, "timed_out")
    first, then = of_two
    assert (first.attributes["error.type"], first.attributes["backburner.attempt"]) == ("worker_lost", 1)
    assert (then.attributes["backburner.outcome"], then.attributes["backburner.attempt"]) == ("succeeded", 2)
    assert {span.trace_id for span in of_two} == {stumbled.trace_id}
    assert stumbled.resource["service.name"] == "the-lab"


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("kind", ["mcpserver", "fastmcp"])
async def test_a_tool_of_an_attached_server_is_in_the_trace_of_its_caller(
    tmp_path: Path, collector: Collector, kind: str
) -> None:
    from tests.integration.mcp_server.harness import SCRIPT

    variables = {**by_variables(collector), "SERVER_KIND": kind}
    with Deployment(tmp_path, (SCRIPT,), PATIENT, variables) as deployment, deployment.http() as server:
        (caller,), _ = await called(server.url, "hold")
        names = "wait hold", "execute_tool hold"
        spans = await asyncio.to_thread(collector.of, caller.trace_id, *names)
        call = await asyncio.to_thread(collector.under, caller.span_id, "tools/call hold")
        attempt = spans["execute_tool hold"]
        within = await asyncio.to_thread(collector.under, attempt.span_id, "tools/call hold")
    assert call.kind == _SERVER_KIND
    assert is_under(spans["wait hold"], call)
    assert is_under(spans["execute_tool hold"], call)
    assert within.trace_id == caller.trace_id
    assert {call.tracestate, attempt.tracestate, within.tracestate} == {TRACESTATE}


@pytest.mark.whole
async def test_a_collector_that_is_away_fails_no_task(tmp_path: Path) -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    with Deployment(tmp_path, (SERVER,), PATIENT, variables) as deployment, deployment.http() as server:
        _, (result, other) = await called(server.url, "traced", "fail")
    assert not result.get("isError")
    assert other["isError"]


def test_spans_of_a_task_without_a_caller_s_trace_are_a_trace_of_their_own(
    tmp_path: Path, collector: Collector
) -> None:
    variables = by_variables(collector)
    with Deployment(tmp_path, (SERVER,), {}, variables) as deployment, deployment.app(_app) as app:
        task = app.service.submit("traced", {})
        assert app.service.wait(task.task_id, 60).task.state == "succeeded"
        attempt = collector.named("execute_tool traced")
        wait, step = collector.named("wait traced"), collector.named("step 0")
    assert attempt.parent_id == ""
    assert is_under(wait, attempt)
    assert is_under(step, attempt)


def _app() -> Backburner:
    from backburner.tools.targets import load

    app: Backburner = load(f"file:{SERVER}#observed")
    return app


def test_the_names_of_spans_and_attributes_are_in_the_documentation() -> None:
    from backburner.observability import tracing

    page = (ROOT / "docs" / "guides" / "monitoring.md").read_text()
    own = tracing.OPERATION, tracing.TOOL, tracing.ERROR, tracing.TASK_ID, tracing.ATTEMPT
    for name in (*own, tracing.QUEUE, tracing.OUTCOME, tracing.EXECUTE_TOOL, tracing.WAIT):
        assert f"`{name}" in page
