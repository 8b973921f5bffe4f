"""Engine of a server whose tasks run elsewhere: dispatches each new task at once."""

from __future__ import annotations

import contextlib
import logging
import threading

from msgspec.structs import replace

from ...core.submission import Submission
from ...core.task import NewTask, Task
from ...errors import BackburnerError
from ...settings import Settings
from ...store.protocol import Store
from ..protocol import Engine
from .dispatcher import Dispatcher, make_dispatcher

log = logging.getLogger("backburner.engine")

#: How long a server that stops waits for a dispatch under way; the supervisor does the rest.
_STOP_S = 2.0


class ExternalEngine:
    """Dispatches the tasks of external queues, and leaves the others to the local engine.

    The local engine also starts the supervisor, which reconciles jobs when no server is left.
    """

    name = "outside"

    def __init__(self, local: Engine, settings: Settings, store: Store) -> None:
        self._local = local
        self._settings = settings
        self._store = store
        self._waiting: list[Task] = []
        self._recorded: set[str] = set()  # those whose dispatch is in the commit that stored them
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._local.start()

    def submit(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        if not self._is_external(new.queue):
            return self._local.submit(new, queue_cap)
        # No local worker waits for it, so this thread writes it itself.
        return self._stored(self._store.submit(self._as_dispatched(new), queue_cap=queue_cap))

    async def submit_async(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        if not self._is_external(new.queue):
            return await self._local.submit_async(new, queue_cap)
        submission = await self._local.submit_async(self._as_dispatched(new), queue_cap)
        return None if submission is None else self._stored(submission)

    def _as_dispatched(self, new: NewTask) -> NewTask:
        """Record the dispatch in the commit that stores the task, which saves another one."""
        return replace(new, handed_to=self._settings.engine_of(new.queue))

    def _stored(self, submission: Submission) -> Submission:
        if submission.created:
            self._recorded.add(submission.task.task_id)
        return submission

    def _is_external(self, queue: str) -> bool:
        return self._settings.engine_of(queue) in self._settings.outside_engines

    def notify(self, task: Task) -> None:
        if self._is_external(task.queue):
            with self._lock:
                self._waiting.append(task)
                if self._thread is None and not self._stopping:
                    name = "backburner-dispatch"
                    self._thread = threading.Thread(target=self._dispatch_all, name=name, daemon=True)
                    self._thread.start()
            self._wake.set()
        self._local.notify(task)

    def stop(self) -> None:
        with self._lock:
            self._stopping, thread = True, self._thread
        self._wake.set()
        if thread is not None:
            thread.join(_STOP_S)
        self._local.stop()

    def _dispatch_all(self) -> None:
        """Dispatch new tasks in batches. The supervisor repeats what fails here."""
        dispatchers: dict[str, Dispatcher] = {}
        stopping = False
        while not stopping:
            self._wake.wait()
            self._wake.clear()
            with self._lock:
                waiting, self._waiting = self._waiting, []
                stopping = self._stopping
            try:
                for engine in self._settings.outside_engines:
                    own = [task for task in waiting if self._settings.engine_of(task.queue) == engine]
                    if own:
                        if engine not in dispatchers:
                            dispatchers[engine] = make_dispatcher(engine, self._settings, self._store)
                        self._dispatch(dispatchers[engine], own)
            except (BackburnerError, OSError) as error:
                log.warning("%d tasks are stored, and dispatched later: %s", len(waiting), error)
                with contextlib.suppress(BackburnerError, OSError):
                    self._store.take_back([task.task_id for task in waiting])
            self._recorded.difference_update(task.task_id for task in waiting)
        for dispatcher in dispatchers.values():
            dispatcher.close()

    def _dispatch(self, dispatcher: Dispatcher, tasks: list[Task]) -> None:
        dispatcher.submit([task for task in tasks if task.task_id in self._recorded])
        if others := [task.task_id for task in tasks if task.task_id not in self._recorded]:
            dispatcher.dispatch(others)
