"""Executes one leased attempt in the runner: context, limits, the tool, and its outcome."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import resource
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from ..core import json_text
from ..core.files import work_folder
from ..core.retry import Retry
from ..core.task import Answer, Caller, Resources, TaskError
from ..errors import BackburnerError, InvalidJson, ProtocolError, TaskCancelled, ToolFailed
from ..observability.tracing import AttemptSpan, Traced, begin, has_provider, inside
from . import spec
from .context import Channel, TaskContext, deadline_of
from .lifespan import Life, Lifespan
from .results import MCPResult, kept_in_parts, stand_in
from .spec import ToolSpec

if TYPE_CHECKING:
    from ..store.protocol import Lease


_LONGEST_MESSAGE, _LONGEST_DETAILS, _LONGEST_NAME = 10_000, 100_000, 200
_LARGEST_ERROR_DATA = 1_000_000
#: A larger result is stored in files: its images and so on, then all of it. A store's row stays small.
MAX_RESULT_BYTES = 262_144
#: What calls a tool: its frames are not the tool's.
_OURS = (str(Path(__file__).with_name("execution.py")), spec.__file__)


def returned(spec: ToolSpec, value: Any, context: TaskContext) -> dict[str, Any]:
    """The outcome of a tool that did not raise. One that returned an MCPResult says itself how it went.

    What is larger than MAX_RESULT_BYTES is kept as an artifact.
    """
    if spec.result_kind == "value":
        said = MCPResult.of(value)
        if said is not None and said.success:
            value = said.to_dict()
    else:
        said = MCPResult.in_tool_result(value)
    if said is None or said.success:
        return _succeeded(spec, value, context)
    data: dict[str, Any] = {"mcp_result": _plain(said.to_dict())}
    text = json_text.encode(data["mcp_result"], "The result")
    if len(text.encode()) > MAX_RESULT_BYTES:
        data["mcp_result"]["data"] = stand_in(None, text, "value", **_kept(text, context))
    elif spec.result_kind == "call_tool_result":
        data["result"] = {**value, "isError": True}
    message = said.error_text or f"{spec.name} says that it failed, and not why."
    return _error("tool_error", message, MCPResult.__name__, said.error_details, data)


def _succeeded(spec: ToolSpec, value: Any, context: TaskContext) -> dict[str, Any]:
    try:
        value = _plain(value)
        text = json_text.encode(value, "The result")
    except (InvalidJson, TypeError, ValueError, RecursionError) as error:
        return _error("result_not_serialisable", str(error), exception=type(error).__name__)
    too_many = len(text.encode()) - MAX_RESULT_BYTES
    if too_many > 0 and spec.result_kind == "call_tool_result":
        value = kept_in_parts(value, too_many, partial(_keep, context))
        text = json_text.encode(value, "The result")
    if len(text.encode()) > MAX_RESULT_BYTES:
        text = json.dumps(stand_in(value, text, spec.result_kind, **_kept(text, context)))
    return {"kind": "succeeded", "result_json": text}


def _keep(context: TaskContext, data: bytes, name: str, kind: str) -> str:
    return context.artifact(data, name=name, kind=kind).artifact_id


def _kept(text: str, context: TaskContext) -> dict[str, Any]:
    """Store a result that is too large as an artifact, and return its size and id."""
    artifact = context.artifact(text.encode(), name="result.json", kind="result")
    return {"size_bytes": artifact.size_bytes, "artifact_id": artifact.artifact_id}


def _plain(value: Any) -> Any:
    """`value` as plain JSON data; models, dataclasses and the like are turned into it."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    try:
        json.dumps(value)
    except RecursionError:
        return value  # whoever encodes it says so
    except (TypeError, ValueError):
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(value, fallback=to_builtins)
    return value


def failed(error: BaseException, context: TaskContext, memory_mb: int | None = None) -> dict[str, Any]:
    """The outcome of a tool that raised, or was cancelled. `memory_mb` is its limit."""
    cancelled = isinstance(error, TaskCancelled | asyncio.CancelledError | KeyboardInterrupt)
    if cancelled and context.cancelled:
        return {**_error("cancelled", "The task was cancelled."), "kind": "cancelled"}
    if (protocol_error := _as_protocol_error(error)) is not None:
        return _protocol_error(protocol_error.details, _about(error.__cause__))
    if isinstance(error, ToolFailed):
        return _error(
            "tool_error", str(error), **_about(error.__cause__), data={"result": error.details["result"]}
        )
    exception = type(error).__name__
    details_text = traceback_of(error)
    if isinstance(error, MemoryError):
        limit = "there is" if memory_mb is None else f"its limit of {memory_mb} MB"
        return _error(
            "memory_exceeded", f"The tool needed more memory than {limit}.", exception, details_text
        )
    message = _message(error)
    if isinstance(error, KeyError) or " " not in message:  # `'missing'` alone tells nothing
        message = f"{exception}: {message}" if message else exception
    if isinstance(error, BackburnerError):
        exception = error.code
    if isinstance(error, SystemExit):
        message = f"The tool ended its process with exit code {error.code}."
    return _error("tool_error", message, exception, details_text)


