"""A client that speaks raw JSON over HTTP to a real server process."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from tests import warm
from tests.deployment import Deployment, HttpServer
from tests.integration.source_documents.pipe import APP, Message
from tests.services import free_port


class Session:
    """A session of 2025-06-18 over HTTP, by hand, that declares nothing."""

    def __init__(self, http: httpx2.Client, url: str) -> None:
        self._http, self._url = http, url
        self._headers = {"accept": "application/json, text/event-stream"}
        info = {"name": "documents-client", "version": "1.0"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        opened = self._post({"id": 0, "method": "initialize", "params": params})
        self._headers |= {"mcp-session-id": opened.headers["mcp-session-id"]}
        self._headers |= {"mcp-protocol-version": "2025-06-18"}
        self._post({"method": "notifications/initialized"})

    def _post(self, message: Message) -> httpx2.Response:
        return self._http.post(self._url, headers=self._headers, json={"jsonrpc": "2.0", **message})

    def call(self, name: str, _meta: Message | None = None, **arguments: Any) -> Any:
        params = {"name": name, "arguments": arguments, "_meta": _meta or {}}
        answer = self._post({"id": 1, "method": "tools/call", "params": params}).text
        (data,) = [line.removeprefix("data: ") for line in answer.splitlines() if '"result"' in line]
        return json.loads(data)["result"]

    @contextmanager
    def listening(self) -> Iterator[queue.Queue[Message]]:
        """What comes on the session's event stream."""
        heard: queue.Queue[Message] = queue.Queue()
        with self._http.stream("GET", self._url, headers=self._headers) as stream:
            assert stream.status_code == 200

            def read() -> None:
                for line in stream.iter_lines():
                    if line.startswith("data: {"):
                        heard.put(message := json.loads(line.removeprefix("data: ")))
                        if message["method"] == "notifications/tool_result":
                            return

            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            yield heard
            reader.join(30)


@contextmanager
def serving_http(deployment: Deployment) -> Iterator[Session]:
    port = free_port()
    words = [str(warm.BACKBURNER), "serve", str(APP), "--http", f"127.0.0.1:{port}"]
    server = HttpServer(words, deployment.environment, port)
    try:
        server.start()
        with httpx2.Client(timeout=30) as http:
            yield Session(http, server.url)
    finally:
        server.stop()
