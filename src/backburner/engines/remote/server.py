"""Server of the worker API: store operations, each about the one task of the worker's token."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ...core.files import make_private, open_outgoing, outgoing_file, tasks_folder, work_folder
from ...core.lifecycle import LEASED, TERMINAL
from ...core.reports import Registered
from ...core.task import Artifact
from ...errors import BackburnerError, InvalidRequest, StoreError, TaskNotFound
from ...store.protocol import Lease, LeaseView
from . import PATH, TaskToken, TaskTokens, parse_answers, parse_changes, parse_file, parse_workers

if TYPE_CHECKING:
    from ...app import Backburner

#: The largest request: a checkpoint, or many log lines.
_MAX_BYTES = 64 << 20


class _Refused(Exception):
    """The request is not allowed."""


class _Ended(Exception):
    """The task of the token has ended, in this state."""


def routes(app: Backburner) -> list[BaseRoute]:
    """Return the routes of the worker API. They check their own tokens."""
    api = _WorkerApi(app)
    return [
        Route(f"{PATH}/files/{{artifact_id}}", endpoint=api.put_file, methods=["PUT"]),
        Route(f"{PATH}/{{operation}}", endpoint=api.post, methods=["POST"]),
    ]


class _WorkerApi:
    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._tasks = tasks_folder(app.data_dir)
        self._operations: Mapping[str, Callable[[TaskToken, Any], Any]] = {
            "begin": self._begin,
            "claim": self._claim,
            "report": self._report,
            "heartbeat": self._heartbeat,
            "leave": self._leave,
            "head": self._head,
            "input_requests": self._input_requests,
            "answer": self._answer,
        }

    async def post(self, request: Request) -> Response:
        name = request.path_params["operation"]
        operation = self._operations.get(name)

        async def respond(token: TaskToken) -> Any:
            if operation is None:
                raise _Refused("there is no such operation")
            if name != "leave":  # which is harmless, and tells nothing
                await self._app.service.aio.run(self._check_unfinished, token)
            body = json.loads(await _body(request))
            return await self._app.service.aio.run(operation, token, body)

        return await self._response(request, respond)

    async def _response(self, request: Request, respond: Callable[[TaskToken], Awaitable[Any]]) -> Response:
        try:
            token = self._token(request)
            if token is None:
                raise _Refused("the token is invalid or has expired")
            return JSONResponse(await respond(token))
        except (_Refused, TaskNotFound) as error:
            return JSONResponse({"error": "not_allowed", "message": str(error)}, status_code=403)
        except _Ended as error:
            return JSONResponse({"error": "task_ended", "state": str(error)}, status_code=410)
        except StoreError as error:
            return JSONResponse({"error": error.code, "message": str(error)}, status_code=503)
        except (BackburnerError, ValueError, KeyError, TypeError, RecursionError) as error:
            code = getattr(error, "code", "invalid_request")
            return JSONResponse({"error": code, "message": str(error)}, status_code=400)

    def _token(self, request: Request) -> TaskToken | None:
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        return TaskTokens(self._app.store.secret()).read(text) if kind.casefold() == "bearer" else None

    def _check_unfinished(self, token: TaskToken) -> None:
        """Raise _Ended when the task has ended: the token is void then."""
        head = self._app.store.head(token.task_id)
        if head.state in TERMINAL:
            raise _Ended(head.state)

    def _lease(self, token: TaskToken, holder: Any) -> Lease | None:
        """Return the lease that a worker names, if it still has it."""
        worker, attempt = _worker_id(token, holder["worker"]), int(holder["attempt"])
        task = self._app.store.get(token.task_id)
        is_held = task.state in LEASED and (task.worker_id, task.attempt) == (worker, attempt)
        return Lease(task, worker) if is_held else None

    # -- operations

    def _begin(self, token: TaskToken, body: Any) -> Any:
        task = self._app.store.get(token.task_id)
        return {"task": to_builtins(task), "supervisor_id": token.supervisor_id}

    def _claim(self, token: TaskToken, body: Any) -> Any:
        limits = self._app.settings.limits.of_running
        lease = self._app.store.claim_task(token.task_id, _worker_id(token, body["worker"]), limits)
        if lease is None:
            self._app.store.take_back([token.task_id])
        return to_builtins(lease)

    def _report(self, token: TaskToken, body: Any) -> Any:
        lease = self._lease(token, body)
        if lease is None:
            return {"lost": True}
        changes = parse_changes(body["changes"], lease)
        made = [change.artifact for change in changes if isinstance(change, Registered)]
        for artifact in made:
            self._store_file(artifact)
        lost = self._app.store.report_all([(lease, changes)])
        for artifact in made:
            self._received(artifact).unlink(missing_ok=True)
        return {"lost": bool(lost)}

    def _heartbeat(self, token: TaskToken, body: Any) -> Any:
        workers = parse_workers(body["workers"])
        for each in workers:
            _worker_id(token, each.worker_id)
            own_task = each.current_task_id in (None, token.task_id)
            if each.supervisor_id != token.supervisor_id or not own_task:
                raise InvalidRequest(reason="the token does not allow to report on other workers")
        named = [self._lease(token, each) for each in body["leases"]]
        views = iter(self._app.store.heartbeat([lease for lease in named if lease is not None], workers))
        state = self._app.store.head(token.task_id).state
        seen = [LeaseView(False, state) if lease is None else next(views) for lease in named]
        return to_builtins(seen)

    def _leave(self, token: TaskToken, body: Any) -> Any:
        self._app.store.remove_workers(token.supervisor_id)

    def _head(self, token: TaskToken, body: Any) -> Any:
        return to_builtins(self._app.store.head(token.task_id))

    def _input_requests(self, token: TaskToken, body: Any) -> Any:
        return to_builtins(self._app.store.input_requests(token.task_id))

    def _answer(self, token: TaskToken, body: Any) -> Any:
        if self._lease(token, body) is None:
            raise InvalidRequest(reason="the worker does not hold the task that it answers for")
        answers = parse_answers(body["answers"])
        return to_builtins(self._app.store.answer(token.task_id, answers))

    # -- files

    async def put_file(self, request: Request) -> Response:
        """Receive a file of a running attempt: whole and with the right hash, or not at all."""

        async def receive(token: TaskToken) -> Any:
            await self._app.service.aio.run(self._check_unfinished, token)
            lease = await self._app.service.aio.run(self._lease, token, request.query_params)
            if lease is None:
                raise InvalidRequest(reason="the worker does not hold the task of the file")
            artifact = parse_file(lease, request.path_params["artifact_id"], request.query_params)
            if not await self._app.service.aio.run(self._is_registered, artifact):
                await _receive(request, artifact, self._received(artifact))
            return {"sha256": artifact.sha256}

        try:
            return await self._response(request, receive)
        except OSError as error:
            return JSONResponse({"error": "store_full", "message": str(error)}, status_code=503)

    def _received(self, artifact: Artifact) -> Path:
        """Return where a received file stays until it is reported."""
        folder = work_folder(self._tasks, artifact.task_id, artifact.attempt)
        return outgoing_file(folder, artifact.artifact_id)

    def _is_registered(self, artifact: Artifact) -> bool:
        """Return whether this file is stored. Raises InvalidRequest when another one has its id."""
        for stored in self._app.store.artifacts(artifact.task_id):
            if stored.artifact_id == artifact.artifact_id:
                if (stored.size_bytes, stored.sha256) != (artifact.size_bytes, artifact.sha256):
                    raise InvalidRequest(reason=f"{artifact.artifact_id} is the id of another file")
                return True
        return False

    def _store_file(self, artifact: Artifact) -> None:
        """Store a received file, unless it is stored. Raises InvalidRequest where it was not received."""
        if artifact in self._app.store.artifacts(artifact.task_id):
            return
        try:
            with open_outgoing(self._tasks, artifact) as source:
                self._app.artifacts.keep(artifact, source)
        except FileNotFoundError:
            reason = f"the file of {artifact.artifact_id} was not sent before it was reported"
            raise InvalidRequest(reason=reason) from None


def _worker_id(token: TaskToken, worker_id: Any) -> str:
    """Raises InvalidRequest unless the worker is one of the token's supervisor."""
    own = f"wrk_{token.supervisor_id.removeprefix('sup_')}_"
    if not isinstance(worker_id, str) or not worker_id.startswith(own):
        raise InvalidRequest(reason="the token is for another worker")
    return worker_id


async def _body(request: Request) -> bytes:
    """Raises InvalidRequest for a body that is too large."""
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > _MAX_BYTES:
            raise InvalidRequest(reason=f"the request has more than {_MAX_BYTES} bytes")
    return bytes(read)


async def _receive(request: Request, artifact: Artifact, path: Path) -> None:
    """Write the body to a file, under its name only when size and hash are right.

    Raises InvalidRequest when they differ, and OSError.
    """
    make_private(path.parent)
    part, digest, size = path.with_name(f".{secrets.token_hex(8)}"), hashlib.sha256(), 0
    try:
        with part.open("xb") as file:
            async for chunk in request.stream():
                digest.update(chunk)
                size += file.write(chunk)
                if size > artifact.size_bytes:
                    break
        if (size, digest.hexdigest()) != (artifact.size_bytes, artifact.sha256):
            raise InvalidRequest(reason="the file has another size or hash than announced")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
