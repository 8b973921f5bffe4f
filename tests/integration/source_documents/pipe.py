"""A client that speaks raw JSON over the pipes of a real server process, in either framing."""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tests import warm
from tests.deployment import Deployment

APP = Path(__file__).with_name("document_app.py")
Message = dict[str, Any]


class Pipe:
    """One server process and its client."""

    def __init__(self, process: subprocess.Popen[bytes], framing: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._framing = framing
        self._out: BinaryIO = process.stdin  # type: ignore[assignment]
        self._in: BinaryIO = process.stdout  # type: ignore[assignment]
        self._ids = itertools.count(1000)
        self._incoming: queue.Queue[Message] = queue.Queue()
        self.heard: list[Message] = []
        self._reader = threading.Thread(target=self._read_all, daemon=True)
        self._reader.start()

    def _read_all(self) -> None:
        while (body := self._read()) is not None:
            self._incoming.put(json.loads(body))

    def _read(self) -> bytes | None:
        if self._framing == "newline":
            return self._in.readline() or None
        header = self._in.readline()
        if not header:
            return None
        assert header.startswith(b"Content-Length: ")
        assert self._in.readline() == b"\r\n"
        return self._in.read(int(header.split(b":")[1]))

    def send(self, message: Message) -> None:
        body = json.dumps(message, ensure_ascii=False).encode()
        framed = (
            body + b"\n"
            if self._framing == "newline"
            else b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        self._out.write(framed)
        self._out.flush()

    def until(self, condition: Callable[[Message], bool], within: float = 30) -> Message:
        """The first message, heard already or still to come, that fits."""
        for message in self.heard:
            if condition(message):
                return message
        deadline = time.monotonic() + within
        while True:
            message = self._incoming.get(timeout=max(0.01, deadline - time.monotonic()))
            self.heard.append(message)
            if condition(message):
                return message

    def exchange(self, message: Message) -> Message:
        """Send a request as it is, and give the whole response."""
        self.send(message)
        return self.until(lambda heard: heard.get("id") == message["id"] and "method" not in heard)

    def request(self, method: str, **params: Any) -> Any:
        """Send a request and give its result."""
        response = self.exchange(
            {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        )
        assert "result" in response, response
        return response["result"]

    def notified(self, method: str, **wanted: Any) -> Message:
        """The first notification of that method whose params have these values."""
        return self.until(
            lambda heard: (
                heard.get("method") == method
                and wanted.items() <= {key: heard["params"].get(key) for key in wanted}.items()
            )
        )

    def initialize(self, name: str = "documents-client", **capabilities: Any) -> Any:
        result = self.request(
            "initialize",
            protocolVersion="2025-06-18",
            capabilities=capabilities,
            clientInfo={"name": name, "version": "1.0"},
        )
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def close(self) -> None:
        self._out.close()
        self.process.wait(20)
        self._reader.join(20)
        self._in.close()

    def kill(self) -> None:
        self.process.kill()
        self.close()


@contextmanager
def serving(deployment: Deployment, framing: str = "newline", app: str | Path = APP) -> Iterator[Pipe]:
    command = [warm.BACKBURNER, "serve", str(app)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=deployment.environment
    )
    pipe = Pipe(process, framing)
    try:
        yield pipe
    finally:
        if process.poll() is None:
            pipe.close()
