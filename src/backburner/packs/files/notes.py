"""A Markdown note, read: its title, headings, tags, front matter, `[[links]]` and plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*$\r?\n?", re.DOTALL | re.MULTILINE)
_TAG = re.compile(r"(?<![\w#/&])#([^\W\d][\w/-]*|\d[\w/-]*[^\W\d][\w/-]*)")
_WIKI_LINK = re.compile(r"\[\[([^\[\]\n|#^]*)((?:[#^][^\[\]\n|]*)?)(?:\|([^\[\]\n]*))?\]\]")
_MAX_FRONT_MATTER = 64 * 1024


class Link(NamedTuple):
    """`[[target#place|text]]`, or a Markdown link, which is relative to the note's folder."""

    target: str
    place: str
    line: int
    relative: bool = False


@dataclass
class Note:
    title: str = ""
    headings: list[tuple[int, str, int]] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)
    links: list[Link] = field(default_factory=list)
    front_matter: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    problem: str = ""


def read_note(source: str) -> Note:
    """What a note says. Front matter that is not valid is named in `problem`, and the rest is read."""
    note = Note()
    body, first_line = source.removeprefix("\ufeff"), 0
    if found := _FRONT_MATTER.match(body):
        note.front_matter, note.problem = _read_front_matter(found[1])
        first_line = body.count("\n", 0, found.end())
        body = body[found.end() :]
    parts: list[str] = []
    tokens = _parser().parse(body)
    for index, token in enumerate(tokens):
        if token.type in ("fence", "code_block"):
            parts.append(token.content)
        if token.type != "inline":
            continue
        line = first_line + (token.map[0] if token.map else 0) + 1
        text = "".join(_read_inline(token.children or [], line, note))
        parts.append(text)
        if tokens[index - 1].type == "heading_open":
            note.headings.append((int(tokens[index - 1].tag[1]), text.strip(), line))
    note.text = "\n".join(parts)
    note.tags.update(_front_tags(note.front_matter))
    first_heading = next((text for level, text, _ in note.headings if level == 1), "")
    note.title = _storable(str(note.front_matter.get("title") or "")).strip() or first_heading
    return note


def _read_inline(tokens: list[Token], line: int, note: Note) -> Iterator[str]:
    """The words of a paragraph, while its links and tags go to the note."""
    for token in tokens:
        if token.type in ("softbreak", "hardbreak"):
            line += 1
            yield "\n"
        elif token.type == "wiki_link":
            note.links.append(Link(token.meta["target"], token.meta["place"], line))
            yield token.content
        elif token.type == "link_open":
            target = str(token.attrGet("href") or "")
            path, _, place = target.partition("#")
            if path.lower().endswith(".md") and "://" not in path:
                note.links.append(Link(_unquoted(path), place, line, relative=True))
        elif token.type == "text":
            note.tags.update(tag.rstrip("/").lower() for tag in _TAG.findall(token.content))
            yield token.content
        elif token.type in ("code_inline", "image"):
            yield token.content


def _unquoted(path: str) -> str:
    from urllib.parse import unquote

    return unquote(path)


def _read_front_matter(text: str) -> tuple[dict[str, Any], str]:
    import yaml

    try:
        if len(text) > _MAX_FRONT_MATTER:
            raise ValueError("it is longer than 64 kB")
        if "*" in text and any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ValueError("it has aliases")  # a few lines of them can stand for gigabytes
        found = yaml.safe_load(text)
        if found is not None and not isinstance(found, dict):
            raise ValueError("it is not a list of names and values")
        plain: dict[str, Any] = json.loads(json.dumps(found or {}, default=str, allow_nan=False))
        return plain, ""
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        reason = getattr(error, "problem", None) or str(error)
        return {}, f"the front matter is not valid: {reason}"


def _front_tags(front_matter: dict[str, Any]) -> Iterator[str]:
    for key in ("tags", "tag"):
        given = front_matter.get(key) or []
        for tag in re.split(r"[,\s]+", given) if isinstance(given, str) else given:
            if isinstance(tag, str | int) and str(tag).strip("# /"):
                yield _storable(str(tag)).strip("# /").lower()


def _storable(text: str) -> str:
    """YAML's escapes can make text that neither UTF-8 nor a database can hold."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.inline.ruler.before("link", "wiki_link", _wiki_link)
    return parser


def _wiki_link(state: StateInline, silent: bool) -> bool:
    """The inline rule for `[[target#place|text]]`."""
    found = _WIKI_LINK.match(state.src, state.pos, state.posMax)
    if found is None or not (found[1].strip() or found[2]):
        return False
    if not silent:
        token = state.push("wiki_link", "", 0)
        target = found[1].strip().removesuffix("\\")  # in a table, the bar is written as \|
        token.meta = {"target": target, "place": found[2].strip()}
        token.content = found[3] or target or found[2]
    state.pos = found.end()
    return True
