"""The app that these tests run: every pack, on the store that the environment names."""

# mypy: disallow-untyped-calls = False
# (ASE has annotations only in part.)

from __future__ import annotations

import ctypes
import importlib
from pathlib import Path
from typing import Any

import psutil

from backburner import Backburner, TaskContext
from backburner.packs import files, science
from backburner.packs.files.transform import Converter, Job
from backburner.packs.science import OptimizerName

#: A pack imports them when it is used: here each of some fifty runners would, and now inherits them.
for heavy in ("ase.calculators.emt", "ase.io", "ase.optimize", "matplotlib.figure"):
    importlib.import_module(heavy)

_VERSION_3 = 0x20080522
_SEE_EVERYTHING = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def make() -> Backburner:
    app = Backburner("packs")
    files.add_to(app)
    app.tool(isolation="fresh")(sync_without_privileges)
    app.tool(sync_while_files_vanish)
    app.tool(sync_to_a_halt)
    app.tool(convert_with_a_killer)
    science.add_to(app, calculators={"lennard-jones-of-ours": lennard_jones})
    app.tool(relax_to_a_halt)
    return app


def lennard_jones() -> Any:
    """Make a calculator with parameters for argon."""
    from ase.calculators.lj import LennardJones

    return LennardJones(sigma=3.4, epsilon=0.0104, rc=12.0)


def _halt(ctx: TaskContext, phase: str, after: float) -> None:
    """Have the first attempt stand still there, so that a test can strike."""
    say = ctx.progress

    def progress(*args: Any, **options: Any) -> None:
        say(*args, **options)
        while ctx.attempt == 1 and options["phase"] == phase and args[0] > after:
            if ctx.wait_cancelled(0.1):
                return
            say(*args, **options)

    ctx.progress = progress  # type: ignore[method-assign]


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


def sync_to_a_halt(path: str, ctx: TaskContext) -> dict[str, Any]:
    """Sync, but stand still when some files have been read."""
    _halt(ctx, "sync", 5000)
    return files.wksm_monitor_sync(path, ctx=ctx)


def convert_with_a_killer(paths: list[str], killer: str, ctx: TaskContext) -> dict[str, Any]:
    """Convert, and kill the converter's process when it has the document of that name."""
    convert = Converter.convert

    def convert_or_die(self: Converter, job: Job, to: str, overwrite: bool) -> str:
        if job.source.name == killer:
            for child in psutil.Process().children():
                child.kill()
        return convert(self, job, to, overwrite)

    Converter.convert = convert_or_die  # type: ignore[method-assign]
    try:
        return files.wksm_transform_batch(paths, "html", ctx=ctx)
    finally:
        Converter.convert = convert  # type: ignore[method-assign]


def relax_to_a_halt(
    structure: str, optimizer: OptimizerName, fmax: float, steps: int, halt_after: float, ctx: TaskContext
) -> dict[str, Any]:
    """Relax, but stand still after so many steps."""
    _halt(ctx, "relaxation", halt_after)
    return science.run_geometry_optimization(structure, fmax, steps, optimizer, ctx=ctx)


bb = make()
