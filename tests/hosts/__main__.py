"""Run real hosts, and write the table of docs/explanation/hosts.md.

    python -m tests.hosts [HOST…] [--tools NAMES] [--kept FILE]

Each case is a host, a tool and a timeout. At most four run at once: they mostly wait.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.hosts import page
from tests.hosts.hosts import HOSTS, install
from tests.hosts.run import ENDLESS, TOOLS, Case, Finding, run_isolated
from tests.system.interop.environment import Unavailable

_AT_ONCE = 4
#: A host that waits only briefly for its server goes on without it on a busy machine.
_TRIES = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hosts", description="Run real hosts.")
    parser.add_argument("hosts", nargs="*", help=f"which of {', '.join(HOSTS)}; default: all")
    every_tool = ",".join((*TOOLS, *ENDLESS))
    parser.add_argument("--tools", default=every_tool, help=f"which of {every_tool}; default: all")
    parser.add_argument(
        "--kept", type=Path, default=page.KEPT, metavar="FILE", help="where findings are kept"
    )
    arguments = parser.parse_args()
    hosts, tools = arguments.hosts or [*HOSTS], arguments.tools.split(",")
    if unknown := {*hosts} - HOSTS.keys() | {*tools} - {*TOOLS, *ENDLESS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        print(
            "test-hosts: Linux with unshare and ip is needed (Debian: util-linux, iproute2)", file=sys.stderr
        )
        return 1
    try:
        install()
    except Unavailable as error:
        print(f"test-hosts: {error}", file=sys.stderr)
    for name in hosts:
        if HOSTS[name].find() is None:
            print(f"{HOSTS[name].title} is left out: `{HOSTS[name].program}` is not installed")
    there = [name for name in hosts if HOSTS[name].find()]
    cases = [Case(host, tool) for host in there for tool in tools]
    cases += [Case(host, tool, page.SHORT_S) for host in there for tool in tools if tool in TOOLS]
    cases.sort(key=lambda case: -case.limit_s)
    kept = page.Kept.load(arguments.kept)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for measured in as_completed([pool.submit(_measure, case) for case in cases]):
            if found := measured.result():
                kept.add(found)
                kept.save(arguments.kept)
    print(page.details(kept))
    if arguments.kept == page.KEPT:
        page.PAGE.write_text(page.filled_in(page.PAGE.read_text(), kept))
    return 0


def _measure(case: Case) -> Finding | None:
    found = None
    for _ in range(_TRIES):
        try:
            found = run_isolated(case)
        except Exception as error:
            print(f"{case.name}: {error}", file=sys.stderr, flush=True)
            continue
        if found.called:
            break
        print(f"{case.name}: the host did not call the tool", file=sys.stderr, flush=True)
    if found:
        lost = ", lost" * found.lost
        ended = f"{found.turns} turns, {found.runs} runs, {found.cancelled} cancelled{lost}"
        print(f"{case.name}: {ended} ({found.seconds:.0f} s)", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
