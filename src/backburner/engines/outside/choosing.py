"""Which queues outside an app uses, and who looks after what they are given."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

from ...config import Settings
from ...store import Store
from ..local.background import Repeated
from .rounds import Rounds

#: How often a supervisor looks for what is to be handed out, and after what is out.
_ROUND_S = 1.0


def rounds_of(settings: Settings, store: Store) -> dict[str, Rounds]:
    """Those of every engine outside that the settings name. Raises EngineError."""
    return {engine: _rounds(engine, settings, store) for engine in settings.outside_engines}


def room_of(engine: str) -> Any:
    """The package of an engine outside: it has `make_queue(settings, queues, secret)`.

    Where somebody must start its workers it has `work(settings, data_dir, target)`, too: that becomes one, by
    the queue's own command, with as many processes as `settings.queues` has workers. Both raise EngineError.
    """
    return import_module(f"..{engine.replace('-', '_')}", __package__)


def _rounds(engine: str, settings: Settings, store: Store) -> Rounds:
    queues = settings.queues_of(engine)
    return Rounds(store, room_of(engine).make_queue(settings, queues, store.secret), queues)


class KeptRounds:
    """The rounds of a supervisor. Of several on a store, the one makes them who is its keeper."""

    def __init__(self, store: Store, settings: Settings, holder: str) -> None:
        self._store = store
        self._settings = settings
        self._holder = holder
        self._rounds: dict[str, Rounds] = {}

    def as_background(self) -> Iterator[Repeated]:
        """One thread for each engine: one that does not answer holds up no other."""
        for engine in self._settings.outside_engines:
            yield Repeated(f"hand-out-{engine}", partial(self._round, engine), pause_s=_ROUND_S)

    def _round(self, engine: str) -> None:
        """Raises EngineError and StoreError; it is made again."""
        if engine not in self._rounds:
            self._rounds[engine] = _rounds(engine, self._settings, self._store)
        lease_s = 3 * self._settings.supervisor.keeper_interval_s
        if self._store.keep(self._holder, lease_s=lease_s):
            self._rounds[engine].round()
