"""Traces, by OpenTelemetry: a span for a task's wait and one for each attempt. Every name in them is here.

Spans are made where there is a tracer provider: that of the supervisor, which sees the end also of attempts
whose process was killed, or else that of the runner, which has one if the app's import made one. Who sets the
usual `OTEL_…` variables has providers everywhere (`provide`). Without an SDK nothing is imported or made.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from ..core.task import Task


log = logging.getLogger("backburner.tracing")

NAME = "backburner"
#: Of the semantic conventions for generative AI and MCP.
OPERATION, TOOL, ERROR = "gen_ai.operation.name", "gen_ai.tool.name", "error.type"
EXECUTE_TOOL = "execute_tool"
#: Our own.
TASK_ID, ATTEMPT, QUEUE, OUTCOME = (
    *("backburner.task.id", "backburner.attempt", "backburner.queue", "backburner.outcome"),
)
WAIT = "wait"

_ASK_FOR_IT = (
    *("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER"),
)
_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
#: So long a runner waits at the end of an attempt until its spans are taken.
_FLUSH_S = 1.0
#: So many spans a tool makes before they are sent in the middle of its work.
_MANY_SPANS = 512


@dataclass(frozen=True, slots=True)
class Traced:
    """Attributes of an attempt's spans. `queued_at` is the submission time of its task."""

    task_id: str
    attempt: int
    tool_name: str
    queue: str
    queued_at: int
    traceparent: str | None
    tracestate: str | None = None

    @classmethod
    def of(cls, task: Task) -> Traced:
        """Of the attempt that a task is at."""
        return cls(
            *(task.task_id, task.attempt, task.tool_name, task.queue, task.submitted_at),
            *(task.traceparent, task.tracestate),
        )

    @property
    def attributes(self) -> dict[str, Any]:
        return {
            OPERATION: EXECUTE_TOOL,
            TOOL: self.tool_name,
            TASK_ID: self.task_id,
            ATTEMPT: self.attempt,
            QUEUE: self.queue,
        }


class AttemptSpan:
    """The span of one attempt, from its start on."""

    def __init__(self, span: Any) -> None:
        self._span = span
        self.traceparent, self.tracestate = traceparent_of(span), tracestate_of(span)

    def end(self, outcome: str, error: str | None) -> None:
        """With the type of its error alone: a message may quote what callers gave."""
        from opentelemetry.trace import StatusCode

        self._span.set_attribute(OUTCOME, outcome)
        if error is not None and outcome != "cancelled":
            self._span.set_attribute(ERROR, error)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


def begin(traced: Traced) -> AttemptSpan | None:
    """Start the span of an attempt. None without a provider, or if the caller's trace is not sampled."""
    if not has_provider():
        return None
    from opentelemetry import trace

    tracer = trace.get_tracer(NAME)
    parent = context_of(traced.traceparent, traced.tracestate)
    span = tracer.start_span(
        f"{EXECUTE_TOOL} {traced.tool_name}", context=parent, attributes=traced.attributes
    )
    if traced.attempt == 1:  # where there is no trace to be in, the attempt begins one
        wait_in = parent if traced.traceparent else trace.set_span_in_context(span)
        queued_ns = traced.queued_at * 1_000_000
        wait = tracer.start_span(
            f"{WAIT} {traced.tool_name}", context=wait_in, attributes=traced.attributes, start_time=queued_ns
        )
        wait.end()
    return AttemptSpan(span) if span.is_recording() else None


def has_provider() -> bool:
    """Return whether this process exports spans."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    return trace is not None and not isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider
    )


# -- the context that spans are in -------------------------------------------------------------------


def traceparent_of(span: Any) -> str | None:
    """As W3C writes it; None for a span of no trace."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def tracestate_of(span: Any) -> str | None:
    """Return the W3C tracestate of a context; None if it is empty."""
    return span.get_span_context().trace_state.to_header() or None


