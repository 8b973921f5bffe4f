"""Run ONE leased attempt, in the runner: context, limits, the tool itself, and what became of it.

It knows no store: what the tool says goes through a Channel, and the outcome is returned.
"""

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from . import json_text, tools
from .context import Channel, TaskContext, deadline_of, scratch_folder
from .errors import BackburnerError, InvalidJson, ProtocolError, TaskCancelled, ToolFailed
from .mcp_result import MCPResult
from .retry import Retry
from .task import Answer, Caller, Resources, TaskError
from .tools import ToolSpec

_MB = 1024 * 1024
_PREVIEW_CHARS = 2_000
_LONGEST_MESSAGE, _LONGEST_DETAILS, _LONGEST_NAME = 10_000, 100_000, 200
_LARGEST_ERROR_DATA = 1_000_000


@dataclass(frozen=True)
class Assignment:
    """What a runner is told about the attempt that it is to run."""

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
    max_result_bytes: int
    max_checkpoint_bytes: int
    answers: Mapping[str, Answer] = field(default_factory=dict)
    caller: Caller | None = None
    cpus: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["resources"] = {name: getattr(self.resources, name) for name in Resources.__slots__}
        values["answers"] = {key: answer.to_dict() for key, answer in self.answers.items()}
        values["caller"] = None if self.caller is None else self.caller.to_dict()
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Assignment:
        answers, caller = values.get("answers") or {}, values.get("caller")
        return cls(
            **{
                **values,
                "resources": Resources(**values["resources"]),
                "tags": tuple(values["tags"]),
                "answers": {key: Answer.from_dict(answer) for key, answer in answers.items()},
                "caller": None if caller is None else Caller.from_dict(caller),
                "cpus": tuple(values["cpus"]),
            }
        )


