"""A command on a terminal of its own, without a shell in between."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import signal
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services import wait_until


class OnTerminal:
    """A command on a terminal of its own, of 80 columns, which can be read and where Ctrl-C is a key."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(theirs)
        os.set_blocking(self._ours, False)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.seen = ""

    def wait_for(self, pattern: str, within: float = 30) -> str:
        """All that was seen, as soon as the pattern is in it."""
        assert wait_until(lambda: self._look() and re.search(pattern, self.seen), within=within), self.seen
        return self.seen

    def _look(self) -> bool:
        with contextlib.suppress(OSError):  # nothing now, or nobody is there any more
            while some := os.read(self._ours, 65536):
                self.seen = (self.seen + self._decode(some)).replace("\r\n", "\n")
        return True

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> int:
        """Press Ctrl-C once; the exit code."""
        self.type("\x03")
        return self.end()

    def end(self, within: float = 30) -> int:
        assert wait_until(lambda: self._look() and self._process.poll() is not None, within=within), self.seen
        self._look()
        return self._process.returncode

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
        os.close(self._ours)
