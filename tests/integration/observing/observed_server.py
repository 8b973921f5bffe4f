"""The server that is observed: tools that succeed, fail, take too long, lose their process, and trace.

    python observed_server.py http PORT

With PROVIDER=own it makes a tracer provider itself, as an app with one of its own does.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from backburner import Backburner, Retry, TaskContext
from tests.told_transport import serve_as_told

if os.environ.get("PROVIDER") == "own":
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    _provider = TracerProvider()
    _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(os.environ["COLLECTOR"])))
    trace.set_tracer_provider(_provider)

bb = Backburner("observed")


@bb.tool(answer="hold", queue="cpu_small")
def work(seconds: float = 0.0) -> str:
    """Take some time."""
    time.sleep(seconds)
    return "done"


@bb.tool(answer="hold", retries=0)
def fail(secret: str = "") -> str:
    """Fail."""
    raise ValueError(f"no good\n{secret}")


@bb.tool(answer="hold", timeout="0.3s", retries=0)
def linger() -> str:
    """Take too long."""
    time.sleep(60)
    return "not reached"


@bb.tool(answer="hold", retries=Retry(max_attempts=3, backoff_s=0.1))
def stumble(*, ctx: TaskContext) -> str:
    """Lose the process, the first time."""
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


@bb.tool(answer="hold", join="always")
def shared(gate: str) -> str:
    """The same work for all who call it at one time: it goes on until there is a file."""
    while not Path(gate).exists():
        time.sleep(0.05)
    return "done"


@bb.tool(answer="handle", join="never")
def write(chars: int) -> str:
    """Write much, of which the caller is told when it is over."""
    return "x" * chars


@bb.tool(answer="hold")
def traced(steps: int = 1) -> str:
    """Make spans of its own."""
    from opentelemetry import trace

    tracer = trace.get_tracer("the.tool")
    for step in range(steps):
        with tracer.start_as_current_span(f"step {step}"):
            pass
    return str(os.getpid())


if __name__ == "__main__":
    serve_as_told(bb)
