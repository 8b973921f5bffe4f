"""The science pack: geometry optimizations with ASE, and parameter sweeps over them (extra `science`).

`backburner serve backburner.packs.science` serves it; `science.add_to(bb)` adds its tools to another app.
"""

from __future__ import annotations

import base64
import csv
import inspect
import io
import itertools
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ..app import Backburner
from ..core.task import Task
from ..errors import ConfigError, TaskNotFound, ToolDefinitionError
from ..service.tasks import TaskService
from ..store import open_store
from ..tools.context import TaskContext

if TYPE_CHECKING:
    from ase import Atoms

__all__ = ["add_to", "bb", "run_geometry_optimization"]

# mypy: disallow-untyped-calls = False
# (ASE has annotations only in part.)

#: Functions that make a calculator, by name.
Calculators = Mapping[str, Callable[[], Any]]
Format = Literal["auto", "cif", "xyz", "poscar"]
OptimizerName = Literal["BFGS", "BFGSLineSearch", "FIRE", "LBFGS", "MDMin"]
Structure = Annotated[str, Field(description="The atoms, as the text of a CIF, XYZ or POSCAR file")]

_TOOL = "run_geometry_optimization"
_ASE_FORMATS = {"cif": "cif", "xyz": "extxyz", "poscar": "vasp"}
_CIF = re.compile(r"^\s*(data_|loop_|_cell_|_atom_)", re.MULTILINE)
_CHECKPOINT_EVERY_STEPS = 5
_CHECKPOINT_SHARE = 0.1  # the largest share of the time for checkpoints
_INTERMEDIATE_EVERY_S = 30.0
#: State that an optimizer needs to resume, and does not dump itself.
_MORE_STATE = {"FIRE": ("a", "Nsteps"), "BFGSLineSearch": ("alpha_k", "p", "force_calls", "function_calls")}
_MAX_POINTS = 1_000
_POLL_S = 0.5


def add_to(app: Backburner, *, calculators: Calculators | None = None) -> None:
    """Add the tools of this pack to an app.

    `calculators` adds to those of ASE: each is a function or class that makes a calculator for one task.
    Raises ToolDefinitionError.
    """
    further: Mapping[str, Any] = calculators or {}
    for name, make in further.items():
        if not callable(make):
            reason = f"calculators[{name!r}] must be a function or class that makes a calculator"
            raise ToolDefinitionError(tool_name=_TOOL, reason=reason)

    def run_parameter_sweep(
        structure: Structure,
        parameters: Annotated[
            dict[str, list[Any]], Field(description="The values to try, by input, as {'fmax': [0.1, 0.01]}")
        ],
        fixed: Annotated[
            dict[str, Any] | None, Field(description="Inputs that are the same at every point")
        ] = None,
        *,
        ctx: TaskContext,
    ) -> dict[str, Any]:
        """Relax a structure at every combination of parameters, each as a child task; compare the energies.

        `parameters` lists the values to try for inputs of run_geometry_optimization, for example
        {"fmax": [0.1, 0.01], "optimizer": ["BFGS", "FIRE"]}; `fixed` holds inputs that are the same
        for all points.
        """
        return _sweep(app, {"structure": structure, **(fixed or {})}, parameters, ctx)

    description = inspect.getdoc(run_geometry_optimization) or ""
    if further:
        description += f"\n\nFurther calculators: {', '.join(further)}."
    options: dict[str, Any] = {"queue": "cpu_heavy", "timeout": "24h", "estimate": _estimate}
    app.tool(description=description, **options)(_optimization(further))
    app.tool(queue="cpu_small", timeout="7d")(run_parameter_sweep)


def _estimate(inputs: Mapping[str, Any]) -> float:
    """Return the runtime with a cheap force field, as a first estimate."""
    atoms = len(inputs["structure"].splitlines())
    return 1.0 + 0.0005 * atoms * float(inputs.get("steps", 200))


