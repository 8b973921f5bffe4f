"""Templates and static files of the dashboard. All values are escaped."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.runtime import Macro
from markupsafe import Markup

from ...core.text import printable
from ...observability.logging import about

logger = logging.getLogger(__name__)

_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
#: Scripts shared with the card.
_CARD_SCRIPTS = ("text.js", "forms.js")
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
    """Print None as nothing, and invisible characters visibly."""
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
    logger.error("Rendering task %s on the dashboard failed: %s", task_id, reason, extra=about(task_id))


# -- filters ---------------------------------------------------------------------------------------


def span(seconds: float | None) -> str:
    """Format a duration, with less precision for longer ones."""
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
    """Format an estimated duration."""
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
    """Serialize a value for `<script type="application/json">`; it cannot close the element."""
    text = json.dumps(value)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def shortened(text: str, most: int) -> str:
    """Cut a text at `most` characters and append the number left out."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def seconds_between(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


# -- static files -------------------------------------------------------------------------


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """Return content and media type of each static file, by name."""
    own, card = files(__package__) / "static", files("backburner.mcp.card") / "page"
    found = [one for one in own.iterdir() if one.name.endswith(tuple(_MEDIA_TYPES))]
    found += [card / name for name in _CARD_SCRIPTS]
    return {one.name: (one.read_bytes(), _MEDIA_TYPES["." + one.name.rpartition(".")[2]]) for one in found}


@cache
def static_address(name: str) -> str:
    """Return the address of a static file. It contains a hash, so browsers may cache it forever."""
    return f"/dashboard/static/{name}?v={sha256(static_files()[name][0]).hexdigest()[:12]}"


#: Limits of a tree: nodes, children of a node, characters of a text, depth.
_MAX_NODES, _MAX_CHILDREN, _MAX_CHARS, _MAX_DEPTH = 800, 100, 2_000, 16
#: Characters of a single text, and of all texts together.
_MAX_TEXT, _MAX_TOTAL = 20_000, 60_000
#: Deeper or larger nodes are closed at first.
_OPEN_DEPTH, _OPEN_CHILDREN = 2, 12


@dataclass(slots=True)
class Node:
    """A JSON value of a tree. `left_out` counts children or characters that are not shown."""

    kind: str
    key: str = ""
    text: str = ""
    count: int = 0
    left_out: int = 0
    is_open: bool = False
    children: Sequence[Node] = field(default_factory=list)


def tree_of(value: Any) -> Node:
    return _TreeBuilder(_MAX_NODES).node("", value, 0)


class _TreeBuilder:
    """Builds nodes within the limits on nodes and characters."""

    def __init__(self, left: int) -> None:
        self.left, self.chars = left, _MAX_TOTAL

    def node(self, key: str, value: Any, depth: int) -> Node:
        self.left -= 1
        key = key if len(key) <= 200 else f"{key[:200]}…"
        if isinstance(value, str):
            most = min(_MAX_CHARS if depth else _MAX_TEXT, max(self.chars, 40))
            self.chars -= min(most, len(value))
            return Node("text", key, value[:most], len(value), max(0, len(value) - most))
        if not isinstance(value, dict | list):
            text = json.dumps(value)
            kind = "number" if isinstance(value, int | float) and not isinstance(value, bool) else "word"
            return Node(kind, key, text[:_MAX_CHARS], left_out=max(0, len(text) - _MAX_CHARS))
        kind = "object" if isinstance(value, dict) else "list"
        children = list(self._children(value, depth)) if depth < _MAX_DEPTH else []
        is_open = depth < _OPEN_DEPTH and (depth == 0 or len(value) <= _OPEN_CHILDREN)
        return Node(kind, key, "", len(value), len(value) - len(children), is_open, children)

    def _children(self, value: dict[str, Any] | list[Any], depth: int) -> Iterator[Node]:
        named = value.items() if isinstance(value, dict) else enumerate(value)
        for at, (key, one) in enumerate(named):
            if at == _MAX_CHILDREN or self.left <= 0:
                return
            yield self.node(str(key), one, depth + 1)
