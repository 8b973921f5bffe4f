"""Templates: everything in them is taken for hostile text, and shown as it is."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from functools import cache, lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.runtime import Macro
from markupsafe import Markup

from ...log_lines import about
from ...terminal_text import printable

logger = logging.getLogger(__name__)

_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
#: The card has the same text and the same forms; they stand in its room.
_OF_CARD = ("text.js", "forms.js")
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader(__package__, "templates"),
        autoescape=True,
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"span": span, "bytes": byte_size, "number": number, "data": data, "pretty": pretty}
    made.filters |= {"roughly": roughly, "shortened": shortened}
    made.globals |= {"static": static_address, "shown": shown}
    return made


def _finalized(value: Any) -> Any:
    """What is put out: nothing for None, and what cannot be seen made visible."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else printable(value, lines=True)


def shown(part: Macro, instead: Macro, task: dict[str, Any], *values: Any) -> str:
    """Render the part of a page that shows one task; if that fails, render `instead`."""
    try:
        return part(task, *values)
    except Exception as error:
        _log_once(str(task["task_id"]), repr(error)[:500])
        return instead(task, *values)


@lru_cache(maxsize=1000)  # a page is rendered again and again
def _log_once(task_id: str, reason: str) -> None:
    logger.error("Task %s cannot be shown on the dashboard: %s", task_id, reason, extra=about(task_id))


# -- filters ---------------------------------------------------------------------------------------


def span(seconds: float | None) -> str:
    """A span of time in words, as exact as its length asks for."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} days"


def roughly(seconds: float) -> str:
    """As `span`, of what is only about right."""
    if seconds < 5:
        return "a few seconds"
    if seconds < 60:
        return f"about {-(-int(seconds) // 5) * 5} s"
    minutes = round(seconds / 60)
    return f"about {minutes} min" if minutes < 60 else f"about {span(minutes * 60)}"


def byte_size(size: float) -> str:
    at = 0
    while size >= 1000 and at < len(_UNITS) - 1:
        size, at = size / 1000, at + 1
    return f"{size:.1f} {_UNITS[at]}" if at and size < 10 else f"{size:.0f} {_UNITS[at]}"


def number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def data(value: Any) -> Markup:
    """A value for a script, within `<script type="application/json">`: nothing in it can end the element."""
    text = json.dumps(value)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def shortened(text: str, most: int) -> str:
    """The beginning of a text that may be long, and how much more there is."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def seconds_between(begin: str, end: str) -> float:
    """Between two times as the records have them."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


# -- files that pages load -------------------------------------------------------------------------


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """The contents and the media type of each, by its name."""
    own, of_card = files(__package__) / "static", files("backburner.mcp.card") / "page"
    found = [one for one in own.iterdir() if one.name.endswith(tuple(_KINDS))]
    found += [of_card / name for name in _OF_CARD]
    return {one.name: (one.read_bytes(), _KINDS["." + one.name.rpartition(".")[2]]) for one in found}


@cache
def static_address(name: str) -> str:
    """Where a page finds a file. Another content has another address, so browsers may keep it for good."""
    return f"/dashboard/static/{name}?v={sha256(static_files()[name][0]).hexdigest()[:12]}"
