"""Waiting for news of tasks, for any number of waiters in one process, with one watch on the store."""

from __future__ import annotations

import os
import select
import threading
from collections import defaultdict
from collections.abc import Callable

from .store import ANYTHING, Store, Watch


class Changes:
    """Calls back when a topic is heard. A callback runs on the listening thread: it must only set a flag.

    The watch and its thread begin with the first listener, and cost nothing before.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._callbacks: dict[str, set[Callable[[], None]]] = defaultdict(set)
        self._watch: Watch | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of `topic`, until the function that comes back is called."""
        with self._lock:
            if self._watch is None and not self._closed:
                self._watch = self._store.watch()
                self._thread = threading.Thread(target=self._run, name="backburner-changes", daemon=True)
                self._thread.start()
            self._callbacks[topic].add(callback)

        def stop() -> None:
            with self._lock:
                self._callbacks[topic].discard(callback)
                if not self._callbacks[topic]:
                    del self._callbacks[topic]

        return stop

    def _run(self) -> None:
        watch = self._watch
        assert watch is not None, "the thread starts after the watch"
        poller = select.poll()
        poller.register(watch.fileno(), select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while not self._closed:
            poller.poll()
            heard = watch.drain()
            with self._lock:
                if ANYTHING in heard:
                    heard = set(self._callbacks)
                callbacks = [callback for topic in heard for callback in self._callbacks.get(topic, ())]
            for callback in callbacks:
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
