"""The servers of async-tools.md and two-stage-return.md, as they are written there, without an SDK.

    python written_server.py notify|poll|both [--framing lsp] [--early] [--silent] [--slow-polls FOLDER]

`notify` is Option 1, `poll` is Option 2, and `both` is Option 1 with Option 2's way to ask. What the
documents leave out is kept to the least: a handshake, a list of tools, and "Method not found" for all else.

`--early`: the job is over before the answer of stage 1 goes out. `--silent`: an unknown method gets no
answer. `--slow-polls`: a result that is asked for goes out when the file `answer` is in the folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Message = dict[str, Any]
Progress = Callable[[float, str], None]


class MCPResult:
    """`{success, data, messages}`, and nothing else: no `content`, which the protocol of today asks for."""

    def __init__(self, success: bool, data: dict[str, Any]) -> None:
        self.success = success
        self.data = data
        self.messages: list[dict[str, str]] = []

    def add(self, kind: str, text: str, **more: str) -> MCPResult:
        self.messages.append({"type": kind, "text": text, **more})
        return self

    @classmethod
    def error_result(cls, text: str, **more: str) -> MCPResult:
        return cls(success=False, data={}).add("error", text, **more)

    def to_dict(self) -> dict[str, Any]:
        return {"success": self.success, "data": self.data, "messages": self.messages}


# -- the tools -------------------------------------------------------------------------------------


def monitor_sync(arguments: dict[str, Any], progress: Progress) -> MCPResult:
    """Syncs 500 files, in three parts; in a folder that is there, it goes on when the test lets it."""
    folder = Path(arguments["path"])
    for gate, done in enumerate((150, 300), start=1):
        progress(done / 500, f"Processing {done} of 500 files...")
        while folder.is_dir() and not (folder / f"open-{gate}").exists():
            time.sleep(0.01)
    if folder.name == "forbidden":
        raise PermissionError("Failed to sync: Permission denied")
    data = {"files_processed": 500, "files_skipped": 10, "files_updated": 490, "duration_seconds": 42.3}
    return MCPResult(success=True, data=data).add("success", "Sync completed successfully")


def count(arguments: dict[str, Any], progress: Progress) -> MCPResult:
    return MCPResult(success=True, data={}).add("success", f"counted to {arguments.get('n', 3)}")


def fail(arguments: dict[str, Any], progress: Progress) -> MCPResult:
    raise RuntimeError("it broke")


LONG_RUNNING = {"wksm_monitor_sync": monitor_sync, "count": count, "fail": fail}
#: A fast tool: how often the server was asked for a result.
POLLS = "polls"


# -- what both options share -----------------------------------------------------------------------


class MCPServer:
    """The loop, the framing and the handshake."""

    can_be_polled = False

    def __init__(self, given: argparse.Namespace) -> None:
        self._lsp_mode = given.framing == "lsp"
        self._given = given
        self._polls = 0
        self._lock = threading.Lock()
        self._active_jobs: dict[str, threading.Thread] = {}
        self._job_results: dict[str, MCPResult] = {}

    def run(self) -> None:
        while (message := self._read()) is not None:
            method, request_id = message["method"], message.get("id")
            if request_id is None:
                continue
            self._polls += method == "tools/poll_result"
            handlers = {
                "initialize": self._handle_initialize,
                "tools/list": self._handle_list_tools,
                "tools/call": self._handle_call_tool,
                "tools/poll_result": self._handle_poll_result,
            }
            if not self.can_be_polled:
                del handlers["tools/poll_result"]
            if method in handlers:
                handlers[method](request_id, message.get("params") or {})
            elif not self._given.silent:
                error = {"code": -32601, "message": "Method not found"}
                self._write({"jsonrpc": "2.0", "id": request_id, "error": error})

    def _read(self) -> Message | None:
        line = sys.stdin.buffer.readline()
        if self._lsp_mode and line:
            sys.stdin.buffer.readline()
            line = sys.stdin.buffer.read(int(line.removeprefix(b"Content-Length:")))
        return json.loads(line) if line else None

    def _write(self, message: Message) -> None:
        text = json.dumps(message)
        with self._lock:
            if self._lsp_mode:
                sys.stdout.write(f"Content-Length: {len(text)}\r\n\r\n{text}")
            else:
                sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    def _write_response(self, request_id: int, result: dict[str, Any]) -> None:
        self._write({"jsonrpc": "2.0", "id": request_id, "result": result})

    def _handle_initialize(self, request_id: int, params: dict[str, Any]) -> None:
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "as-written", "version": "1.0"},
        }
        self._write_response(request_id, result)

    def _handle_list_tools(self, request_id: int, params: dict[str, Any]) -> None:
        schema = {"type": "object", "properties": {"path": {"type": "string", "description": "Path to sync"}}}
        tools = [
            {"name": name, "description": name, "async": name in LONG_RUNNING, "inputSchema": schema}
            for name in (*LONG_RUNNING, POLLS)
        ]
        self._write_response(request_id, {"tools": tools})

    def _handle_call_tool(self, request_id: int, params: dict[str, Any]) -> None:
        tool_name, arguments = params["name"], params.get("arguments", {})
        if tool_name == POLLS:
            self._write_response(request_id, MCPResult(success=True, data={"polls": self._polls}).to_dict())
            return
        job_id = str(uuid.uuid4())
        thread = threading.Thread(
            target=self._execute_tool_async, args=(job_id, tool_name, arguments), daemon=True
        )
        self._active_jobs[job_id] = thread
        if self._given.early:
            thread.start()
            thread.join()
        self._write_response(request_id, self._stage_one(job_id).to_dict())
        if not self._given.early:
            thread.start()

    def _stage_one(self, job_id: str) -> MCPResult:
        data = {"job_id": job_id, "estimated_runtime_seconds": 45.0, "status": "queued"}
        return MCPResult(success=True, data=data).add("info", "Operation queued. Estimated runtime: 45s")

    def _execute_tool_sync(self, job_id: str, tool_name: str, arguments: dict[str, Any]) -> MCPResult:
        return LONG_RUNNING[tool_name](arguments, lambda share, text: self._progress(job_id, share, text))

    def _execute_tool_async(self, job_id: str, tool_name: str, arguments: dict[str, Any]) -> None:
        raise NotImplementedError

    def _progress(self, job_id: str, progress: float, message: str) -> None:
        raise NotImplementedError

    def _handle_poll_result(self, request_id: int, params: dict[str, Any]) -> None:
        raise NotImplementedError


# -- Option 1: async with background threads -------------------------------------------------------


class Notifying(MCPServer):
    """Tells progress and the result by notifications, and cannot be asked."""

    def _execute_tool_async(self, job_id: str, tool_name: str, arguments: dict[str, Any]) -> None:
        try:
            self._progress(job_id, 0.0, "Starting operation...")
            result = self._execute_tool_sync(job_id, tool_name, arguments)
            self._progress(job_id, 0.5, "Processing...")
        except Exception as error:
            result = MCPResult.error_result(str(error), details=traceback.format_exc())
        self._job_results[job_id] = result
        self._notify("notifications/tool_result", {"job_id": job_id, "result": result.to_dict()})
        self._active_jobs.pop(job_id, None)

    def _progress(self, job_id: str, progress: float, message: str) -> None:
        self._notify("notifications/progress", {"job_id": job_id, "progress": progress, "message": message})

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        params["timestamp"] = datetime.now(UTC).isoformat()
        self._write({"jsonrpc": "2.0", "method": method, "params": params})


# -- Option 2: polling-based -----------------------------------------------------------------------


class Polled(MCPServer):
    """Tells nothing by itself. A result is given once, and then it is gone."""

    can_be_polled = True

    def __init__(self, given: argparse.Namespace) -> None:
        super().__init__(given)
        self._job_progress: dict[str, float] = {}

    def _stage_one(self, job_id: str) -> MCPResult:
        result = super()._stage_one(job_id)
        result.data["poll_endpoint"] = "tools/poll_result"
        return result

    def _execute_tool_async(self, job_id: str, tool_name: str, arguments: dict[str, Any]) -> None:
        try:
            self._job_results[job_id] = self._execute_tool_sync(job_id, tool_name, arguments)
        except Exception as error:
            self._job_results[job_id] = MCPResult.error_result(str(error), details=traceback.format_exc())
        self._active_jobs.pop(job_id, None)

    def _progress(self, job_id: str, progress: float, message: str) -> None:
        self._job_progress[job_id] = progress

    def _handle_poll_result(self, request_id: int, params: dict[str, Any]) -> None:
        job_id = params["job_id"]
        if job_id in self._job_results:
            done = self._job_results[job_id].to_dict()
            data = {"job_id": job_id, "status": "complete", "result": done}
            result = MCPResult(success=True, data=data)
            del self._job_results[job_id]
            self._hold_back()
        elif job_id in self._active_jobs:
            share = self._job_progress.get(job_id, 0.0)
            result = MCPResult(success=True, data={"job_id": job_id, "status": "running", "progress": share})
        else:
            result = MCPResult.error_result(f"Job not found: {job_id}")
        self._write_response(request_id, result.to_dict())

    def _hold_back(self) -> None:
        folder = self._given.slow_polls
        if folder is not None:
            (folder / "asked").touch()
            while not (folder / "answer").exists():
                time.sleep(0.01)


class NotifyingAndPolled(Notifying, Polled):
    """Tells by itself, and can be asked; asking takes the result away."""

    def _progress(self, job_id: str, progress: float, message: str) -> None:
        Polled._progress(self, job_id, progress, message)
        Notifying._progress(self, job_id, progress, message)


OPTIONS: dict[str, type[MCPServer]] = {"notify": Notifying, "poll": Polled, "both": NotifyingAndPolled}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("option", choices=OPTIONS)
    parser.add_argument("--framing", default="newline")
    parser.add_argument("--early", action="store_true")
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--slow-polls", type=Path)
    given = parser.parse_args()
    OPTIONS[given.option](given).run()