def _as_protocol_error(error: BaseException) -> ProtocolError | None:
    """The JSON-RPC error that a tool raised: ours, or the MCP SDK's own, which is imported then."""
    if isinstance(error, ProtocolError):
        return error
    sdk = sys.modules.get("mcp.shared.exceptions")
    if sdk is not None and isinstance(error, sdk.MCPError):
        with suppress(AttributeError):  # of a subclass that does not call its base
            return ProtocolError(error.code, error.message, error.data)
    return None


def _about(raised: BaseException | None) -> dict[str, str]:
    """Describe the exception of an attached tool that its framework, or the SDK, wrapped in another."""
    if raised is None:
        return {}
    return {"exception": type(raised).__name__, "details": traceback_of(raised)}


def _protocol_error(details: dict[str, Any], about: dict[str, str]) -> dict[str, Any]:
    """Without its data where that cannot be kept: the code and the message count."""
    message = details["message"]
    told = {"code": details["error_code"], "message": _shortened(message, _LONGEST_MESSAGE)}
    with suppress(TypeError, ValueError, RecursionError):
        outcome = _error("protocol_error", message, **about, data={**told, "data": _plain(details["data"])})
        if "data" in outcome["error"]:
            return outcome
    return _error("protocol_error", message, **about, data={**told, "data": None})


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""  # an exception that cannot even say what it is


def traceback_of(error: BaseException) -> str:
    """From the tool's own code on."""
    first = frame = error.__traceback__
    while frame is not None and frame.tb_next:
        if frame.tb_frame.f_code.co_filename in _OURS:
            first = frame.tb_next
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, first))


def add_details(error: dict[str, Any], details: str) -> None:
    """Tell more of an error of an outcome."""
    error["details"] = _shortened(f"{error.get('details', '')}\n{details}", _LONGEST_DETAILS)


def _error(
    kind: str, message: str, exception: str = "", details: str = "", data: dict[str, Any] | None = None
) -> dict[str, Any]:
    try:
        if len(json_text.encode(data)) > _LARGEST_ERROR_DATA:
            data = None
    except InvalidJson:
        data = None
    message, details = _shortened(message, _LONGEST_MESSAGE), _shortened(details, _LONGEST_DETAILS)
    exception = json_text.storable(exception[:_LONGEST_NAME])
    return {"kind": "failed", "error": TaskError(kind, message, exception, details, data).to_dict()}


def _shortened(text: str, longest: int) -> str:
    """The beginning and the end of a text that is too long, as a store can keep them."""
    if len(text) > longest:
        text = f"{text[: longest // 2]}\n... ({len(text)} characters)\n{text[-longest // 2 :]}"
    return json_text.storable(text)


_MB = 1024 * 1024

#: How long a lifespan may take to end.
LIFE_ENDS_S = 5.0


#: Fields of an assignment that are those of its task.
_OF_TASK = (
    *("task_id", "attempt", "owner", "tool_name", "tags", "meta", "answers", "caller"),
    *("queue", "submitted_at", "traceparent", "tracestate"),
)


class Assignment(Struct, frozen=True, omit_defaults=True):
    """One attempt as its runner gets it; `last` ends the runner afterwards.

    If `is_traced`, `traceparent` is the attempt's own span; else it is the caller's.
    """

    task_id: str
    attempt: int
    owner: str
    tool_name: str
    inputs: dict[str, Any]
    checkpoint: Any
    timeout_at: int | None
    tags: tuple[str, ...]
    meta: Mapping[str, Any]
    resources: Resources
    folder: str
    answers: Mapping[str, Answer] = field(default_factory=dict)
    caller: Caller | None = None
    cpus: tuple[int, ...] = ()
    last: bool = False
    queue: str = ""
    submitted_at: int = 0
    traceparent: str | None = None
    tracestate: str | None = None
    is_traced: bool = False

    @classmethod
    def of(
        cls,
        lease: Lease,
        tasks_folder: Path,
        *,
        timeout_at: int | None,
        resources: Resources,
        cpus: tuple[int, ...] = (),
        last: bool = False,
        span: AttemptSpan | None = None,
    ) -> Assignment:
        """For the attempt that was leased. Where its supervisor has a `span` for it, it is in that."""
        task = lease.task
        traced = {} if span is None else {"traceparent": span.traceparent, "tracestate": span.tracestate}
        return cls(
            **{**{name: getattr(task, name) for name in _OF_TASK}, **traced},
            inputs=task.inputs or {},
            checkpoint=lease.checkpoint,
            timeout_at=timeout_at,
            resources=resources,
            folder=str(work_folder(tasks_folder, task.task_id, task.attempt)),
            cpus=cpus,
            last=last,
            is_traced=span is not None,
        )

    @property
    def traced(self) -> Traced:
        return Traced(
            *(self.task_id, self.attempt, self.tool_name, self.queue, self.submitted_at),
            *(self.traceparent, self.tracestate),
        )


