"""Start of a server over stdio until `initialize` is answered, beside a bare `MCPServer` with the same tool.

CPU is that of all its threads at that moment: unlike the time, it depends little on other load.
`BENCHMARK_STARTS` is how many starts of each there are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .report import Results
from .targets import START, START_CPU, START_CPU_BARE, START_OURS, START_S, START_S_BARE

TOOL = """
async def relax(steps: int = 0) -> str:
    return f"{steps} steps"


if __name__ == "__main__":
    app.run()
"""
BARE = f'from mcp.server.mcpserver import MCPServer\n\napp = MCPServer("lab")\n\n\n@app.tool(){TOOL}'
OURS = f'from backburner import Backburner\n\napp = Backburner("lab")\n\n\n@app.tool(){TOOL}'
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "backburner-start", "version": "1"},
    },
}


def main() -> Results:
    count = int(os.environ.get("BENCHMARK_STARTS", "15"))
    with tempfile.TemporaryDirectory(prefix="backburner-start-") as folder:
        # Compiled modules are written once, as by an installation, whatever the caller's environment says.
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPYCACHEPREFIX": f"{folder}/compiled",
            "XDG_STATE_HOME": f"{folder}/state",
        }
        files = [Path(folder, "bare.py"), Path(folder, "lab.py")]
        for file, text in zip(files, (BARE, OURS), strict=True):
            file.write_text(text)
            started(file, environment)
        found = [[started(file, environment) for file in files] for _ in range(count)]
    (bare_s, bare_cpu), (own_s, own_cpu) = (
        [min(each[which][kind] for each in found) for kind in (0, 1)] for which in (0, 1)
    )
    figures = {
        START_S_BARE: bare_s,
        START_S: own_s,
        START_CPU_BARE: bare_cpu,
        START_CPU: own_cpu,
        START_OURS: own_cpu - bare_cpu,
    }
    table = Table("", "figure", title=f"Best of {count} starts")
    for name, figure in figures.items():
        table.add_row(name, f"{figure:.3f}")
    Console().print(table)
    results = Results()
    results.figures[START] = figures
    return results


def started(file: Path, environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of one server until its first answer."""
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, str(file)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(HELLO).encode() + b"\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        took, cpu = time.perf_counter() - began, _cpu_s(server.pid)
        server.stdin.close()
    assert "result" in json.loads(answer)
    return took, cpu


def _cpu_s(pid: int) -> float:
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
