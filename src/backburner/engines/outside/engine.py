"""The server's side of engines whose workers are elsewhere: each new task is handed out at once."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping

from ...config import Settings
from ...engine import Engine
from ...errors import BackburnerError
from ...store import Store
from ...submission import Submission
from ...task import NewTask, Task
from .rounds import Rounds

log = logging.getLogger("backburner.engine")

#: How long a server that ends waits for what it is just handing out; the supervisor does the rest.
_END_S = 2.0


class WithOutside:
    """Hands out the tasks of some queues, and leaves all else to the local engine.

    That also has a supervisor started, which looks after what is handed out when no server is left.
    """

    name = "outside"

    def __init__(
        self,
        local: Engine,
        settings: Settings,
        make_rounds: Callable[[], Mapping[str, Rounds]],
        store: Store,
    ) -> None:
        """`make_rounds` gives those of each engine; it may raise EngineError, and is called off the loop."""
        self._local = local
        self._settings = settings
        self._make_rounds = make_rounds
        self._store = store
        self._waiting: list[Task] = []
        self._begun: set[str] = set()  # those that count as handed out since they were submitted
        self._guard = threading.Lock()
        self._bell = threading.Event()
        self._over = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._local.start()

    def keep(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        if not self._is_outside(new.queue):
            return self._local.keep(new, queue_cap)
        # No worker of the supervisor waits for it, so a thread that waits for the disk anyhow writes itself.
        return self._kept(self._store.submit(self._handed_out(new), queue_cap=queue_cap))

    async def keep_soon(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        if not self._is_outside(new.queue):
            return await self._local.keep_soon(new, queue_cap)
        submission = await self._local.keep_soon(self._handed_out(new), queue_cap)
        return None if submission is None else self._kept(submission)

    def _handed_out(self, new: NewTask) -> NewTask:
        """It counts as handed out with the commit that keeps it: that saves another one."""
        return dataclasses.replace(new, handed_to=self._settings.engine_of(new.queue))

    def _kept(self, submission: Submission) -> Submission:
        if submission.created:
            self._begun.add(submission.task.task_id)
        return submission

    def _is_outside(self, queue: str) -> bool:
        return self._settings.engine_of(queue) in self._settings.outside_engines

    def submit(self, task: Task) -> None:
        if self._is_outside(task.queue):
            with self._guard:
                self._waiting.append(task)
                if self._thread is None and not self._over:
                    self._thread = threading.Thread(
                        target=self._hand_out, name="backburner-hand-out", daemon=True
                    )
                    self._thread.start()
            self._bell.set()
        self._local.submit(task)

    def stop(self) -> None:
        with self._guard:
            self._over, thread = True, self._thread
        self._bell.set()
        if thread is not None:
            thread.join(_END_S)
        self._local.stop()

    def _hand_out(self) -> None:
        """All that came meanwhile is handed out together. What goes wrong here, the supervisor does later."""
        rounds: Mapping[str, Rounds] = {}
        over = False
        while not over:
            self._bell.wait()
            self._bell.clear()
            with self._guard:
                waiting, self._waiting = self._waiting, []
                over = self._over
            try:
                rounds = rounds or self._make_rounds()
                for engine, each in rounds.items():
                    own = [task for task in waiting if self._settings.engine_of(task.queue) == engine]
                    each.send([task for task in own if task.task_id in self._begun])
                    if others := [task.task_id for task in own if task.task_id not in self._begun]:
                        each.hand_out(others)
            except (BackburnerError, OSError) as error:
                log.warning("%d tasks are kept, and handed out later: %s", len(waiting), error)
                with contextlib.suppress(BackburnerError, OSError):
                    self._store.take_back([task.task_id for task in waiting])
            self._begun.difference_update(task.task_id for task in waiting)
        for each in rounds.values():
            each.close()
