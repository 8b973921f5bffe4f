"""Run the benchmarks: all of them, or those named. `python -m benchmarks [names…]`

A benchmark is a module of this package with a `main`; its first line says what it measures.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from types import ModuleType

import benchmarks


def find() -> dict[str, ModuleType]:
    names = [
        found.name for found in pkgutil.iter_modules(benchmarks.__path__) if not found.name.startswith("_")
    ]
    modules = {
        name: importlib.import_module(f"benchmarks.{name}") for name in names if not name.endswith("_app")
    }
    return {name: module for name, module in modules.items() if hasattr(module, "main")}


def run(names: list[str]) -> int:
    known = find()
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in names or known:
        print(f"\n{name}: {(known[name].__doc__ or '').splitlines()[0]}\n", flush=True)
        known[name].main()
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
