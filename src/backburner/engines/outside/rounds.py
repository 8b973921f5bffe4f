"""Keeping tasks handed out to a queue outside, and noticing what became of them (docs/decisions/0032)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby

from ... import json_text
from ...errors import EngineError
from ...hand_out import HandOut
from ...lifecycle import TERMINAL, State
from ...log_lines import about
from ...reports import Failed, Logged
from ...store import Store
from ...task import LogLine, TaskError
from .queue import OutsideQueue, PartlyTaken, Sighting

log = logging.getLogger("backburner.engine")

#: So many are handed out at once.
_AT_ONCE = 200
#: When what a queue did not take is given to it again.
_AGAIN_MS = 2000
#: A job that has not begun after so long is looked at; and one of which nothing is known is sent again then.
_LOOK_AFTER_MS, _SEND_AGAIN_MS = 5000, 60_000
#: So many jobs may end without beginning their task.
_MOST_ENDED = 3

_UNKNOWN = Sighting("unknown")


class Rounds:
    """Hands out the tasks of one engine's queues. Several processes may do so: each goes out once."""

    def __init__(self, store: Store, outside: OutsideQueue, queues: Sequence[str]) -> None:
        self._store = store
        self._outside = outside
        self._queues = queues

    def hand_out(self, task_ids: Sequence[str] | None = None) -> int:
        """Give the queue what is ready and not there, or only these; how many it were. Raises StoreError."""
        begun = self._store.begin_hand_out(
            self._outside.name, self._queues, task_ids=task_ids, limit=_AT_ONCE
        )
        for _, group in groupby(sorted(begun, key=lambda task: task.queue), key=lambda task: task.queue):
            tasks = list(group)
            try:
                jobs = self._outside.hand_out(tasks)
            except EngineError as error:
                jobs = error.jobs if isinstance(error, PartlyTaken) else {}
                refused = [task.task_id for task in tasks if task.task_id not in jobs]
                tasks = [task for task in tasks if task.task_id in jobs]
                log.warning("%d tasks wait: %s", len(refused), error)
                self._store.not_handed_out(refused, str(error), _AGAIN_MS)
            # Of those without a name nothing is to be written, unless they said that they wait.
            written = {task.task_id: jobs.get(task.task_id, "") for task in tasks}
            told = {task.task_id for task in tasks if task.waits_for is not None}
            if any(written.values()) or told:
                self._store.handed_out(written)
        return len(begun)

    def round(self) -> None:
        """Hand out all that is to be, and look after what is out. Raises EngineError and StoreError."""
        while self.hand_out() == _AT_ONCE:
            pass
        out = self._store.hand_outs(self._outside.name)
        self._part_from([each for each in out if each.state in TERMINAL])
        now = self._store.now_ms()
        self._look_at([each for each in out if each.waits and now - each.handed_at >= _LOOK_AFTER_MS], now)

    def close(self) -> None:
        self._outside.close()

    def _part_from(self, over: Sequence[HandOut]) -> None:
        """Their tasks are over. Who succeeded needed its job; another one may still be there."""
        if left := [each for each in over if each.state is not State.SUCCEEDED]:
            self._outside.withdraw(left)
        if over:
            self._store.take_back([each.task_id for each in over])

    def _look_at(self, waiting: Sequence[HandOut], now: int) -> None:
        if not waiting:
            return
        sightings = self._outside.look(waiting)
        for each in waiting:
            seen = sightings.get(each.task_id, _UNKNOWN)
            if seen.state == "ended" and each.ended + 1 >= _MOST_ENDED:
                self._fail(each, seen)
            elif seen.state == "ended":
                words = "the job %s of %s began nothing: %s"
                log.warning(words, each.job, each.task_id, seen.reason, extra=about(each.task_id))
                self._store.take_back([each.task_id], ended=True)
            elif seen.state == "unknown" and now - each.handed_at >= _SEND_AGAIN_MS:
                self._store.take_back([each.task_id])

    def _fail(self, out: HandOut, seen: Sighting) -> None:
        """No job of it ever begins: say so, in the place of a worker."""
        lease = self._store.claim_task(out.task_id, f"{out.engine}:{out.job}", None)
        if lease is not None:
            message = (
                f"{_MOST_ENDED} jobs of {out.engine} ended and began nothing. The last said: {seen.reason}"
            )
            lines = [json_text.storable(line) for line in seen.output.splitlines()]
            now = self._store.now_ms()
            said = (
                LogLine(lease.last_log_seq + n, now, "job", "info", line) for n, line in enumerate(lines, 1)
            )
            self._store.report(lease, Logged(tuple(said)), Failed(TaskError("job_ended", message)))
