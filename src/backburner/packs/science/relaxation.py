"""run_geometry_optimization: relax a structure with ASE, step by step, resumable after a crash."""

# mypy: disallow-untyped-calls = False
# (ASE has annotations only in part.)

from __future__ import annotations

import base64
import io
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from backburner.context import TaskContext

from .structures import Calculators, Format, check_calculator, make_calculator, read_structure, require_ase

if TYPE_CHECKING:
    from ase import Atoms

OptimizerName = Literal["BFGS", "BFGSLineSearch", "FIRE", "LBFGS", "MDMin"]

_CHECKPOINT_EVERY_STEPS = 5
_CHECKPOINT_SHARE = 0.1  # of the time, at most, goes into checkpoints
_SHOW_EVERY_S = 30.0
#: What an optimizer needs to go on as if nothing had happened, and does not dump by itself.
_MORE_STATE = {"FIRE": ("a", "Nsteps"), "BFGSLineSearch": ("alpha_k", "p", "force_calls", "function_calls")}


def optimization(calculators: Calculators) -> Callable[..., dict[str, Any]]:
    """Return run_geometry_optimization with further calculators, by name."""

    def run_geometry_optimization(
        structure: Annotated[str, Field(description="The atoms, as the text of a CIF, XYZ or POSCAR file")],
        fmax: Annotated[float, Field(description="The force to get below, in eV/Å; above 0")] = 0.05,
        steps: Annotated[int, Field(description="How many steps, at most")] = 200,
        optimizer: Annotated[OptimizerName, Field(description="The optimizer of ASE to use")] = "BFGS",
        calculator: Annotated[str, Field(description="The calculator to use, by its name")] = "EMT",
        structure_format: Annotated[
            Format, Field(description="The format of structure; auto finds it out")
        ] = "auto",
        *,
        ctx: TaskContext,
    ) -> dict[str, Any]:
        """Relax a structure (CIF, XYZ or POSCAR text) until its largest force is below fmax (eV/Å).

        The calculator is one of ASE's, by name. The trajectory, a plot and the relaxed structure are
        artifacts. A run that was killed goes on at its last checkpoint, on the same path.
        """
        require_ase()
        if not fmax > 0 or steps < 0:
            raise ValueError("fmax must be above 0, and steps at least 0.")
        atoms = read_structure(structure, structure_format)
        atoms.calc = make_calculator(calculator, calculators)
        check_calculator(atoms, calculator)
        run = _Relaxation(atoms, optimizer, ctx)
        converged = run.relax(fmax, steps)
        return {"status": "success" if converged else "not_converged", **run.keep_results(calculator)}

    return run_geometry_optimization


run_geometry_optimization = optimization({})


@dataclass
class _Path:
    """Where the atoms were at each step, and what energy and forces they had there."""

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
    def __init__(self, atoms: Atoms, name: str, ctx: TaskContext) -> None:
        import ase.optimize

        self._atoms = atoms
        self._name = name
        self._ctx = ctx
        self._path = _Path()
        self._state: Any = None
        self._optimizer: Any = getattr(ase.optimize, name)(atoms, logfile=None)
        self._optimizer.dump = self._take_state  # in place of a restart file at every step
        self._resumed_from: int | None = None
        if ctx.checkpoint_data:
            self._resume(ctx.checkpoint_data)
        self._checkpoint_step, self._checkpoint_at = self._path.steps, 0.0
        self._shown_at = float("-inf")

    def relax(self, fmax: float, steps: int) -> bool:
        """Go on until the forces are below fmax or there are no steps left; whether it converged."""
        for _ in self._optimizer.irun(fmax=fmax, steps=steps - self._optimizer.nsteps):
            self._ctx.raise_if_cancelled()
            step = self._optimizer.nsteps
            if step <= self._path.steps:
                continue  # a resumed run begins with the step that it has already
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
            self._checkpoint_now_and_then(step)
        return self._path.largest_forces[-1] < fmax

    # -- checkpoints

    def _take_state(self, state: Any) -> None:
        self._state = state

    def _checkpoint_now_and_then(self, step: int) -> None:
        began = time.monotonic()
        if step < self._checkpoint_step + _CHECKPOINT_EVERY_STEPS or began < self._checkpoint_at:
            return
        more = {name: getattr(self._optimizer, name) for name in _MORE_STATE.get(self._name, ())}
        path = self._path
        kept = [path.positions, path.forces, path.energies]
        self._ctx.checkpoint({"step": step, "state": _pack([self._state, more]), "path": _pack(kept)})
        if began > self._shown_at + _SHOW_EVERY_S:
            self._ctx.artifact(self._write_trajectory("opt-intermediate.traj"), kind="trajectory")
            self._shown_at = began
        now = time.monotonic()
        self._checkpoint_step = step
        self._checkpoint_at = now + (now - began) / _CHECKPOINT_SHARE

    def _resume(self, kept: dict[str, Any]) -> None:
        state, more = _unpack(kept["state"])
        self._path = _Path(*_unpack(kept["path"]))
        self._atoms.set_positions(self._path.positions[-1])
        self._optimizer.load = lambda: state
        self._optimizer.read()
        for name, value in more.items():
            setattr(self._optimizer, name, value)
        self._optimizer.nsteps = self._resumed_from = kept["step"]
        self._ctx.log(f"going on after step {kept['step']}")

    # -- results

    def keep_results(self, calculator: str) -> dict[str, Any]:
        import ase.io

        path = self._path
        relaxed = self._ctx.scratch / "relaxed.xyz"
        ase.io.write(relaxed, self._atoms, format="extxyz")
        self._ctx.artifact(self._write_trajectory("opt.traj"), kind="trajectory")
        self._ctx.artifact(relaxed, kind="structure")
        self._ctx.artifact(plot(path.energies, path.largest_forces), "opt.png", kind="plot")
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


def plot(energies: list[float], forces: list[float]) -> bytes:
    """Energy and largest force over the steps, as a PNG."""
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
    """Numbers, lists and arrays as JSON, every bit kept; equal shapes in a list make one array."""
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
