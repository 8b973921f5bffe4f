"""An app whose tool writes down each time that it runs: `python ledger_server.py stdio`, or `http PORT`."""

import os
from pathlib import Path

from backburner import Backburner, TaskContext
from tests.told_transport import serve_as_told

bb = Backburner("ledger")


def _work(name: str, seconds: float, context: TaskContext) -> dict[str, str]:
    ledger = Path(os.environ["LEDGER"])
    with (ledger / name).open("a") as lines:
        lines.write("ran\n")
    if context.wait_cancelled(seconds):
        (ledger / f"{name}.killed").touch()
        context.raise_if_cancelled()
    (ledger / f"{name}.done").touch()
    return {"worked": name}


@bb.tool()
def work(name: str, seconds: float, context: TaskContext) -> dict[str, str]:
    """Take so long."""
    return _work(name, seconds, context)


@bb.tool()
def unknown(name: str, seconds: float, context: TaskContext) -> dict[str, str]:
    """The same; how long it takes is not known from the calls of others."""
    return _work(name, seconds, context)


@bb.tool(on_cancel="detach", join="never")
def alone(name: str, seconds: float, context: TaskContext) -> dict[str, str]:
    """The same; no call joins another, and no stop ends it."""
    return _work(name, seconds, context)


@bb.tool(join="always")
def shared(name: str, seconds: float, context: TaskContext) -> dict[str, str]:
    """The same; all calls at one time are one."""
    return _work(name, seconds, context)


if __name__ == "__main__":
    serve_as_told(bb)
