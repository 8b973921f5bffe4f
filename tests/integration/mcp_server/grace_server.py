"""An app whose tools take as long as they are told: `python grace_server.py stdio`, or `http PORT`."""

from pathlib import Path

from pydantic import BaseModel

from backburner import Backburner, TaskContext
from tests.told_transport import serve_as_told

bb = Backburner("grace")


class Name(BaseModel):
    name: str


@bb.tool
def nap(file: str, seconds: float, context: TaskContext) -> str:
    """Write a line into the file, and take so long."""
    with Path(file).open("a") as lines:
        lines.write("ran\n")
    if context.wait_cancelled(seconds):
        Path(f"{file}.killed").touch()
        context.raise_if_cancelled()
    return "slept"


@bb.tool(estimate=180)
def report() -> str:
    """Take less time than the author says."""
    return "reported"


@bb.tool
def ask(context: TaskContext) -> str:
    """Ask for a name."""
    answer = context.ask("Your name?", Name.model_json_schema())
    return f"Hello, {answer.content['name']}!"


@bb.tool(task="required")
def must() -> str:
    """Only as a task."""
    return "must done"


if __name__ == "__main__":
    serve_as_told(bb)
