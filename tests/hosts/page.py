"""The findings that are kept, and their tables: docs/explanation/hosts.md, and a row for each timeout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from tests.hosts.hosts import HOSTS, ROOT
from tests.hosts.run import ENDLESS, TOOLS, Case, Finding

PAGE = ROOT / "docs" / "explanation" / "hosts.md"
KEPT = Path(__file__).with_name("findings.json")
#: The timeout of hosts, beside their default.
SHORT_S = 15
_BEGIN, _END = "<!-- hosts -->\n", "<!-- /hosts -->"
#: The tool with an estimate matters only to hosts with tasks; the table of all cases has it.
_SHOWN = [tool for tool in TOOLS if tool != "estimated"]
_SUMS = ("Results lost", "Duplicate runs", "Cancelled")


@dataclass
class Kept:
    """The last finding of each case, and the version of each host."""

    versions: dict[str, str] = field(default_factory=dict)
    findings: dict[Case, Finding] = field(default_factory=dict)

    def add(self, found: Finding) -> None:
        self.findings[found.case] = found
        self.versions[found.case.host] = HOSTS[found.case.host].version()

    def of(self, host: str) -> list[Finding]:
        return [found for case, found in self.findings.items() if case.host == host]

    def save(self, file: Path) -> None:
        lines = ",\n  ".join(json.dumps(asdict(found)) for found in self.findings.values())
        file.write_text(f'{{"versions": {json.dumps(self.versions)},\n "findings": [\n  {lines}\n]}}\n')

    @classmethod
    def load(cls, file: Path) -> Self:
        """Return the findings of a file; none if it is missing."""
        if not file.exists():
            return cls()
        content = json.loads(file.read_text())
        findings = [Finding(**{**found, "case": Case(**found["case"])}) for found in content["findings"]]
        return cls(content["versions"], {found.case: found for found in findings})


def filled_in(text: str, kept: Kept) -> str:
    """Return the text of the page with the table of these findings."""
    before, _, rest = text.partition(_BEGIN)
    after = rest.partition(_END)[2]
    times = " · ".join(f"{TOOLS[tool]:g}" for tool in _SHOWN)
    head = ("Host", "Version", "Protocol", "Client name", "Gives up after", f"Turns, {times} s")
    rows = [_row(name, kept) for name in HOSTS if kept.of(name)]
    table = _table((*head, f"With a {SHORT_S} s timeout", *_SUMS), rows)
    return f"{before}{_BEGIN}\n{table}\n{_END}{after}"


def details(kept: Kept) -> str:
    """Return the table of all cases: a row for each host and timeout."""
    head = ("Host", "Timeout", *(f"{tool}, {seconds:g} s" for tool, seconds in TOOLS.items()), *_SUMS)
    rows = []
    for name, host in HOSTS.items():
        for timeout in (None, SHORT_S):
            found = [each for each in kept.of(name) if each.case.timeout_s == timeout]
            if tools := [each for each in found if each.case.tool in TOOLS]:
                turns = [_turns(tools, [tool]) for tool in TOOLS]
                rows.append((host.title, f"{timeout} s" if timeout else "default", *turns, *_sums(tools)))
    return _table(head, rows)


def _row(name: str, kept: Kept) -> Sequence[str]:
    found = kept.of(name)
    tools = [each for each in found if each.case.tool in TOOLS]
    default, short = ([each for each in tools if each.case.timeout_s == limit] for limit in (None, SHORT_S))
    return (
        HOSTS[name].title,
        kept.versions[name],
        max(each.protocol for each in found),
        f"`{max(each.client for each in found)}`",
        _patience(found),
        _turns(default, _SHOWN),
        _turns(short, _SHOWN),
        *_sums(tools),
    )


def _patience(found: Sequence[Finding]) -> str:
    certain = [each for each in found if each.called and (each.gave_up_s is not None or not each.lost)]
    limits = {each.case.tool: each.gave_up_s for each in certain if each.case.tool in ENDLESS}
    if limits.keys() != {*ENDLESS}:
        return "not measured"
    silent, lively = (limits[tool] for tool in ENDLESS)
    if silent is None:
        return "not within 11 min"
    return f"{silent:.0f} s" if lively is not None else f"{silent:.0f} s without progress"


def _turns(found: Iterable[Finding], tools: Sequence[str]) -> str:
    """Return the turns for each tool, with † where the result was lost."""
    by_tool = {each.case.tool: each for each in found if each.called}
    shown = (by_tool.get(tool) for tool in tools)
    return " · ".join("–" if each is None else f"{each.turns}{'†' * each.lost}" for each in shown)


def _sums(found: Sequence[Finding]) -> tuple[str, str, str]:
    called = [each for each in found if each.called]
    duplicates = sum(max(each.runs - 1, 0) for each in called)
    return (
        str(sum(each.lost for each in called)),
        str(duplicates),
        str(sum(each.cancelled for each in called)),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))
