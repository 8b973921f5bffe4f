"""Log lines of servers, supervisors and workers: one line each, for people or for programs.

A record that concerns a task names it as a field: `log.info("…", extra=about(task_id))`.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..core.text import printable

if TYPE_CHECKING:
    from ..settings import LogSettings


#: The fields that a record may have beside its message.
FIELDS = ("task_id", "attempt")
_OWN = "backburner"
#: Servers of the SDK set up a handler for people at terminals, which folds long lines.
_FOLDING = "RichHandler"


def about(task_id: str | None, attempt: int | None = None) -> dict[str, Any]:
    """Return the `extra` of a log record that concerns a task; nothing for None."""
    given = {"task_id": task_id, "attempt": attempt}
    return {name: value for name, value in given.items() if value is not None}


class LineFormatter(logging.Formatter):
    """Makes one line of a record, whatever its text holds: other people's text is in it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._write = _as_json if form == "json" else _as_text

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        values |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info and record.exc_info[0] is not None:
            values["exception"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return self._write(values)


def _as_json(values: dict[str, Any]) -> str:
    return json.dumps(values)  # what is no ASCII is escaped, so also what ends or turns a line


def _as_text(values: dict[str, Any]) -> str:
    ts, level, logger, message, *_ = values.values()
    words = [ts.replace("+00:00", "Z"), level.upper(), logger, message]
    words += [f"{name}={value}" for name, value in values.items() if name in (*FIELDS, "exception")]
    return printable(" ".join(words))


def set_up(settings: LogSettings) -> None:
    """Have the records of this process written to stderr, as the settings say.

    An app that has set up handlers of its own keeps them, unless the lines are to be JSON.
    """
    root = logging.getLogger()
    for handler in [*root.handlers]:
        if type(handler).__name__ == _FOLDING or (settings.format == "json" and _is_console(handler)):
            root.removeHandler(handler)
    if not any(_is_console(handler) for handler in root.handlers):
        own = logging.StreamHandler()
        own.setFormatter(LineFormatter(settings.format))
        root.addHandler(own)
    logging.getLogger(_OWN).setLevel(settings.level.upper())


def _is_console(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stdout, sys.stderr)


def say(settings: LogSettings, message: str) -> None:
    """Print a message to stderr for the person who started a server, whatever the log level is."""
    if settings.format == "json":
        record = logging.LogRecord(_OWN, logging.INFO, "", 0, "%s", (message,), None)
        line = LineFormatter("json").format(record)
    else:
        line = f"{_OWN}: {message}"
    print(line, file=sys.stderr, flush=True)
