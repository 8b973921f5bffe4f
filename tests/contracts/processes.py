"""Other processes for tests: each runs one function, they start together, and their values come back."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

#: Called by the function when it is ready to begin: returns when all the others are ready, too.
Start = Callable[[], None]


class Running:
    """One process. `value` waits for the function to return and gives what it returned."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        module, name = function.__module__, function.__qualname__
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import _main; _main({module!r}, {name!r})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        )
        self._write(json.dumps(arguments))

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the process ended early, with code {self._process.wait()}"
        return line

    def wait_ready(self) -> None:
        self._read()

    def start(self) -> None:
        self._write("start")

    def value(self) -> Any:
        return json.loads(self._read())

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            _close(pipe)
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def running(function: Callable[..., Any], *calls: tuple[Any, ...]) -> Iterator[list[Running]]:
    """One process for each tuple of arguments, started together; they are gone afterwards.

    `function` is found by its name in its module, and gets a Start before its arguments;
    arguments and return values are JSON.
    """
    started = [Running(function, arguments) for arguments in calls]
    try:
        for process in started:
            process.wait_ready()
        for process in started:
            process.start()
        yield started
    finally:
        for process in started:
            process.close()


def values_of(function: Callable[..., Any], *calls: tuple[Any, ...]) -> list[Any]:
    """What `function` returned in each of those processes."""
    with running(function, *calls) as processes:
        return [process.value() for process in processes]


def _close(pipe: IO[str] | None) -> None:
    # A process that has ended may not have read everything.
    with contextlib.suppress(BrokenPipeError):
        if pipe is not None:
            pipe.close()


def _main(module: str, name: str) -> None:
    function = getattr(importlib.import_module(module), name)
    arguments = json.loads(sys.stdin.readline())

    def start() -> None:
        print("ready", flush=True)
        sys.stdin.readline()

    value = function(start, *arguments)
    print(json.dumps(value), flush=True)
