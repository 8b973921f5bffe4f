"""`import backburner` is light: nothing heavy is imported before it is needed."""

import subprocess
import sys

READER = {"pydantic"}
HEAVY = {"mcp", "starlette", "uvicorn", "psycopg", "sqlite3", "jsonschema", "asyncio"} | READER


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
