"""Waiting for news of tasks, for any number of waiters in one process, with one watch on the store."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections import defaultdict
from collections.abc import Callable

from ..core.task import TaskHead
from ..errors import BackburnerError
from ..store.protocol import ANYTHING, Store, Watch

log = logging.getLogger("backburner.changes")

#: How often the store is asked what has changed, in case the news of it did not come.
_LOOK_S = 1.0
#: How long a watch outlives its last listener: on a store of this host a new one costs next to nothing.
_LINGER_S, _LINGER_HERE_S = 60.0, 0.5
_TASK = "task:"
#: That a second is over: nothing was heard, but who listens for anything looks for himself.
_EVERYTHING = ""


class Changes:
    """Calls back on changes of a topic. A callback runs on the watching thread, so it must only set a flag.

    The watch and its thread start with the first listener, and the watch ends a while after the last one.
    Notifications can get lost, so one read each second checks the tasks that have listeners
    (`task:<task_id>`).
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._callbacks: dict[str, set[Callable[[], None]]] = defaultdict(set)
        self._watch: Watch | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._seen: dict[str, TaskHead | None] = {}
        self._linger_s = _LINGER_S if store.shared else _LINGER_HERE_S
        self._unheard_since: float | None = None

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of `topic`, until the function that comes back is called.

        Who listens for ANYTHING is called after every change, and each second in any case.
        """
        with self._lock:
            if self._watch is None and not self._closed:
                self._watch = self._new_watch()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="backburner-changes", daemon=True)
                self._thread.start()
            is_first = not self._callbacks
            self._callbacks[topic].add(callback)
            if is_first and not self._closed:
                os.eventfd_write(self._wake, 1)

        def stop() -> None:
            with self._lock:
                self._callbacks[topic].discard(callback)
                if not self._callbacks[topic]:
                    del self._callbacks[topic]

        return stop

    def _new_watch(self) -> Watch | None:
        try:
            return self._store.watch()
        except (BackburnerError, OSError) as error:
            log.warning("There is no news of tasks, so they are looked at each second: %s", error)
            return None

    def _run(self) -> None:
        next_look = 0.0
        while not self._closed:
            if self._callbacks:
                self._call(self._hear(max(0.0, next_look - time.monotonic())))
            else:
                self._call(self._hear(None if self._watch is None else self._linger_s))
                self._end_watch_for_nobody()
                next_look = time.monotonic() + _LOOK_S
            if self._callbacks and time.monotonic() >= next_look:
                self._call(self._look())
                next_look = time.monotonic() + _LOOK_S

    def _end_watch_for_nobody(self) -> None:
        with self._lock:
            if self._callbacks:
                self._unheard_since = None
                return
            now = time.monotonic()
            self._unheard_since = self._unheard_since or now
            if self._watch is not None and now - self._unheard_since >= self._linger_s:
                self._watch.close()
                self._watch = self._unheard_since = None

    def _hear(self, patience_s: float | None) -> set[str]:
        """Wait for news, or until there is a first listener; not longer than told."""
        watch = self._watch
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        if watch is not None:
            poller.register(watch.fileno(), select.POLLIN)
        poller.poll(None if patience_s is None else patience_s * 1000)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        return set() if watch is None else watch.drain()

    def _look(self) -> set[str]:
        """The tasks that are not as they were at the last look; and see to it that news comes again."""
        with self._lock:
            if self._watch is None:
                self._watch = self._new_watch()
            else:
                self._watch.mend()
            listened_for = [topic.removeprefix(_TASK) for topic in self._callbacks if topic.startswith(_TASK)]
        try:
            heads = self._store.heads(listened_for)
        except (BackburnerError, OSError) as error:
            log.debug("The tasks cannot be looked at now: %s", error)
            return set()
        before, self._seen = self._seen, {task_id: heads.get(task_id) for task_id in listened_for}
        # One that was not looked at before may have changed since its listener last saw it.
        changed = {_TASK + one for one, now in self._seen.items() if one not in before or before[one] != now}
        return changed | {_EVERYTHING}

    def _call(self, heard: set[str]) -> None:
        with self._lock:
            if ANYTHING in heard:
                heard = set(self._callbacks)
            elif heard:
                heard = {topic for topic in heard if topic != _EVERYTHING} | {ANYTHING}
            callbacks = [callback for topic in heard for callback in self._callbacks.get(topic, ())]
        for callback in callbacks:
            with contextlib.suppress(RuntimeError):  # the event loop that it would wake has ended meanwhile
                callback()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        os.eventfd_write(self._wake, 1)
        if self._thread is not None:
            self._thread.join()
        if self._watch is not None:
            self._watch.close()
        os.close(self._wake)
