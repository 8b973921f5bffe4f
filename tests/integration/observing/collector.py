"""A collector of spans: it takes what OTLP exporters send over HTTP, from any process, and keeps it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.services import wait_until


@dataclass(frozen=True)
class Span:
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    ended_ns: int
    failed: bool
    tracestate: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    resource: dict[str, Any] = field(default_factory=dict)

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"


class Collector:
    """On a port of its own, as a context."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.spans += _spans(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def of(self, trace_id: str, *names: str) -> dict[str, Span]:
        """The spans of a trace by their names, once those are all there."""

        def found() -> dict[str, Span]:
            return {span.name: span for span in self.spans if span.trace_id == trace_id}

        assert wait_until(lambda: set(names) <= set(found()), within=40), (names, self.spans)
        return found()

    def named(self, name: str) -> Span:
        """The one span of that name, once it is there."""
        return self._one(lambda span: span.name == name)

    def both(self, name: str) -> list[Span]:
        """The two spans of that name, once they are there; the earlier first."""

        def found() -> list[Span]:
            return [span for span in self.spans if span.name == name]

        assert wait_until(lambda: len(found()) == 2, within=40), self.spans
        return sorted(found(), key=lambda span: span.began_ns)

    def under(self, parent_id: str, name: str) -> Span:
        """The one of that name, once it is there, that has this parent."""
        return self._one(lambda span: (span.parent_id, span.name) == (parent_id, name))

    def _one(self, is_meant: Callable[[Span], bool]) -> Span:
        assert wait_until(lambda: any(map(is_meant, self.spans)), within=40), self.spans
        (span,) = filter(is_meant, self.spans)
        return span

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _spans(request: Any) -> list[Span]:
    return [
        Span(
            span.name,
            span.kind,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            span.status.code == 2,
            span.trace_state,
            _values(span.attributes),
            _values(of_process.resource.attributes),
        )
        for of_process in request.resource_spans
        for scope in of_process.scope_spans
        for span in scope.spans
    ]


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