def context_of(traceparent: str | None, tracestate: str | None = None) -> Context:
    """Return the trace context of the headers, or an empty one. A bad tracestate is ignored."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    given = {"traceparent": traceparent, "tracestate": tracestate}
    carrier = {name: value for name, value in given.items() if value is not None}
    return TraceContextTextMapPropagator().extract(carrier, Context())


@contextlib.contextmanager
def inside(traceparent: str | None, tracestate: str | None = None) -> Iterator[None]:
    """Make spans of this block children of the given one."""
    if traceparent is None or not has_provider():
        yield
        return
    from opentelemetry import context

    token = context.attach(context_of(traceparent, tracestate))
    try:
        yield
    finally:
        context.detach(token)


# -- providers ---------------------------------------------------------------------------------------


def provide(*, in_runner: bool = False, environment: Mapping[str, str] = os.environ) -> None:
    """Make the provider that the `OTEL_…` variables ask for, unless there is one. Never raises."""
    if not any(environment.get(name) for name in _ASK_FOR_IT) or has_provider():
        return
    if environment.get("OTEL_SDK_DISABLED", "").casefold() == "true":
        return
    try:
        makers = [_exporter(name.strip(), environment) for name in _names(environment)]
        if makers:
            _set_provider(makers, in_runner, environment)
    except ImportError as error:
        log.warning("There are no traces, though OTEL_… asks for them: %s. %s", error, _INSTALL)
    except Exception as error:
        log.warning("There are no traces, though OTEL_… asks for them: %s", error)


_INSTALL = "Install it: pip install 'backburner[otel]'"


def _names(environment: Mapping[str, str]) -> list[str]:
    names = (environment.get("OTEL_TRACES_EXPORTER") or "otlp").split(",")
    return [name for name in names if name.strip() not in ("", "none")]


def _exporter(name: str, environment: Mapping[str, str]) -> Any:
    """The class of an exporter, as its package registers it. Raises ImportError."""
    from importlib.metadata import entry_points

    if name == "otlp":
        protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
        )
        name = _PROTOCOLS.get(protocol, protocol)
    for found in entry_points(group="opentelemetry_traces_exporter", name=name):
        return found.load()
    raise ImportError(f"no exporter named {name!r} is installed")


def _set_provider(makers: list[Any], in_runner: bool, environment: Mapping[str, str]) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": NAME}))
    for make in makers:
        processor: Any = _SendAtTheEnd(make) if in_runner else BatchSpanProcessor(make())
        provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)


class _SendAtTheEnd:
    """A SpanProcessor for runners: no thread, and no connection that stays open and spoils the process."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._spans: list[Any] = []
        self._lock = threading.Lock()

    def on_start(self, span: Any, parent_context: Any = None) -> None: ...

    def _on_ending(self, span: Any) -> None: ...

    def on_end(self, span: Any) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            with self._lock:
                self._spans.append(span)
                many = len(self._spans) >= _MANY_SPANS
            if many:
                self.force_flush()

    def shutdown(self) -> None:
        self.force_flush()

    def force_flush(self, timeout_millis: int = 0) -> bool:
        with self._lock:
            spans, self._spans = self._spans, []
        if spans:
            try:
                exporter = self._make(timeout=_FLUSH_S)
            except TypeError:  # it writes to a file, or the like
                exporter = self._make()
            try:
                exporter.export(spans)
            finally:
                exporter.shutdown()
        return True


def flush() -> None:
    """Send what a runner has, before its process may be gone; for a second at most, whatever its SDK does."""
    if not has_provider():
        return
    from opentelemetry import trace

    send = getattr(trace.get_tracer_provider(), "force_flush", None)
    if send is not None:
        sending = threading.Thread(target=_send, args=(send,), name="backburner-spans", daemon=True)
        sending.start()
        sending.join(_FLUSH_S)


def _send(send: Any) -> None:
    try:
        send(int(_FLUSH_S * 1000))
    except Exception as error:
        log.warning("Spans could not be sent: %s", error)
