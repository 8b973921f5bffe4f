"""The shell lines that the README and the docs print, by page and heading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^ *```$", re.DOTALL | re.MULTILINE)
_HERE_DOCUMENT = re.compile(r"<<-?'?(\w+)'?")
_NAMES_A_VERB = re.compile(
    r"backburner ([a-z][a-z-]*(?: (?:ls|get|new|task|revoke|stop|restart|pause|resume|reset|retry))?)"
)
_INLINE = re.compile(r"`([^`]*\bbackburner [^`]*)`")


@dataclass(frozen=True)
class Section:
    """What is printed under one heading, in its order. An `export` counts for the lines after it.

    `spoken` are lines in the middle of a sentence, which need not say where to look. `code` is the app
    that the section shows, if it does.
    """

    page: str
    heading: str
    lines: tuple[str, ...]
    spoken: frozenset[str]
    code: str

    def __str__(self) -> str:
        return f"{self.page}-{self.heading}"


def sections() -> list[Section]:
    """Every heading that has lines to type."""
    found = []
    for page in PAGES:
        for part in re.split(r"^(?=##+ )", page.read_text(), flags=re.MULTILINE):
            heading = part.splitlines()[0].strip("#` ") if part.startswith("##") else "top"
            printed, spoken = list(_printed(part)), list(_spoken(part))
            if lines := tuple(dict.fromkeys([*printed, *spoken])):
                code = next(iter(re.findall(r"```python\n(.*?)```", part, re.DOTALL)), "")
                found.append(Section(page.name, heading, lines, frozenset(spoken) - set(printed), code))
    return found


def _printed(part: str) -> Iterator[str]:
    for block in _BLOCK.finditer(part):
        text = re.sub(rf"^{block['indent']}", "", block["text"], flags=re.MULTILINE)
        if block["kind"] in ("sh", "bash", "console"):
            yield from _commands(text)
        elif block["kind"] == "ini":
            yield from re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        elif not block["kind"]:
            yield from re.findall(r"^\$ (.*)$", text, re.MULTILINE)


def _spoken(part: str) -> Iterator[str]:
    for span in _INLINE.findall(_BLOCK.sub("", part)):
        if not _NAMES_A_VERB.fullmatch(span):
            yield " ".join(span.split())


def _commands(text: str) -> Iterator[str]:
    """The lines of a block; one that goes on, as a here document does, is one."""
    lines = iter(text.splitlines())
    for line in lines:
        whole = [line.removeprefix("$ ")]
        while whole[-1].endswith("\\"):
            whole.append(next(lines))
        if (here := _HERE_DOCUMENT.search(line)) is not None:
            for following in lines:
                whole.append(following)
                if following.strip() == here[1]:
                    break
        command = "\n".join(whole)
        if command.partition("#")[0].strip():
            yield command


def mentioned_verbs() -> Iterator[tuple[str, str]]:
    """Each verb that a text names without more, such as `backburner doctor`, with the page."""
    for page in PAGES:
        for span in _INLINE.findall(_BLOCK.sub("", page.read_text())):
            if named := _NAMES_A_VERB.fullmatch(span):
                yield page.name, named[1]
