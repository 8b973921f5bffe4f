"""The scripts that the tests of the client start, and the gates at which a tool of theirs waits."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
APP = HERE / "app.py"
PLAIN = HERE / "plain_server.py"


class Gates:
    """The test's side of the tool `gates`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def open(self, i: int) -> None:
        (self.folder / f"open-{i}").touch()

    def passed(self, i: int) -> bool:
        return (self.folder / f"passed-{i}").exists()

    def end(self) -> None:
        (self.folder / "end").touch()
