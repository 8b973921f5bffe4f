"""Keeping tasks handed out to a queue outside, and noticing what became of them (docs/decisions/0032)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from itertools import groupby

from ... import json_text
from ...errors import EngineError
from ...hand_out import HandOut
from ...lifecycle import TERMINAL, State
from ...log_lines import about
from ...reports import Failed, Logged
from ...store import Store
from ...task import LogLine, Task, TaskError
from .queue import OutsideQueue, PartlyTaken, Sighting

log = logging.getLogger("backburner.engine")

#: So many are handed out at once.
_AT_ONCE = 200
#: When what a queue did not take is given to it again.
_AGAIN_MS = 2000
#: A job that has not begun after so long is looked at; and then one of which nothing is known is sent again.
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

    def hand_out(self, task_ids: Sequence[str] | None = None, but_not: Collection[str] = ()) -> int:
        """Give the queue what is ready and not there, or only these; how many it were. Raises StoreError."""
        begun = self._store.begin_hand_out(
            self._outside.name, self._queues, task_ids=task_ids, but_not=but_not, limit=_AT_ONCE
        )
        self.send(begun)
        return len(begun)

    def send(self, begun: Sequence[Task]) -> None:
        """Give the queue tasks that count as handed out already. Raises StoreError."""
        for _, group in groupby(sorted(begun, key=lambda task: task.queue), key=lambda task: task.queue):
            tasks = list(group)
            try:
                jobs = self._outside.hand_out(tasks)
            except EngineError as error:
                jobs = error.jobs if isinstance(error, PartlyTaken) else {}
                self._keep([task.task_id for task in tasks if task.task_id not in jobs], error)
                tasks = [task for task in tasks if task.task_id in jobs]
            # Of those without a name nothing is to be written, unless they said that they wait.
            written = {task.task_id: jobs.get(task.task_id, "") for task in tasks}
            told = {task.task_id for task in tasks if task.waits_for is not None}
            if any(written.values()) or told:
                self._store.handed_out(written)

    def round(self) -> None:
        """Hand out all that is to be, and look after what is out. Raises EngineError and StoreError."""
        out = self._store.hand_outs(self._outside.name)
        undecided = {each.task_id for each in out if each.came_back and each.job}
        try:
            self._part_from([each for each in out if each.state in TERMINAL])
            undecided = self._look_at([each for each in out if each.waits or each.task_id in undecided])
        finally:
            while self.hand_out(but_not=undecided) == _AT_ONCE:
                pass

    def close(self) -> None:
        self._outside.close()

    def _keep(self, refused: Sequence[str], error: EngineError) -> None:
        """These were not taken: they wait, say why, and are tried again soon."""
        reasons = error.reasons if isinstance(error, PartlyTaken) else {}
        alike: dict[str, list[str]] = {}
        for task_id in refused:
            alike.setdefault(reasons.get(task_id, str(error)), []).append(task_id)
        for reason, task_ids in alike.items():
            log.warning("%d tasks wait: %s", len(task_ids), reason)
            self._store.not_handed_out(task_ids, reason, _AGAIN_MS)

    def _part_from(self, over: Sequence[HandOut]) -> None:
        """Their tasks are over. Who succeeded needed its job; another one may still be there."""
        if left := [each for each in over if each.state is not State.SUCCEEDED]:
            self._outside.withdraw(left)
        if over:
            self._store.take_back([each.task_id for each in over])

    def _look_at(self, waiting: Sequence[HandOut]) -> set[str]:
        """See what became of their jobs. Those that are not to be handed out again yet."""
        now = self._store.now_ms()
        due = [each for each in waiting if each.came_back or now - each.handed_at >= _LOOK_AFTER_MS]
        sightings = self._outside.look(waiting) if due else {}
        seen = [(each, sightings.get(each.task_id, _UNKNOWN)) for each in due]
        for each, sighting in seen:
            self._settle(each, sighting, now)
        return {each.task_id for each, sighting in seen if sighting.state == "ending"}

    def _settle(self, out: HandOut, seen: Sighting, now: int) -> None:
        if seen.state == "cancelled":
            self._store.cancel(out.task_id, reason=seen.reason)
        elif seen.state == "failed":
            self._fail(out, seen, TaskError(seen.code, seen.reason))
        elif out.came_back:
            pass  # it is over with that job, however it ended, and is handed out again
        elif seen.state == "ended" and out.ended + 1 >= _MOST_ENDED:
            message = (
                f"{_MOST_ENDED} jobs of {out.engine} ended and began nothing. The last said: {seen.reason}"
            )
            self._fail(out, seen, TaskError("job_ended", message))
        elif seen.state == "ended":
            words = "the job %s of %s began nothing: %s"
            log.warning(words, out.job, out.task_id, seen.reason, extra=about(out.task_id))
            self._store.take_back([out.task_id], ended=True)
        elif seen.state == "lost" or (seen.state == "unknown" and now - out.handed_at >= _SEND_AGAIN_MS):
            self._store.take_back([out.task_id])

    def _fail(self, out: HandOut, seen: Sighting, error: TaskError) -> None:
        """Say in the place of a worker that its job did not do."""
        lease = self._store.claim_task(out.task_id, f"{out.engine}:{out.job}", None)
        if lease is not None:
            lines = [json_text.storable(line) for line in seen.output.splitlines()]
            now = self._store.now_ms()
            said = (
                LogLine(lease.last_log_seq + n, now, "job", "info", line) for n, line in enumerate(lines, 1)
            )
            self._store.report(lease, Logged(tuple(said)), Failed(error))