def _optimization(calculators: Calculators) -> Callable[..., dict[str, Any]]:
    """Return run_geometry_optimization with further calculators."""

    def run_geometry_optimization(
        structure: Structure,
        fmax: Annotated[float, Field(description="The force to get below, in eV/Å; above 0")] = 0.05,
        steps: Annotated[int, Field(description="The maximum number of steps")] = 200,
        optimizer: Annotated[OptimizerName, Field(description="The optimizer of ASE")] = "BFGS",
        calculator: Annotated[str, Field(description="The name of the calculator")] = "EMT",
        structure_format: Annotated[Format, Field(description="The format of structure")] = "auto",
        *,
        ctx: TaskContext,
    ) -> dict[str, Any]:
        """Relax a structure (CIF, XYZ or POSCAR text) until its largest force is below fmax (eV/Å).

        The calculator is one of ASE's, by name. The trajectory, a plot and the relaxed structure are
        artifacts. A run that was killed resumes from its last checkpoint, on the same path.
        """
        _require_ase()
        if not fmax > 0 or steps < 0:
            raise ValueError("fmax must be above 0, and steps at least 0.")
        atoms = read_structure(structure, structure_format)
        atoms.calc = _make_calculator(calculator, calculators)
        _check_calculator(atoms, calculator)
        run = _Relaxation(atoms, optimizer, ctx)
        converged = run.relax(fmax, steps)
        return {"status": "success" if converged else "not_converged", **run.store_results(calculator)}

    return run_geometry_optimization


run_geometry_optimization = _optimization({})


def _require_ase() -> None:
    try:
        import ase  # noqa: F401
    except ImportError:
        raise ImportError("This tool needs ASE: pip install 'backburner[science]'") from None


def read_structure(text: str, text_format: Format = "auto") -> Atoms:
    """Return the atoms in a CIF, XYZ or POSCAR text. Raises ValueError."""
    import ase.io
    import numpy as np

    if not text.strip():
        raise ValueError("The structure is empty.")
    chosen = guess_format(text) if text_format == "auto" else text_format
    try:
        atoms = ase.io.read(io.StringIO(text), format=_ASE_FORMATS[chosen])
    except Exception as error:  # the readers may raise anything
        reason = str(error) or type(error).__name__
        raise ValueError(f"The structure cannot be read as {chosen.upper()}: {reason}") from error
    if isinstance(atoms, list) or len(atoms) == 0:
        raise ValueError("There are no atoms in the structure.")
    if not np.isfinite(atoms.positions).all() or not np.isfinite(atoms.cell.array).all():
        raise ValueError("A position or the cell of the structure is not a finite number.")
    return atoms


def guess_format(text: str) -> Literal["cif", "xyz", "poscar"]:
    """Return the format of a text: XYZ starts with the number of atoms, CIF has keywords."""
    if text.lstrip().split(None, 1)[0].isdigit() and len(text.splitlines()[0].split()) == 1:
        return "xyz"
    return "cif" if _CIF.search(text) else "poscar"


def _make_calculator(name: str, further: Calculators) -> Any:
    from ase.calculators.calculator import get_calculator_class
    from ase.calculators.names import names

    own = {known.lower(): make for known, make in further.items()}
    if name.lower() not in (*own, *names):
        known = ", ".join([*further, *names])
        raise ValueError(f"There is no calculator named {name!r}. Known ones: {known}.")
    try:
        return own[name.lower()]() if name.lower() in own else get_calculator_class(name.lower())()
    except Exception as error:  # most need a program or a file
        raise ValueError(f"The calculator {name} cannot be used here: {error}") from error


def _check_calculator(atoms: Atoms, name: str) -> None:
    import numpy as np

    try:
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    except Exception as error:
        raise ValueError(f"The calculator {name} cannot treat {atoms.symbols}: {error}") from error
    if not (np.isfinite(energy) and np.isfinite(forces).all()):
        raise ValueError("The energy or a force is not finite: do some atoms sit on top of each other?")


@dataclass
class _Path:
    """Positions, forces and energy of the atoms at each step."""

    positions: list[Any] = field(default_factory=list)
    forces: list[Any] = field(default_factory=list)
    energies: list[float] = field(default_factory=list)

    def add(self, atoms: Atoms) -> None:
        self.positions.append(atoms.get_positions())
        self.forces.append(atoms.get_forces())
        self.energies.append(float(atoms.get_potential_energy()))

    @property
    def steps(self) -> int:
        return len(self.energies) - 1

    @property
    def largest_forces(self) -> list[float]:
        return [float((forces**2).sum(axis=1).max() ** 0.5) for forces in self.forces]


