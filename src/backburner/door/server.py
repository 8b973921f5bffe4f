"""The server's side of the door: a few verbs of the store, each about the one task of the worker's pass."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ..app import Backburner
from ..errors import BackburnerError, InvalidRequest, StoreError, TaskNotFound
from ..folders import make_private, open_outgoing, outgoing_file, tasks_folder, work_folder
from ..lifecycle import LEASED, TERMINAL
from ..reports import Registered
from ..store import Lease, LeaseView
from ..task import Artifact
from ..worker_pass import Pass, Passes
from . import wire

#: What a worker says at once: a checkpoint, or many lines of a log.
_LARGEST = 64 << 20

_NOT_GOOD = "the token is not good, or not any more"


class _Refused(Exception):
    """Why a worker is not let in."""


class _Ended(Exception):
    """The task of the pass has ended, in this state."""


def routes(app: Backburner) -> list[BaseRoute]:
    """For the server's HTTP app; nobody comes in without a pass, so they want no other token."""
    door = _Door(app)
    return [
        Route(f"{wire.PATH}/files/{{artifact_id}}", endpoint=door.take_file, methods=["PUT"]),
        Route(f"{wire.PATH}/{{verb}}", endpoint=door.answer, methods=["POST"]),
    ]


class _Door:
    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._tasks = tasks_folder(app.data_dir)
        self._verbs: Mapping[str, Callable[[Pass, Any], Any]] = {
            "begin": self._begin,
            "claim": self._claim,
            "report": self._report,
            "heartbeat": self._heartbeat,
            "leave": self._leave,
            "head": self._head,
            "input_requests": self._input_requests,
            "answer_for_nobody": self._answer_for_nobody,
        }

    async def answer(self, request: Request) -> Response:
        name = request.path_params["verb"]
        verb = self._verbs.get(name)

        async def answer(passed: Pass) -> Any:
            if verb is None:
                raise _Refused("there is no such verb")
            if name != "leave":  # which takes back what the worker said of itself, and tells nothing
                await self._app.service.aio.run(self._check_unfinished, passed)
            said = json.loads(await _body(request))
            return await self._app.service.aio.run(verb, passed, said)

        return await self._answered(request, answer)

    async def _answered(self, request: Request, answer: Callable[[Pass], Awaitable[Any]]) -> Response:
        """What a request with a good pass is answered; what is wrong with it is told by the status."""
        try:
            passed = self._pass(request)
            if passed is None:
                raise _Refused(_NOT_GOOD)
            return JSONResponse(await answer(passed))
        except (_Refused, TaskNotFound) as error:
            return JSONResponse({"error": "not_allowed", "message": str(error)}, status_code=403)
        except _Ended as error:
            return JSONResponse({"error": "task_ended", "state": str(error)}, status_code=410)
        except StoreError as error:
            return JSONResponse({"error": error.code, "message": str(error)}, status_code=503)
        except (BackburnerError, ValueError, KeyError, TypeError, RecursionError) as error:
            code = getattr(error, "code", "invalid_request")
            return JSONResponse({"error": code, "message": str(error)}, status_code=400)

    def _pass(self, request: Request) -> Pass | None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return Passes(self._app.store.secret()).read(token) if kind.casefold() == "bearer" else None

    def _check_unfinished(self, passed: Pass) -> None:
        """Raise _Ended when the task has ended: the pass is void then."""
        head = self._app.store.head(passed.task_id)
        if head.state in TERMINAL:
            raise _Ended(head.state)

    def _held(self, passed: Pass, said: Any) -> Lease | None:
        """The lease that a worker names, if the task is leased to it; it may have lost it."""
        worker, attempt = _worker(passed, said["worker"]), int(said["attempt"])
        task = self._app.store.get(passed.task_id)
        is_held = task.state in LEASED and (task.worker_id, task.attempt) == (worker, attempt)
        return Lease(task, worker) if is_held else None

    # -- the verbs: what the pass is for, and what was said

    def _begin(self, passed: Pass, said: Any) -> Any:
        task = self._app.store.get(passed.task_id)
        return {"task": wire.TASK.dump_python(task, mode="json"), "supervisor_id": passed.supervisor_id}

    def _claim(self, passed: Pass, said: Any) -> Any:
        limits = self._app.settings.limits.of_running
        lease = self._app.store.claim_task(passed.task_id, _worker(passed, said["worker"]), limits)
        if lease is None:
            self._app.store.take_back([passed.task_id])
        return wire.LEASE.dump_python(lease, mode="json")

    def _report(self, passed: Pass, said: Any) -> Any:
        lease = self._held(passed, said)
        if lease is None:
            return {"lost": True}
        changes = wire.changes_in(said["changes"], lease)
        made = [change.artifact for change in changes if isinstance(change, Registered)]
        for artifact in made:
            self._keep(artifact)
        lost = self._app.store.report_all([(lease, changes)])
        for artifact in made:
            self._outgoing(artifact).unlink(missing_ok=True)
        return {"lost": bool(lost)}

    def _keep(self, artifact: Artifact) -> None:
        """Keep a file that was sent before, unless it is kept already. Raises InvalidRequest without one."""
        if artifact in self._app.store.artifacts(artifact.task_id):
            return
        try:
            with open_outgoing(self._tasks, artifact) as source:
                self._app.artifacts.keep(artifact, source)
        except FileNotFoundError:
            reason = f"the file of {artifact.artifact_id} was not sent before it was reported"
            raise InvalidRequest(reason=reason) from None

    def _heartbeat(self, passed: Pass, said: Any) -> Any:
        workers = wire.workers_in(said["workers"])
        for each in workers:
            _worker(passed, each.worker_id)
            if each.supervisor_id != passed.supervisor_id or each.current_task_id not in (
                None,
                passed.task_id,
            ):
                raise InvalidRequest(reason="a worker spoke of others than itself")
        named = [self._held(passed, each) for each in said["leases"]]
        beating = self._app.store.heartbeat([lease for lease in named if lease is not None], workers)
        views, state = iter(beating), self._app.store.head(passed.task_id).state
        seen = [LeaseView(False, state) if lease is None else next(views) for lease in named]
        return wire.VIEWS.dump_python(seen, mode="json")

    def _leave(self, passed: Pass, said: Any) -> Any:
        self._app.store.remove_workers(passed.supervisor_id)
        return None

    def _head(self, passed: Pass, said: Any) -> Any:
        return wire.HEAD.dump_python(self._app.store.head(passed.task_id), mode="json")

    def _input_requests(self, passed: Pass, said: Any) -> Any:
        return wire.REQUESTS.dump_python(self._app.store.input_requests(passed.task_id), mode="json")

    def _answer_for_nobody(self, passed: Pass, said: Any) -> Any:
        if self._held(passed, said) is None:
            raise InvalidRequest(reason="a worker answered for a task that it does not hold")
        answers = wire.answers_in(said["answers"])
        return wire.TASK.dump_python(self._app.store.answer(passed.task_id, answers), mode="json")

    # -- files

    async def take_file(self, request: Request) -> Response:
        """Take a file of an attempt under way: whole and as its hash says, or not at all."""

        async def take(passed: Pass) -> Any:
            await self._app.service.aio.run(self._check_unfinished, passed)
            lease = await self._app.service.aio.run(self._held, passed, request.query_params)
            if lease is None:
                raise InvalidRequest(reason="a worker sent a file of a task that it does not hold")
            artifact = wire.file_in(lease, request.path_params["artifact_id"], request.query_params)
            if not await self._app.service.aio.run(self._is_registered, artifact):
                await _receive(request, artifact, self._outgoing(artifact))
            return {"sha256": artifact.sha256}

        try:
            return await self._answered(request, take)
        except OSError as error:
            return JSONResponse({"error": "store_full", "message": str(error)}, status_code=503)

    def _outgoing(self, artifact: Artifact) -> Path:
        """Where a file is until it is reported; then it is kept as the settings say."""
        return outgoing_file(
            work_folder(self._tasks, artifact.task_id, artifact.attempt), artifact.artifact_id
        )

    def _is_registered(self, artifact: Artifact) -> bool:
        """Whether this file is kept already. Raises InvalidRequest when another one has its id."""
        for kept in self._app.store.artifacts(artifact.task_id):
            if kept.artifact_id == artifact.artifact_id:
                if (kept.size_bytes, kept.sha256) != (artifact.size_bytes, artifact.sha256):
                    raise InvalidRequest(
                        reason=f"{artifact.artifact_id} is kept already, and is another file"
                    )
                return True
        return False