class Execution:
    """Runs attempts one after another, in one process. `cancel` may be called from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: TaskContext | None = None
        self._cancel_flag = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: asyncio.Task[Any] | None = None
        self._cancelled: tuple[str, int] | None = None

    def run(self, spec: ToolSpec, assignment: Assignment, channel: Channel) -> dict[str, Any]:
        """Run the tool and give its outcome as a message: `kind`, `result_json` or `error`, and `metrics`."""
        context, folder = self._begin(assignment, channel), Path(assignment.folder)
        if assignment.attempt > 1:  # an attempt that was killed had no time to tidy up
            for left in set(folder.glob("scratch-*")) - {scratch_folder(folder, assignment.attempt)}:
                shutil.rmtree(left, ignore_errors=True)
        started, usage = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        try:
            with _limits(assignment.resources, assignment.cpus):
                value = self._call(spec, assignment.inputs, context)
                outcome = _returned(spec, value, context, assignment)
        except BaseException as error:
            outcome = _failed(error, context)
            if outcome["kind"] == "failed":
                outcome["retryable"] = _is_covered(spec.retry, error, outcome["error"])
        finally:
            with self._lock:
                self._context = None
        if "error" in outcome:
            outcome["error"] = spec.without_secrets(outcome["error"], assignment.inputs)
        outcome["metrics"] = _metrics(started, usage)
        shutil.rmtree(scratch_folder(folder, assignment.attempt), ignore_errors=True)
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
            max_checkpoint_bytes=assignment.max_checkpoint_bytes,
        )
        with self._lock:
            self._context, self._cancel_flag = context, cancel_flag
            if self._cancelled == (assignment.task_id, assignment.attempt):
                cancel_flag.set()
        return context

    def _call(self, spec: ToolSpec, inputs: dict[str, Any], context: TaskContext) -> Any:
        with only_in_this_process():
            value = spec.run(inputs, context)
        # A loop of its own for each: what a coroutine leaves behind must not go on in the next task.
        return asyncio.run(self._await(value)) if inspect.isawaitable(value) else value

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


# -- outcomes ------------------------------------------------------------------------------------


def _returned(spec: ToolSpec, value: Any, context: TaskContext, assignment: Assignment) -> dict[str, Any]:
    """The outcome of a tool that did not raise. One that returned an MCPResult says itself how it went."""
    if spec.result_kind == "value":
        said = MCPResult.of(value)
        if said is not None and said.success:
            value = said.to_dict()
    else:
        said = MCPResult.in_tool_result(value)
    if said is None or said.success:
        return _succeeded(value, context, assignment)
    data: dict[str, Any] = {"mcp_result": _plain(said.to_dict())}
    text = json_text.encode(data["mcp_result"], "The result")
    if len(text.encode()) > min(assignment.max_result_bytes, _LARGEST_ERROR_DATA):
        data["mcp_result"]["data"] = _kept_aside(text, context)
    elif spec.result_kind == "call_tool_result":
        data["result"] = {**value, "isError": True}
    message = said.error_text or f"{spec.name} says that it failed, and not why."
    return _error("tool_error", message, MCPResult.__name__, said.error_details, data)


def _succeeded(value: Any, context: TaskContext, assignment: Assignment) -> dict[str, Any]:
    try:
        text = json_text.encode(_plain(value), "The result")
    except (InvalidJson, TypeError, ValueError, RecursionError) as error:
        return _error("result_not_serialisable", str(error), exception=type(error).__name__)
    if len(text.encode()) <= assignment.max_result_bytes:
        return {"kind": "succeeded", "result_json": text}
    return {"kind": "succeeded", "result_json": json.dumps(_kept_aside(text, context))}


def _kept_aside(text: str, context: TaskContext) -> dict[str, Any]:
    """What stands for a result that is too large, which is kept as an artifact."""
    artifact = context.artifact(text.encode(), name="result.json", kind="result")
    return {
        "preview": text[:_PREVIEW_CHARS],
        "truncated": True,
        "size_bytes": artifact.size_bytes,
        "artifact_id": artifact.artifact_id,
    }


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

        return to_jsonable_python(value)
    return value


def _failed(error: BaseException, context: TaskContext) -> dict[str, Any]:
    cancelled = isinstance(error, TaskCancelled | asyncio.CancelledError | KeyboardInterrupt)
    if cancelled and context.cancelled:
        return {**_error("cancelled", "The task was cancelled."), "kind": "cancelled"}
    if (protocol_error := _as_protocol_error(error)) is not None:
        return _protocol_error(**protocol_error.details)
    if isinstance(error, ToolFailed):
        return _error("tool_error", str(error), data={"result": error.details["result"]})
    exception = type(error).__name__
    details_text = _traceback(error)
    if isinstance(error, MemoryError):
        return _error(
            "memory_exceeded", "The tool needed more memory than it may have.", exception, details_text
        )
    message = _message(error) or exception
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


def _protocol_error(error_code: int, message: str, data: Any) -> dict[str, Any]:
    """Without its data where that cannot be kept: the code and the message count."""
    told = {"code": error_code, "message": _shortened(message, _LONGEST_MESSAGE)}
    with suppress(TypeError, ValueError, RecursionError):
        outcome = _error("protocol_error", message, data={**told, "data": _plain(data)})
        if "data" in outcome["error"]:
            return outcome
    return _error("protocol_error", message, data={**told, "data": None})


def _is_covered(retry: Retry, error: BaseException, told: dict[str, Any]) -> bool:
    """Whether the tool's policy covers the exception. If a function of it raises, `told` says so, too."""
    try:
        with only_in_this_process():
            return retry.covers(error)
    except BaseException as raised:
        raised.__suppress_context__ = True  # the failure itself is told above it
        words = "Retry(on=…) could not say whether to try again, so it is not tried:"
        details = f"{told.get('details', '')}\n{words}\n{_traceback(raised)}"
        told["details"] = _shortened(details, _LONGEST_DETAILS)
        return False


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""  # an exception that cannot even say what it is


def _traceback(error: BaseException) -> str:
    """From the tool's own code on."""
    first = frame = error.__traceback__
    while frame is not None and frame.tb_next:
        if frame.tb_frame.f_code.co_filename in (__file__, tools.__file__):
            first = frame.tb_next
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, first))


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
    """Which CPUs a worker's task may use: as many as it asks for, each worker beginning with another."""
    if cpu is None:
        return ()
    available = sorted(os.sched_getaffinity(0))
    if math.ceil(cpu) >= len(available):
        return ()
    count = max(1, math.ceil(cpu))
    return tuple(available[(worker_number * count + i) % len(available)] for i in range(count))
