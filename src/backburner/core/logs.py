"""Rules for the lines of a task's log: lines hidden from clients, and lines that later ones replace."""

from __future__ import annotations

from collections.abc import Iterable

from .task import LogLine

#: The stream of lines that are hidden from clients.
OPERATOR_STREAM = "operator"
#: The end of a message that the next line of its stream replaces, such as a state of a progress bar.
UNFINISHED = "\r"


def is_unfinished(line: LogLine) -> bool:
    return line.message.endswith(UNFINISHED)


def text_of(line: LogLine) -> str:
    """The message of a line, for programs that show each line that they get."""
    return line.message.removesuffix(UNFINISHED)


def shown_lines(lines: Iterable[LogLine], *, operator: bool) -> list[LogLine]:
    """The lines without those that later ones replace; those for an operator only if one asks."""
    shown: list[LogLine] = []
    last: dict[str, LogLine] = {}
    for line in lines:
        if operator or line.stream != OPERATOR_STREAM:
            before = last.get(line.stream)
            if before is not None and is_unfinished(before):
                shown.remove(before)
            last[line.stream] = line
            shown.append(line)
    return shown
