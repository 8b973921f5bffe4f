"""Python processes that start in milliseconds, because the SDK is imported already.

Use `warm.PYTHON` and `warm.BACKBURNER` in place of `sys.executable` and the `backburner` script. Programs
started this way are real processes. Their process id is that of a launcher which forwards signals: a test
that inspects, stops or kills the process itself, or measures imports, uses `sys.executable`.
BACKBURNER_TEST_COLD=1 starts every program cold; `make test-whole` does so.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests import services

_HERE = Path(__file__).parent
_COLD = bool(os.environ.get("BACKBURNER_TEST_COLD"))

#: The folder with both programs, for PATH.
PROGRAMS = (
    Path(sys.executable).parent
    if _COLD
    else Path(tempfile.gettempdir(), f"backburner-warm-{os.getuid()}-{os.getpid()}")
)
PYTHON = sys.executable if _COLD else str(PROGRAMS / "python")
BACKBURNER = str(PROGRAMS / "backburner")


@contextlib.contextmanager
def serving() -> Iterator[None]:
    """Install the launchers and run the server behind them."""
    if _COLD:
        yield
        return
    PROGRAMS.mkdir(mode=0o700)
    try:
        for name in ("python", "python3", "backburner"):
            launcher = PROGRAMS / name
            launcher.write_text(f"#!{sys.executable} -IS\n{(_HERE / 'launch.py').read_text()}")
            launcher.chmod(0o700)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [sys.executable, str(_HERE / "server.py"), str(PROGRAMS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as server:
            services.running.add(server.pid)
            ready = PROGRAMS / "ready"
            assert services.wait_until(lambda: ready.exists() or server.poll() is not None, within=120)
            assert server.poll() is None, "the warm server did not start"
            yield
            server.communicate()
    finally:
        shutil.rmtree(PROGRAMS)
