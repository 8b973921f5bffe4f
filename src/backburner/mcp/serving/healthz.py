"""`/healthz` and `/readyz`: whether tasks are kept and done here, and whether more can be taken."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ...app import Backburner
from ...errors import BackburnerError
from ...health import QueueUse, Trouble, queue_use, troubles
from ...stores import store_is_there
from .one_look import OneLook

#: So long somebody who asks waits for it.
_PATIENCE_S = 2.5
#: A supervisor that is just being started is none that is missing: it is looked for once more.
_LOOK_AGAIN_S = 1.2
_MAY_BE_STARTING = {Trouble.NOBODY_WORKS, Trouble.STOPPED, Trouble.SILENT}
_ALL_FULL = "every queue is full"


@dataclass(frozen=True, slots=True)
class _Found:
    """What one look saw. `all_full` is that no tool of the app could be called now."""

    troubles: tuple[Trouble, ...] = ()
    queues: QueueUse = QueueUse()
    all_full: bool = False

    def to_dict(self) -> dict[str, Any]:
        of_store = [trouble for trouble in self.troubles if not trouble.of_supervisor]
        of_supervisor = [trouble for trouble in self.troubles if trouble.of_supervisor]
        return {
            "store": of_store or "ok",
            "supervisor": of_supervisor or "ok",
            "queues": {
                "queued": self.queues.queued,
                "running": self.queues.running,
                "full": len(self.queues.full),
            },
        }


class Health:
    """Answers 200 `ok`, or 503 with one line for each thing that is wrong; always within three seconds.

    It says nothing that a stranger may not know, for it wants no token.
    """

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._look = OneLook(self._look_at_all, "backburner-health", _PATIENCE_S)

    async def healthz(self, request: Request) -> Response:
        """Are tasks kept and done here? However many wait: a full queue is busy, and not ill."""
        found = await self._find()
        return _answer(request, found, [*found.troubles])

    async def readyz(self, request: Request) -> Response:
        """Can a new call be taken, and will it be done?"""
        found = await self._find()
        return _answer(request, found, [*found.troubles, *([_ALL_FULL] if found.all_full else [])])

    async def _find(self) -> _Found:
        try:
            return await self._look.found()
        except TimeoutError:
            return _Found((Trouble.NO_ANSWER,))
        except (BackburnerError, OSError):
            return _Found((Trouble.UNREADABLE,))

    def _look_at_all(self) -> _Found:
        app = self._app
        if "store" not in vars(app) and not store_is_there(app.settings.store):
            return _Found()  # nothing was ever kept here
        found = tuple(troubles(app.store, app.settings, app.data_dir))
        if not _MAY_BE_STARTING.isdisjoint(found):
            time.sleep(_LOOK_AGAIN_S)
            found = tuple(troubles(app.store, app.settings, app.data_dir))
        if Trouble.UNREADABLE in found:
            return _Found(found)
        queues = queue_use(app.store, app.settings)
        wanted = {tool.queue_in(app.settings) for tool in app.tools} or {app.settings.default_queue}
        return _Found(found, queues, wanted <= queues.full)


def _answer(request: Request, found: _Found, wrong: list[str]) -> Response:
    code = 503 if wrong else 200
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse({"ok": not wrong, **found.to_dict()}, status_code=code)
    return PlainTextResponse("".join(f"{line}\n" for line in wrong) or "ok\n", status_code=code)