class Execution:
    """Runs attempts one after another, in one process. `cancel` may be called from another thread.

    The first attempt at a tool of an attached server enters the server's lifespan, which stays open.
    """

    def __init__(
        self, lifespan: Lifespan | None = None, on_life: Callable[[], object] = lambda: None
    ) -> None:
        """`on_life` is called when the lifespan was entered, before the tool runs."""
        self._lifespan = lifespan
        self._on_life = on_life
        self._life: Life | None = None
        self._surroundings = copy_context()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._context: TaskContext | None = None
        self._cancel_flag = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: asyncio.Task[Any] | None = None
        self._cancelled: tuple[str, int] | None = None

    def run(self, spec: ToolSpec, assignment: Assignment, channel: Channel) -> dict[str, Any]:
        """Run the tool and give its outcome as a message: `kind`, `result_json` or `error`, and `metrics`."""
        if not has_provider():
            return self._run(spec, assignment, channel)
        span = None if assignment.is_traced else begin(assignment.traced)
        if span is not None:
            assignment = replace(assignment, traceparent=span.traceparent, tracestate=span.tracestate)
        with inside(assignment.traceparent, assignment.tracestate):
            outcome = self._run(spec, assignment, channel)
        if span is not None:
            span.end(outcome["kind"], outcome["error"]["type"] if "error" in outcome else None)
        return outcome

    def _run(self, spec: ToolSpec, assignment: Assignment, channel: Channel) -> dict[str, Any]:
        context, folder = self._begin(assignment, channel), Path(assignment.folder)
        if assignment.attempt > 1:  # an attempt that was killed had no time to tidy up
            for left in set(folder.parent.glob("work-*")) - {folder}:
                shutil.rmtree(left, ignore_errors=True)
        started, usage = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        try:
            self._live(spec)
            with _limits(assignment.resources, assignment.cpus):
                value = self._call(spec, assignment.inputs, context)
                outcome = returned(spec, value, context)
        except BaseException as error:
            outcome = failed(error, context, assignment.resources.memory_mb)
            if outcome["kind"] == "failed":
                outcome["retryable"] = _is_covered(spec.retry, error, outcome["error"])
        finally:
            with self._lock:
                self._context = None
        if "error" in outcome:
            outcome["error"] = spec.without_secrets(outcome["error"], assignment.inputs)
        outcome["metrics"] = _metrics(started, usage)
        shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def _begin(self, assignment: Assignment, channel: Channel) -> TaskContext:
        """The context of an attempt that can be cancelled from now on, and may have been already."""
        cancel_flag = threading.Event()
        context = TaskContext(
            task_id=assignment.task_id,
            attempt=assignment.attempt,
            owner=assignment.owner,
            tool_name=assignment.tool_name,
            checkpoint_data=assignment.checkpoint,
            deadline=deadline_of(assignment.timeout_at),
            tags=assignment.tags,
            meta=assignment.meta,
            answers=assignment.answers,
            caller=assignment.caller,
            channel=channel,
            folder=Path(assignment.folder),
            cancel_flag=cancel_flag,
            traceparent=assignment.traceparent,
            tracestate=assignment.tracestate,
        )
        with self._lock:
            self._context, self._cancel_flag = context, cancel_flag
            if self._cancelled == (assignment.task_id, assignment.attempt):
                cancel_flag.set()
        return context

    def _call(self, spec: ToolSpec, inputs: dict[str, Any], context: TaskContext) -> Any:
        with only_in_this_process():
            value = spec.run(inputs, context)
        if not inspect.isawaitable(value):
            return value
        if self._life is not None and spec.of_server:
            return self._life.run(self._await(value))
        # A loop of its own for each: what a coroutine leaves behind must not go on in the next task.
        return asyncio.run(self._await(value))

    def _live(self, spec: ToolSpec) -> None:
        """Enter the lifespan if the tool lives in it. Raises what it raises."""
        if spec.of_server and self._lifespan is not None and (self._life is None or self._life.is_over):
            self._life = None
            with only_in_this_process():
                self._life = Life(self._lifespan, self._surroundings)
            self._on_life()

    def go_on_until_readable(self, file: Any) -> None:
        """Wait for the next attempt. Where a lifespan is open, what it has begun goes on meanwhile."""
        if self._life is not None and not self._life.is_over:
            self._life.go_on_until_readable(file)

    def end_life(self) -> None:
        """Leave the lifespan, if it was entered."""
        if self._life is not None:
            with only_in_this_process():
                self._life.end(LIFE_ENDS_S)
        self._life = None  # not before: another thread waits for its end
        self._ended.set()

    def wait_for_end(self) -> None:
        """Give a process that is between two attempts the time to end its life. From another thread."""
        with self._lock:
            ends = self._context is None and self._life is not None
        if ends:
            self._ended.wait(LIFE_ENDS_S)

    async def _await(self, value: Any) -> Any:
        with self._lock:
            self._loop, self._running = asyncio.get_running_loop(), asyncio.current_task()
            if self._context is not None and self._context.cancelled and self._running is not None:
                self._running.cancel()
        try:
            with only_in_this_process():
                return await value
        finally:
            with self._lock:
                self._loop = self._running = None

    def cancel(self, task_id: str, attempt: int) -> bool:
        """Raise the tool's cancel flag, and cancel it if it is a coroutine; False when it does not run now.

        A cancel may overtake the start of its task, so it is remembered.
        """
        with self._lock:
            self._cancelled = (task_id, attempt)
            context = self._context
            if context is None or (context.task_id, context.attempt) != (task_id, attempt):
                return False
            self._cancel_flag.set()
            if self._loop is not None and self._running is not None:
                self._loop.call_soon_threadsafe(self._running.cancel)
            return True


