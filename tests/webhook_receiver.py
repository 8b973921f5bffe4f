"""A receiver of webhooks: a real HTTP server, which checks signatures by itself as Standard Webhooks says."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = b"0123456789abcdef01234567"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Receiver:
    """What has arrived: the id and the body of each request whose signature is right."""

    def __init__(self, answers: Sequence[int | None], headers: dict[str, str]) -> None:
        self.arrived: list[tuple[str, dict[str, Any]]] = []
        self.forged: list[str] = []
        self.answers = list(answers)
        self.headers = headers
        self.released = threading.Event()
        self.url = ""

    def answer(self) -> int | None:
        """The status of the next answer; None for none. When all are given, 204."""
        return self.answers.pop(0) if self.answers else 204

    def take(self, headers: Any, body: bytes) -> None:
        message_id, seconds = headers["webhook-id"], headers["webhook-timestamp"]
        signed = f"{message_id}.{seconds}.".encode() + body
        expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        given = [one.partition(",")[2] for one in headers["webhook-signature"].split() if one[:3] == "v1,"]
        fresh = abs(time.time() - int(seconds)) < 60
        if fresh and any(hmac.compare_digest(expected, one) for one in given):
            self.arrived.append((message_id, json.loads(body)))
        else:
            self.forged.append(message_id)


class _Handler(BaseHTTPRequestHandler):
    receiver: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.receiver.take(self.headers, body)
        status = self.receiver.answer()
        if status is None:
            self.receiver.released.wait(60)
            return
        self.send_response(status)
        for name, value in self.receiver.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@contextlib.contextmanager
def receiving(
    *answers: int | None, port: int = 0, headers: dict[str, str] | None = None
) -> Iterator[Receiver]:
    """A receiver on this host that gives these answers first."""
    receiver = Receiver(answers, headers or {})
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"receiver": receiver}))
    server.daemon_threads = False
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
