"""The span of a call that becomes a task, and the trace that the task is in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import SpanKind

from ..tracing import EXECUTE_TOOL, OPERATION, TASK_ID, TOOL, context_of, traceparent_of, tracestate_of
from .request import RequestContext, kept_tracestate, traceparent_of_request, tracestate_of_request

_TRACER = trace.get_tracer("backburner")


@contextmanager
def call_span(ctx: RequestContext, tool_name: str) -> Iterator[None]:
    """Answer the call in a span of its own, where its framework has none: FastMCP's comes after us."""
    if trace.get_current_span().is_recording():
        yield
        return
    attributes = {"mcp.method.name": ctx.method, "mcp.protocol.version": ctx.protocol_version}
    attributes |= {"jsonrpc.request.id": str(ctx.request_id), OPERATION: EXECUTE_TOOL, TOOL: tool_name}
    named = traceparent_of_request(ctx)
    with _TRACER.start_as_current_span(
        f"{ctx.method} {tool_name}",
        kind=SpanKind.SERVER,
        context=None if named is None else context_of(named, tracestate_of_request(ctx)),
        attributes=attributes,
    ):
        yield


def traceparent_for(ctx: RequestContext) -> str | None:
    """Of the span that the call is answered in; where there is none, as the caller gave it."""
    return traceparent_of(trace.get_current_span()) or traceparent_of_request(ctx)


def tracestate_for(ctx: RequestContext) -> str | None:
    """As `traceparent_for`, of what is noted beside it."""
    span = trace.get_current_span()
    return kept_tracestate(tracestate_of(span)) if traceparent_of(span) else tracestate_of_request(ctx)


def became(task_id: str) -> None:
    """The call of the current span has become that task."""
    trace.get_current_span().set_attribute(TASK_ID, task_id)
