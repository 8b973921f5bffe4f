"""A way to the database that a test can cut: connections through it are refused, dropped or frozen."""

import selectors
import socket
import threading
from urllib.parse import urlsplit

_CHUNK = 1 << 16


class Partition:
    """A TCP proxy on a free port, with a thread of its own. `url` leads through it to the same database."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._server = parts.hostname, parts.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._listener.getsockname()[1]
        user = f"{parts.username}@" if parts.username else ""
        self.url = parts._replace(netloc=f"{user}127.0.0.1:{self._port}").geturl()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._frozen = threading.Event()
        self._cut = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._forward, name="partition", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Drop every connection and refuse new ones, as a firewall that rejects does."""
        self._cut.set()

    def freeze(self) -> None:
        """Keep every connection and accept new ones, but let nothing through any more."""
        self._frozen.set()

    def mend(self) -> None:
        """Let everything through again. What was frozen goes on."""
        self._frozen.clear()
        self._cut.clear()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for end in (*self._pairs, self._listener):
            end.close()
        self._selector.close()

    def _forward(self) -> None:
        while not self._over.wait(0.02 if self._frozen.is_set() else 0):
            if self._cut.is_set():
                while self._pairs:
                    self._drop(next(iter(self._pairs)))
            if self._frozen.is_set():
                continue
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._pass_on(key.fileobj)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            if self._cut.is_set():
                raise ConnectionRefusedError
            server = socket.create_connection(self._server, timeout=5)
        except OSError:
            client.close()
            return
        self._pairs[client], self._pairs[server] = server, client
        for end in (client, server):
            end.setblocking(True)
            self._selector.register(end, selectors.EVENT_READ, None)

    def _pass_on(self, end: socket.socket) -> None:
        if end not in self._pairs:
            return
        try:
            data = end.recv(_CHUNK)
            if data:
                self._pairs[end].sendall(data)
                return
        except OSError:
            pass
        self._drop(end)

    def _drop(self, end: socket.socket) -> None:
        for each in (end, self._pairs[end]):
            del self._pairs[each]
            self._selector.unregister(each)
            each.close()