class _Relaxation:
    """One optimization, which resumes from the checkpoint of an earlier attempt."""

    def __init__(self, atoms: Atoms, name: str, ctx: TaskContext) -> None:
        import ase.optimize

        self._atoms = atoms
        self._name = name
        self._ctx = ctx
        self._path = _Path()
        self._state: Any = None
        self._optimizer: Any = getattr(ase.optimize, name)(atoms, logfile=None)
        self._optimizer.dump = self._store_state  # instead of a restart file at every step
        self._resumed_from: int | None = None
        if ctx.checkpoint_data:
            self._resume(ctx.checkpoint_data)
        self._checkpoint_step, self._checkpoint_at = self._path.steps, 0.0
        self._intermediate_at = float("-inf")

    def relax(self, fmax: float, steps: int) -> bool:
        """Run until the forces are below fmax or no steps are left, and return whether it converged."""
        for _ in self._optimizer.irun(fmax=fmax, steps=steps - self._optimizer.nsteps):
            self._ctx.raise_if_cancelled()
            step = self._optimizer.nsteps
            if step <= self._path.steps:
                continue  # a resumed run starts with the last stored step
            self._path.add(self._atoms)
            energy, force = self._path.energies[-1], self._path.largest_forces[-1]
            self._ctx.log(f"step={step} energy={energy:.6f} fmax={force:.6f}")
            self._ctx.progress(
                step,
                steps,
                phase="relaxation",
                message=f"Energy {energy:.4f} eV, largest force {force:.4f} eV/Å",
                energy_ev=energy,
                fmax_ev_per_angstrom=force,
            )
            self._checkpoint_if_due(step)
        return self._path.largest_forces[-1] < fmax

    def _store_state(self, state: Any) -> None:
        self._state = state

    def _checkpoint_if_due(self, step: int) -> None:
        began = time.monotonic()
        if step < self._checkpoint_step + _CHECKPOINT_EVERY_STEPS or began < self._checkpoint_at:
            return
        more = {name: getattr(self._optimizer, name) for name in _MORE_STATE.get(self._name, ())}
        path = [self._path.positions, self._path.forces, self._path.energies]
        self._ctx.checkpoint({"step": step, "state": _pack([self._state, more]), "path": _pack(path)})
        if began > self._intermediate_at + _INTERMEDIATE_EVERY_S:
            self._ctx.artifact(self._write_trajectory("opt-intermediate.traj"), kind="trajectory")
            self._intermediate_at = began
        now = time.monotonic()
        self._checkpoint_step = step
        self._checkpoint_at = now + (now - began) / _CHECKPOINT_SHARE

    def _resume(self, checkpoint: dict[str, Any]) -> None:
        state, more = _unpack(checkpoint["state"])
        self._path = _Path(*_unpack(checkpoint["path"]))
        self._atoms.set_positions(self._path.positions[-1])
        self._optimizer.load = lambda: state
        self._optimizer.read()
        for name, value in more.items():
            setattr(self._optimizer, name, value)
        self._optimizer.nsteps = self._resumed_from = checkpoint["step"]
        self._ctx.log(f"resuming after step {checkpoint['step']}")

    def store_results(self, calculator: str) -> dict[str, Any]:
        import ase.io

        path = self._path
        relaxed = self._ctx.scratch / "relaxed.xyz"
        ase.io.write(relaxed, self._atoms, format="extxyz")
        self._ctx.artifact(self._write_trajectory("opt.traj"), kind="trajectory")
        self._ctx.artifact(relaxed, kind="structure")
        self._ctx.artifact(_plot(path.energies, path.largest_forces), "opt.png", kind="plot")
        return {
            "energy_ev": path.energies[-1],
            "energy_change_ev": path.energies[-1] - path.energies[0],
            "fmax_ev_per_angstrom": path.largest_forces[-1],
            "n_steps": path.steps,
            "resumed_from_step": self._resumed_from,
            "formula": self._atoms.get_chemical_formula(),
            "n_atoms": len(self._atoms),
            "optimizer": self._name,
            "calculator": calculator,
        }

    def _write_trajectory(self, name: str) -> Path:
        from ase.calculators.singlepoint import SinglePointCalculator
        from ase.io import Trajectory

        file, path = self._ctx.scratch / name, self._path
        with Trajectory(file, "w") as trajectory:
            for positions, forces, energy in zip(path.positions, path.forces, path.energies, strict=True):
                frame = self._atoms.copy()
                frame.positions = positions
                frame.calc = SinglePointCalculator(frame, energy=energy, forces=forces)
                trajectory.write(frame)
        return file


