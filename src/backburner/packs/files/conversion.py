"""Convert one document between Markdown, HTML, CSV, JSON and text.

As a program (`python -m backburner.packs.files.conversion`) it reads one JSON line for each file. A document
that crashes, hangs or uses too much memory affects only this process.
"""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
import resource
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .tree import describe

if TYPE_CHECKING:
    from bs4 import BeautifulSoup
    from markdown_it import MarkdownIt


#: Formats by file suffix; the first suffix of a format is the one for new files.
SUFFIXES = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".csv": "csv",
    ".json": "json",
    ".txt": "text",
    ".text": "text",
}
FORMATS = tuple(dict.fromkeys(SUFFIXES.values()))
MAX_BYTES = 64 << 20
_MAX_MEMORY = 2 << 30

Rows = list[list[str]]


def convert(source: str, from_format: str, to_format: str) -> str:
    """Return a document in another format: tables through rows, all else through HTML. Raises ValueError."""
    if from_format == to_format:
        return source
    if to_format in _WRITE_ROWS:
        return _WRITE_ROWS[to_format](_READ_ROWS[from_format](source))
    return _WRITE_HTML[to_format](_READ_HTML[from_format](source))


def _markdown_to_html(source: str) -> str:
    return str(_markdown().render(source))


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _text_to_html(source: str) -> str:
    paragraphs = source.replace("\r\n", "\n").split("\n\n")
    return "\n".join(f"<p>{html.escape(part.strip(chr(10)))}</p>" for part in paragraphs if part.strip())


def _html_to_markdown(source: str) -> str:
    from markdownify import markdownify

    text: str = markdownify(str(_body(source)), heading_style="ATX", bullets="-")
    return text.strip() + "\n"


def _html_to_text(source: str) -> str:
    soup = _body(source)
    for cell in soup.find_all(["td", "th"]):
        cell.append("\t")
    for block in soup.find_all(["p", "div", "tr", "li", "br", "pre", "h1", "h2", "h3", "h4", "h5", "h6"]):
        block.append("\n")
    text = "\n".join(line.rstrip() for line in soup.get_text().splitlines())
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def _body(source: str) -> BeautifulSoup:
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(source, "html.parser")
    for hidden in soup(["script", "style", "head", "template"]):
        hidden.decompose()
    return soup


def _html_page(body: str) -> str:
    if "<html" in body[:1000].lower():
        return body
    return f'<!doctype html>\n<html>\n<head><meta charset="utf-8"></head>\n<body>\n{body}\n</body>\n</html>\n'


def _read_csv(source: str) -> Rows:
    if not source.strip():
        raise ValueError("the table is empty")
    try:
        dialect: Any = csv.Sniffer().sniff(source[:8192], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    return [row for row in csv.reader(io.StringIO(source), dialect) if row]


def _read_json(source: str) -> Rows:
    data = json.loads(source)
    if not _is_table(data):
        raise ValueError("it is not a table: a list of objects, or of lists, is needed")
    if isinstance(data[0], list):
        return [[_cell(value) for value in row] for row in data]
    columns = list(dict.fromkeys(key for row in data for key in row))
    return [columns, *([_cell(row.get(column)) for column in columns] for row in data)]


def _is_table(data: Any) -> bool:
    if not isinstance(data, list) or not data:
        return False
    return all(isinstance(row, dict) for row in data) or all(isinstance(row, list) for row in data)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _rows_of(page: str) -> Rows:
    table = _body(page).find("table")
    if table is None:
        raise ValueError("there is no table in it")
    return [
        [cell.get_text(" ", strip=True) for cell in row.find_all(["td", "th"])]
        for row in table.find_all("tr")
    ]


def _write_csv(rows: Rows) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def _write_json(rows: Rows) -> str:
    columns, *records = rows
    if len(set(columns)) < len(columns) or any(len(record) > len(columns) for record in records):
        return _pretty(rows)
    return _pretty([dict(zip(columns, record + [""] * len(columns), strict=False)) for record in records])


def _table(rows: Rows) -> str:
    def line(row: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

    first, *rest = rows
    body = "\n".join(line(row, "td") for row in rest)
    return f"<table>\n<thead>\n{line(first, 'th')}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _json_to_html(source: str) -> str:
    data = json.loads(source)
    if _is_table(data):
        return _table(_read_json(source))
    return f"<pre><code>{html.escape(_pretty(data))}</code></pre>"


def _pretty(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, indent=2) + "\n"


_READ_HTML: dict[str, Callable[[str], str]] = {
    "markdown": _markdown_to_html,
    "html": str,
    "text": _text_to_html,
    "csv": lambda source: _table(_read_csv(source)),
    "json": _json_to_html,
}
_WRITE_HTML: dict[str, Callable[[str], str]] = {
    "markdown": _html_to_markdown,
    "html": _html_page,
    "text": _html_to_text,
}
_READ_ROWS: dict[str, Callable[[str], Rows]] = {
    "markdown": lambda source: _rows_of(_markdown_to_html(source)),
    "html": _rows_of,
    "text": _read_csv,
    "csv": _read_csv,
    "json": _read_json,
}
_WRITE_ROWS: dict[str, Callable[[Rows], str]] = {"csv": _write_csv, "json": _write_json}


def convert_file(source: Path, target: Path, to_format: str, overwrite: bool) -> str:
    """Convert a file atomically, and return `written` or `unchanged`.

    Raises OSError, and ValueError for a different target without `overwrite`.
    """
    if not source.is_file():
        raise FileNotFoundError(source) if not source.exists() else ValueError("not a plain file")
    if source.stat().st_size > MAX_BYTES:
        raise ValueError(f"longer than {MAX_BYTES >> 20} MB")
    text = source.read_text("utf-8-sig")
    converted = convert(text, SUFFIXES[source.suffix.lower()], to_format).encode()
    if target.is_file():
        if target.read_bytes() == converted:
            return "unchanged"
        if not overwrite:
            raise ValueError(f"there is another {target.name} already")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(converted)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return "written"


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    for line in sys.stdin:
        order = json.loads(line)
        try:
            source, target = (Path(os.fsdecode(bytes.fromhex(order[key]))) for key in ("source", "target"))
            answer = {"done": convert_file(source, target, order["to"], order["overwrite"])}
        except Exception as error:
            answer = {"error": describe(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
