"""The server's side of the door: a few verbs of the store, each about the one task of the worker's pass."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ..app import Backburner
from ..errors import BackburnerError, InvalidRequest, StoreError
from ..folders import tasks_folder
from ..reports import Registered
from ..store import Lease
from ..worker_pass import Pass, Passes
from . import wire

#: What a worker says at once: a checkpoint, or many lines of a log.
_LARGEST = 64 << 20

_NOT_GOOD = "the token is not good, or not any more"


def routes(app: Backburner) -> list[BaseRoute]:
    """For the server's HTTP app; nobody comes in without a pass, so they want no other token."""
    door = _Door(app)
    return [
        Route(f"{wire.PATH}/files/{{path:path}}", endpoint=door.take_file, methods=["PUT"]),
        Route(f"{wire.PATH}/{{verb}}", endpoint=door.answer, methods=["POST"]),
    ]


class _Door:
    def __init__(self, app: Backburner) -> None:
        self._app = app
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
        passed = self._pass(request)
        verb = self._verbs.get(request.path_params["verb"])
        if passed is None or verb is None:
            return _refused("there is no such verb" if passed else _NOT_GOOD)
        try:
            said = json.loads(await _body(request))
            answer = await self._app.service.aio.run(verb, passed, said)
        except StoreError as error:
            return JSONResponse({"error": error.code, "message": str(error)}, status_code=503)
        except (BackburnerError, ValueError, KeyError, TypeError) as error:
            code = getattr(error, "code", "invalid_request")
            return JSONResponse({"error": code, "message": str(error)}, status_code=400)
        return JSONResponse(answer)

    def _pass(self, request: Request) -> Pass | None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return Passes(self._app.store.secret()).read(token) if kind.casefold() == "bearer" else None

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
        changes = wire.changes_in(said["changes"])
        for change in changes:
            if isinstance(change, Registered):  # its file has been sent here
                if change.artifact.task_id != passed.task_id:
                    raise InvalidRequest(reason="a worker spoke of another task's file")
                self._app.artifacts.keep(change.artifact)
        lost = self._app.store.report_all([(self._lease(passed, said), changes)])
        return {"lost": bool(lost)}

    def _heartbeat(self, passed: Pass, said: Any) -> Any:
        workers = wire.WORKERS.validate_python(said["workers"])
        for each in workers:
            _worker(passed, each.worker_id)
            if each.supervisor_id != passed.supervisor_id or each.current_task_id not in (
                None,
                passed.task_id,
            ):
                raise InvalidRequest(reason="a worker spoke of others than itself")
        leases = [self._lease(passed, each) for each in said["leases"]]
        return wire.VIEWS.dump_python(self._app.store.heartbeat(leases, workers), mode="json")

    def _leave(self, passed: Pass, said: Any) -> Any:
        self._app.store.remove_workers(passed.supervisor_id)
        return None

    def _head(self, passed: Pass, said: Any) -> Any:
        return wire.HEAD.dump_python(self._app.store.head(passed.task_id), mode="json")

    def _input_requests(self, passed: Pass, said: Any) -> Any:
        return wire.REQUESTS.dump_python(self._app.store.input_requests(passed.task_id), mode="json")

    def _answer_for_nobody(self, passed: Pass, said: Any) -> Any:
        answers = {str(key): (str(action), content) for key, (action, content) in said["answers"].items()}
        return wire.TASK.dump_python(self._app.store.answer(passed.task_id, answers), mode="json")

    def _lease(self, passed: Pass, said: Any) -> Lease:
        """The store fences by the attempt's number, so who names another changes nothing."""
        task = dataclasses.replace(self._app.store.get(passed.task_id), attempt=int(said["attempt"]))
        return Lease(task, _worker(passed, said["worker"]))

    # -- files

    async def take_file(self, request: Request) -> Response:
        """A file of the task, whole and as its hash says, or not at all."""
        passed = self._pass(request)
        if passed is None:
            return _refused(_NOT_GOOD)
        folder = tasks_folder(self._app.data_dir).resolve()
        path = (folder / request.path_params["path"]).resolve()
        if not path.is_relative_to(folder / passed.task_id):
            return _refused("that is no file of this task")
        try:
            sha256 = await _written(request, path)
        except OSError as error:
            return JSONResponse({"error": "store_full", "message": str(error)}, status_code=503)
        if sha256 != request.headers.get("x-sha256"):
            path.unlink()
            return JSONResponse(
                {"error": "invalid_request", "message": "its hash is another"}, status_code=400
            )
        path.chmod(0o400)
        return JSONResponse({"sha256": sha256})


def _worker(passed: Pass, worker_id: Any) -> str:
    """Raises InvalidRequest unless it is one of the supervisor that the pass is for."""
    own = f"wrk_{passed.supervisor_id.removeprefix('sup_')}_"
    if not isinstance(worker_id, str) or not worker_id.startswith(own):
        raise InvalidRequest(reason="a worker spoke for another")
    return worker_id


def _refused(reason: str) -> Response:
    return JSONResponse({"error": "not_allowed", "message": reason}, status_code=403)


async def _body(request: Request) -> bytes:
    """Raises InvalidRequest for one that is too large."""
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > _LARGEST:
            raise InvalidRequest(reason=f"a worker said more than {_LARGEST} bytes at once")
    return bytes(read)


async def _written(request: Request, path: Path) -> str:
    """Write what comes to a file that nobody sees before it is whole; gives its hash. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part, hashed = path.with_name(f".{path.name[:100]}.part"), hashlib.sha256()
    with part.open("wb") as file:
        async for chunk in request.stream():
            hashed.update(chunk)
            file.write(chunk)
        os.fsync(file.fileno())
    part.replace(path)
    return hashed.hexdigest()