def _plot(energies: list[float], forces: list[float]) -> bytes:
    """Return a PNG of the energy and the largest force at each step."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(energies, color="tab:blue")
    above.set_ylabel("energy (eV)")
    below.semilogy(forces, color="tab:red")
    below.set_ylabel("largest force (eV/Å)")
    below.set_xlabel("step")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=120)
    return image.getvalue()


def _pack(value: Any) -> Any:
    """Return numbers, lists and arrays as JSON without loss; equal shapes in a list become one array."""
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        data = base64.b64encode(zlib.compress(value.tobytes(), 1)).decode()
        return {"dtype": value.dtype.str, "shape": value.shape, "data": data}
    if isinstance(value, dict):
        return {"dict": {key: _pack(item) for key, item in value.items()}}
    if isinstance(value, list | tuple):
        kinds = {(item.shape, item.dtype) if isinstance(item, np.ndarray) else None for item in value}
        if len(kinds) == 1 and None not in kinds:
            return {"list": _pack(np.stack(value))}
        return [_pack(item) for item in value]
    return value


def _unpack(value: Any) -> Any:
    import numpy as np

    if isinstance(value, list):
        return [_unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "list" in value:
        return list(_unpack(value["list"]))
    if "dict" in value:
        return {key: _unpack(item) for key, item in value["dict"].items()}
    data = zlib.decompress(base64.b64decode(value["data"]))
    return np.frombuffer(data, dtype=np.dtype(value["dtype"])).reshape(value["shape"]).copy()


def _sweep(
    app: Backburner, fixed: dict[str, Any], grid: dict[str, list[Any]], ctx: TaskContext
) -> dict[str, Any]:
    """Run the optimization at each point of the grid as a child task, and compare the results.

    The idempotency keys come from the sweep's id, so that a retried sweep finds its children again. The sweep
    waits in another queue, so that it never occupies a worker that its children need.
    """
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if not 1 <= len(points) <= _MAX_POINTS:
        raise ValueError(f"A sweep has from 1 to {_MAX_POINTS} points, not {len(points)}.")
    with _service(app, ctx) as service:
        children = [
            service.submit(
                _TOOL,
                {**fixed, **point},
                owner=ctx.owner,
                parent_id=ctx.task_id,
                idempotency_key=f"{ctx.task_id}:{number}",
                tags=ctx.tags,
            ).task_id
            for number, point in enumerate(points)
        ]
        tasks = _wait_for_all(service, children, ctx)
    table = [_row(point, task) for point, task in zip(points, tasks, strict=True)]
    out = io.StringIO()
    writer = csv.DictWriter(out, table[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    ctx.artifact(out.getvalue().encode(), "sweep.csv", kind="table")
    succeeded = [row for row in table if row["energy_ev"] is not None]
    return {
        "n_points": len(points),
        "n_succeeded": len(succeeded),
        "best": min(succeeded, key=lambda row: row["energy_ev"], default=None),
        "points": table,
    }


@contextmanager
def _service(app: Backburner, ctx: TaskContext) -> Iterator[TaskService]:
    """Open a service on the store of the sweep's own task."""
    with closing(open_store(app.settings.store, synchronous=app.settings.sqlite.synchronous)) as store:
        try:
            own = store.get(ctx.task_id, ctx.owner)
        except TaskNotFound:
            reason = "a sweep needs a store that its runner can open: a file, or PostgreSQL"
            raise ConfigError(setting="store", reason=reason) from None
        with closing(TaskService(store, app.tools, app.settings, target=own.target)) as service:
            yield service


def _wait_for_all(service: TaskService, children: list[str], ctx: TaskContext) -> list[Task]:
    """Return the finished children. A cancelled sweep cancels them."""
    tasks: list[Task] = []
    try:
        for done, child in enumerate(children):
            ctx.progress(done, len(children), phase="sweep", message=f"{done} of {len(children)} points done")
            while not (task := service.wait(child, _POLL_S, owner=ctx.owner).task).finished:
                ctx.raise_if_cancelled()
            tasks.append(task)
    finally:
        for child in children[len(tasks) :]:
            service.cancel(child, owner=ctx.owner, reason=f"its sweep {ctx.task_id} ended")
    return tasks


def _row(point: dict[str, Any], task: Task) -> dict[str, Any]:
    result = task.result if isinstance(task.result, dict) else {}
    return {
        **point,
        "task_id": task.task_id,
        "state": str(task.state),
        "energy_ev": result.get("energy_ev"),
        "n_steps": result.get("n_steps"),
        "error": task.error.message if task.error else None,
    }


bb = Backburner("science")
add_to(bb)
