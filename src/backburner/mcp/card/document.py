"""The page of the card: one HTML document with its style and its script in it, and no request to anywhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from ...version import VERSION

#: The same in every release: a chat that is opened again asks for the page of its day.
ADDRESS = "ui://backburner/task-card.html"
_PARTS = ("card.css", "text.js", "host.js", "forms.js", "files.js", "card.js")


@cache
def page() -> str:
    parts = files(__package__) / "page"
    html = (parts / "card.html").read_text("utf-8")
    for name in _PARTS:
        html = html.replace(f"/* {name} */", (parts / name).read_text("utf-8"))
    return html.replace("{VERSION}", VERSION)
