"""The app that these tests run: every pack, on the store that the environment names."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from backburner import Backburner, TaskContext
from backburner.packs import files

_VERSION_3 = 0x20080522
_SEE_EVERYTHING = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def make() -> Backburner:
    app = Backburner("packs")
    files.add_to(app)
    app.tool(isolation="fresh")(sync_without_privileges)
    app.tool(sync_while_files_vanish)
    return app


def sync_without_privileges(path: str, ctx: TaskContext) -> dict[str, Any]:
    """Sync as one who may not read everything, also when the tests are run by root."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    sets[0] &= ~_SEE_EVERYTHING
    assert libc.capset(header, sets) == 0
    return files.wksm_monitor_sync(path, ctx=ctx)


def sync_while_files_vanish(path: str, vanish: list[str], ctx: TaskContext) -> dict[str, Any]:
    """Sync, and remove files after their folder was listed and before they are read."""
    say = ctx.progress

    def progress(*args: Any, **options: Any) -> None:
        if options["message"] == "Found 31 files...":
            for name in vanish:
                Path(path, name).unlink()
        say(*args, **options)

    ctx.progress = progress  # type: ignore[method-assign]
    return files.wksm_monitor_sync(path, ctx=ctx)


bb = make()
