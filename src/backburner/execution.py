"""Run ONE leased attempt, in the runner: context, limits, the tool itself, and what became of it.

It knows no store: what the tool says goes through a Channel, and the outcome is returned.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import resource
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .context import Channel, TaskContext, deadline_of
from .errors import ProtocolError, ToolFailed
from .folders import work_folder
from .lifespan import Life, Lifespan
from .outcome import add_details, failed, returned, traceback_of
from .retry import Retry
from .task import Answer, Caller, Resources
from .tools import ToolSpec
from .tracing import AttemptSpan, Traced, begin, has_provider, inside

if TYPE_CHECKING:
    from .config import LimitSettings
    from .store import Lease

_MB = 1024 * 1024

#: How long a lifespan may take to end.
LIFE_ENDS_S = 5.0


@dataclass(frozen=True)
class Assignment:
    """What a runner is told about the attempt that it is to run, which may be its `last`.

    One that `is_traced` has a span already, which is its `traceparent`; else that is its caller's.
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
    max_result_bytes: int
    max_checkpoint_bytes: int
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
        limits: LimitSettings,
        *,
        timeout_at: int | None,
        resources: Resources,
        cpus: tuple[int, ...] = (),
        last: bool = False,
        span: AttemptSpan | None = None,
    ) -> Assignment:
        """For the attempt that was leased. Where its supervisor has a `span` for it, it is in that."""
        task = lease.task
        return cls(
            task_id=task.task_id,
            attempt=task.attempt,
            owner=task.owner,
            tool_name=task.tool_name,
            inputs=task.inputs or {},
            checkpoint=lease.checkpoint,
            timeout_at=timeout_at,
            tags=task.tags,
            meta=task.meta,
            resources=resources,
            folder=str(work_folder(tasks_folder, task.task_id, task.attempt)),
            max_result_bytes=limits.max_result_bytes,
            max_checkpoint_bytes=limits.max_checkpoint_bytes,
            answers=task.answers,
            caller=task.caller,
            cpus=cpus,
            last=last,
            queue=task.queue,
            submitted_at=task.submitted_at,
            traceparent=task.traceparent if span is None else span.traceparent,
            tracestate=task.tracestate if span is None else span.tracestate,
            is_traced=span is not None,
        )

    @property
    def traced(self) -> Traced:
        return Traced(
            *(self.task_id, self.attempt, self.tool_name, self.queue, self.submitted_at),
            *(self.traceparent, self.tracestate),
        )

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
                outcome = returned(spec, value, context, assignment.max_result_bytes)
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
            max_checkpoint_bytes=assignment.max_checkpoint_bytes,
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
    """Whether the tool's policy covers the exception. If a function of it raises, `told` says so, too."""
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
    """Which CPUs a worker's task may use: as many as it asks for, each worker beginning with another."""
    if cpu is None:
        return ()
    available = sorted(os.sched_getaffinity(0))
    if math.ceil(cpu) >= len(available):
        return ()
    count = max(1, math.ceil(cpu))
    return tuple(available[(worker_number * count + i) % len(available)] for i in range(count))
