"""Where a supervisor and its zygotes import from: what the server does, but not in the tools' environment.

The server's `sys.path` travels in PYTHONPATH. A tool's own child processes must not see it there:
they may be of another Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

_PATH, _KEPT = "PYTHONPATH", "BACKBURNER_PYTHONPATH"


def environment(
    variables: Mapping[str, str] | None = None, path: Iterable[str] | None = None
) -> dict[str, str]:
    """An environment for another Python that finds what one with these finds; else what this one finds."""
    variables = os.environ if variables is None else variables
    folders = os.pathsep.join(folder or str(Path.cwd()) for folder in (sys.path if path is None else path))
    return {_KEPT: variables.get(_PATH, ""), **variables, _PATH: folders}


def restore_environment() -> None:
    """Put PYTHONPATH back to what it was for the server; the import path stays as it is."""
    kept = os.environ.pop(_KEPT, None)
    if kept is not None:
        os.environ[_PATH] = kept
    if not os.environ.get(_PATH):
        os.environ.pop(_PATH, None)