def _worker(passed: Pass, worker_id: Any) -> str:
    """Raises InvalidRequest unless it is one of the supervisor that the pass is for."""
    own = f"wrk_{passed.supervisor_id.removeprefix('sup_')}_"
    if not isinstance(worker_id, str) or not worker_id.startswith(own):
        raise InvalidRequest(reason="a worker spoke for another")
    return worker_id


async def _body(request: Request) -> bytes:
    """Raises InvalidRequest for one that is too large."""
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > _LARGEST:
            raise InvalidRequest(reason=f"a worker said more than {_LARGEST} bytes at once")
    return bytes(read)


async def _receive(request: Request, artifact: Artifact, path: Path) -> None:
    """Write the body to a file, which gets its name when its size and hash are right.

    Raises InvalidRequest when they are not, and OSError.
    """
    make_private(path.parent)
    part, hashed, size = path.with_name(f".{secrets.token_hex(8)}"), hashlib.sha256(), 0
    try:
        with part.open("xb") as file:
            async for chunk in request.stream():
                hashed.update(chunk)
                size += file.write(chunk)
                if size > artifact.size_bytes:
                    break
        if (size, hashed.hexdigest()) != (artifact.size_bytes, artifact.sha256):
            raise InvalidRequest(reason="a worker sent another file than it said: size or hash differ")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
