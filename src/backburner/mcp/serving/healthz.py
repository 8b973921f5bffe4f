"""`/healthz`: whether tasks can be kept and done here, for whoever starts and stops servers."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ...app import Backburner
from ...errors import BackburnerError
from ...health import Trouble, troubles
from ...stores import store_is_there

#: So long a look counts, so that many who ask cost no more than one.
_FRESH_S = 1.0
#: So long somebody who asks waits for it.
_PATIENCE_S = 2.5
#: A supervisor that is just being started is none that is missing: it is looked for once more.
_LOOK_AGAIN_S = 1.2
_OF_SUPERVISOR = {Trouble.NOBODY_WORKS, Trouble.STOPPED, Trouble.SILENT}


class Health:
    """Answers 200 `ok`, or 503 with one line for each thing that is wrong; always within three seconds.

    It says nothing that a stranger may not know, for it wants no token. There is one look at a
    time, on a thread of its own: a store that hangs holds up neither the server nor the answer.
    """

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._look: Future[list[str]] | None = None
        self._begun_at = 0.0

    async def __call__(self, request: Request) -> Response:
        try:
            look = asyncio.wrap_future(self._current())
            found = await asyncio.wait_for(asyncio.shield(look), _PATIENCE_S)
        except TimeoutError:
            found = ["the store does not answer"]
        if not found:
            return PlainTextResponse("ok\n")
        return PlainTextResponse("".join(f"{line}\n" for line in found), status_code=503)

    def _current(self) -> Future[list[str]]:
        """The look that goes on, or was made a moment ago; else a new one."""
        old = self._look is None or (self._look.done() and time.monotonic() - self._begun_at > _FRESH_S)
        if self._look is None or old:
            self._look, self._begun_at = Future(), time.monotonic()
            threading.Thread(
                target=self._run, args=(self._look,), name="backburner-health", daemon=True
            ).start()
        return self._look

    def _run(self, look: Future[list[str]]) -> None:
        try:
            look.set_result([str(trouble) for trouble in self._found()])
        except (BackburnerError, OSError):
            look.set_result([str(Trouble.UNREADABLE)])
        except BaseException as error:
            look.set_exception(error)

    def _found(self) -> list[Trouble]:
        app = self._app
        if "store" not in vars(app) and not store_is_there(app.settings.store):
            return []  # nothing was ever kept here
        found = list(troubles(app.store, app.settings, app.data_dir))
        if _OF_SUPERVISOR.isdisjoint(found):
            return found
        time.sleep(_LOOK_AGAIN_S)
        return list(troubles(app.store, app.settings, app.data_dir))
