"""The server's side of engines whose workers are elsewhere: each new task is handed out at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from ...config import Settings
from ...engine import Engine
from ...errors import BackburnerError
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
        self, local: Engine, settings: Settings, make_rounds: Callable[[], Mapping[str, Rounds]]
    ) -> None:
        """`make_rounds` gives those of each engine; it may raise EngineError, and is called off the loop."""
        self._local = local
        self._settings = settings
        self._make_rounds = make_rounds
        self._waiting: dict[str, str] = {}  # the queue of each task
        self._guard = threading.Lock()
        self._bell = threading.Event()
        self._over = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._local.start()

    def keep(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        return self._local.keep(new, queue_cap)

    async def keep_soon(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        return await self._local.keep_soon(new, queue_cap)

    def submit(self, task: Task) -> None:
        if self._settings.engine_of(task.queue) in self._settings.outside_engines:
            with self._guard:
                self._waiting[task.task_id] = task.queue
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
        while True:
            self._bell.wait()
            self._bell.clear()
            with self._guard:
                waiting, self._waiting = self._waiting, {}
                over = self._over
            try:
                rounds = rounds or self._make_rounds()
                for engine, each in rounds.items():
                    ids = [
                        task_id
                        for task_id, queue in waiting.items()
                        if self._settings.engine_of(queue) == engine
                    ]
                    if ids:
                        each.hand_out(ids)
            except (BackburnerError, OSError) as error:
                log.warning("%d tasks are kept, and handed out later: %s", len(waiting), error)
            if over:
                for each in rounds.values():
                    each.close()
                return