@contextmanager
def only_in_this_process() -> Iterator[None]:
    """A tool may fork: a child that comes back from the tool's code ends here, as a process ends.

    It has a copy of all that its parent has, and must not go on as its parent does.
    """
    process = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != process:
            _end_child(error)
        raise
    if os.getpid() != process:
        _end_child(None)


def _end_child(error: BaseException | None) -> NoReturn:
    code = 1
    try:
        if error is None:
            code = 0
        elif not isinstance(error, SystemExit):
            traceback.print_exception(error)
        elif error.code is None or isinstance(error.code, int):
            code = error.code or 0
        else:
            print(error.code, file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code & 0xFF)


def _is_covered(retry: Retry, error: BaseException, told: dict[str, Any]) -> bool:
    """Return whether the tool's policy covers the exception. Errors of policy functions go into `told`."""
    # Of an attached tool, also what it raised before its framework made a result of that.
    raised_by_tool = error.__cause__ if isinstance(error, ToolFailed | ProtocolError) else None
    try:
        with only_in_this_process():
            return any(retry.covers(each) for each in (error, raised_by_tool) if each is not None)
    except BaseException as raised:
        raised.__suppress_context__ = True  # the failure itself is told above it
        words = "Retry(on=…) could not say whether to try again, so it is not tried:"
        add_details(told, f"{words}\n{traceback_of(raised)}")
        return False


def _metrics(started: float, before: resource.struct_rusage) -> dict[str, Any]:
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "wall_s": round(time.perf_counter() - started, 6),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 6),
        "max_rss_mb": after.ru_maxrss // 1024,
    }


# -- limits --------------------------------------------------------------------------------------


@contextmanager
def _limits(resources: Resources, cpus: tuple[int, ...]) -> Iterator[None]:
    """Limit this process for one task. The supervisor watches what a process cannot limit by itself."""
    if resources.memory_mb is None and not cpus:
        yield
        return
    memory_before = resource.getrlimit(resource.RLIMIT_AS)
    cpus_before = os.sched_getaffinity(0)
    try:
        if resources.memory_mb is not None:
            allowed, most = _address_space() + int(resources.memory_mb * _MB), memory_before[1]
            if most == resource.RLIM_INFINITY or allowed < most:
                resource.setrlimit(resource.RLIMIT_AS, (allowed, most))
        if cpus:
            os.sched_setaffinity(0, cpus)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, memory_before)
        os.sched_setaffinity(0, cpus_before)


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def choose_cpus(cpu: float | None, worker_number: int) -> tuple[int, ...]:
    """Return the CPUs for a worker's task, beginning at another one for each worker."""
    if cpu is None:
        return ()
    available = sorted(os.sched_getaffinity(0))
    if math.ceil(cpu) >= len(available):
        return ()
    count = max(1, math.ceil(cpu))
    return tuple(available[(worker_number * count + i) % len(available)] for i in range(count))
