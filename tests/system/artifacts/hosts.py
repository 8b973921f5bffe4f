"""Hosts on one store, each with a data folder of its own, and the command line on each of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import psutil

from tests import warm
from tests.aws import CREDENTIALS
from tests.deployment import Deployment

APP = Path(__file__).with_name("app.py")


class Host(Deployment):
    def __init__(self, folder: Path, name: str, **settings: str) -> None:
        own = {"data_dir": str(folder / name), "supervisor__keeper_interval_s": "0.2"}
        super().__init__(folder, (APP,), {**own, **settings}, dict(CREDENTIALS))

    @property
    def data_dir(self) -> Path:
        return Path(self.settings["data_dir"])

    @property
    def files(self) -> list[Path]:
        """The artifacts that it has in its own folder."""
        return [path for path in self.data_dir.glob("tasks/*/artifacts/*/*") if path.is_file()]

    def backburner(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [warm.PYTHON, "-m", "backburner.cli", *words, "-t", str(APP)]
        return subprocess.run(
            command,
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )

    def call(self, tool: str, **inputs: Any) -> dict[str, Any]:
        """Have a task run on this host; its result record."""
        words = [f"{name}:={json.dumps(value)}" for name, value in inputs.items()]
        called = self.backburner("call", tool, *words, "--json")
        found: dict[str, Any] = json.loads(called.stdout)
        return found


def most_memory_mb(pid: int) -> float:
    """The most that a process has had in memory so far."""
    status = Path(f"/proc/{psutil.Process(pid).pid}/status").read_text()
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak) / 1024
