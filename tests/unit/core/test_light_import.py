"""`import backburner` is light: nothing heavy is imported before it is needed."""

import json
import subprocess
import sys
from pathlib import Path

READER = {"pydantic"}
HEAVY = {"mcp", "starlette", "uvicorn", "psycopg", "sqlite3", "jsonschema", "asyncio"} | READER

#: Each takes milliseconds; web frameworks and drivers take many.
NOT_BEFORE_INITIALIZE = {
    *("fastapi", "fastmcp", "flask", "jinja2", "rich", "typer", "psycopg", "boto3", "dramatiq", "celery"),
    *("pydantic_settings", "jsonschema", "jsonschema_rs", "jwt", "itsdangerous", "difflib", "tomllib"),
}


def imported_by(statement: str) -> set[str]:
    """The top-level modules that Python itself says it imported."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", statement], capture_output=True, text=True, check=True
    )
    lines = [line for line in run.stderr.splitlines() if line.startswith("import time:")][1:]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def test_import_backburner_imports_nothing_heavy() -> None:
    imported = imported_by("import backburner")
    assert "backburner" in imported
    assert imported & HEAVY == set()


def test_a_sqlite_store_needs_no_other_driver_and_no_web() -> None:
    imported = imported_by("from backburner.store import open_store; open_store('sqlite://').close()")
    assert imported & HEAVY == {"sqlite3"}


def test_settings_that_come_as_json_need_no_reader() -> None:
    statement = "from backburner.settings import Settings; Settings.from_json(Settings().to_json())"
    assert imported_by(statement) & HEAVY == set()
    assert imported_by("from backburner.settings import Settings; Settings.load()") >= READER


def test_a_supervisor_imports_no_reader() -> None:
    assert imported_by("import backburner.supervise") & READER == set()


def test_a_stdio_server_answers_initialize_without_what_only_later_requests_need(tmp_path: Path) -> None:
    """Hosts wait one to three seconds for the answer. The SDK's own imports are the SDK's."""
    server = tmp_path / "lab.py"
    server.write_text(
        "import atexit, sys\n"
        "from backburner import Backburner\n"
        "bb = Backburner('lab', store='sqlite:///lab.db')\n"
        "@bb.tool\n"
        "def relax(steps: int = 3) -> str:\n"
        "    return f'{steps} steps'\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "bb.run()\n"
    )
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    run = subprocess.run(
        [sys.executable, str(server)], input=json.dumps(request), capture_output=True, text=True, check=True
    )
    assert "serverInfo" in json.loads(run.stdout)["result"]
    imported = {name.partition(".")[0] for name in run.stderr.split()}
    assert "mcp" in imported
    assert imported & NOT_BEFORE_INITIALIZE == set()
