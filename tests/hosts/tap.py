"""Records the messages between a host and a stdio server, in whose place it is started.

    python tap.py FILE COMMAND…

A line of the file is `{"at": seconds, "from": "host" | "server", "message": …}`.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO


def main() -> int:
    server = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    with Path(sys.argv[1]).open("a", buffering=1) as record:
        from_host = (sys.stdin.buffer, server.stdin, record, "host")
        threading.Thread(target=_copy, args=from_host, daemon=True).start()
        _copy(server.stdout, sys.stdout.buffer, record, "server")
        return server.wait()


def _copy(source: IO[bytes], target: IO[bytes], record: IO[str], sender: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        for line in iter(source.readline, b""):
            with contextlib.suppress(ValueError):
                entry = {"at": time.time(), "from": sender, "message": json.loads(line)}
                record.write(json.dumps(entry) + "\n")
            target.write(line)
            target.flush()
        target.close()


if __name__ == "__main__":
    sys.exit(main())
