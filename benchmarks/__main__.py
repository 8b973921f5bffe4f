"""Run the benchmarks: all of them, or those named. `python -m benchmarks [names…] [--save FILE]`

A benchmark is a module of this package with a `main`; its first line says what it measures. It prints what it
found, or gives it back: then it stands in the tables at the end, beside our peers and what we want to reach.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

from rich.console import Console

import benchmarks

from .report import Results, figures_table, targets_table


def find() -> dict[str, ModuleType]:
    names = [
        found.name for found in pkgutil.iter_modules(benchmarks.__path__) if not found.name.startswith("_")
    ]
    modules = {
        name: importlib.import_module(f"benchmarks.{name}") for name in names if not name.endswith("_app")
    }
    return {name: module for name, module in modules.items() if hasattr(module, "main")}


def run(names: list[str], save: Path | None) -> int:
    known = find()
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    results = Results()
    for name in names or known:
        print(f"\n{name}: {(known[name].__doc__ or '').splitlines()[0]}\n", flush=True)
        results.add(known[name].main())
        if save is not None:
            results.save(save)
    show(results)
    return 0


def show(results: Results) -> None:
    console = Console(width=max(Console().width, 130))
    for table in (figures_table(results), targets_table(results)):
        if table.rows:
            console.print("", table)
    for title, reason in results.left_out.items():
        console.print(f"{title} is left out: {reason}", markup=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run the benchmarks.")
    parser.add_argument("names", nargs="*", help="which of them; all, if none is named")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the figures there too, as JSON")
    arguments = parser.parse_args()
    return run(arguments.names, arguments.save)


if __name__ == "__main__":
    sys.exit(main())
