"""run_geometry_optimization and run_parameter_sweep, with ASE, through the real engine."""

# mypy: disallow-untyped-calls = False
# (ASE has annotations only in part.)

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import ase.io
import pytest
from ase.build import add_adsorbate, bulk, fcc111, molecule

from backburner import Backburner, Task
from backburner.errors import ToolDefinitionError
from backburner.packs import science
from backburner.packs.science import guess_format, read_structure
from tests.integration.packs.conftest import Run, artifact, finish, kill_runner


def as_text(atoms: Any, text_format: str) -> str:
    if text_format == "cif":
        binary = io.BytesIO()
        ase.io.write(binary, atoms, format="cif")
        return binary.getvalue().decode()
    text = io.StringIO()
    ase.io.write(text, atoms, format={"xyz": "xyz", "extxyz": "extxyz", "poscar": "vasp"}[text_format])
    return text.getvalue()


@pytest.fixture(scope="module")
def slab() -> str:
    """Carbon monoxide on a rough copper surface: some dozens of steps."""
    atoms = fcc111("Cu", (3, 3, 3), vacuum=8)
    add_adsorbate(atoms, molecule("CO"), 1.5, "bridge")
    atoms.rattle(0.15, seed=2)
    atoms.info.clear()
    return as_text(atoms, "extxyz")


@pytest.mark.parametrize("text_format", ["cif", "xyz", "extxyz", "poscar"])
def test_structures_are_read_in_the_usual_formats(text_format: str) -> None:
    atoms = bulk("Cu", cubic=True)
    text = as_text(atoms, text_format)
    assert guess_format(text) == text_format.removeprefix("ext")
    assert str(read_structure(text).symbols) == "Cu4"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"structure": " \n"}, "The structure is empty"),
        ({"structure": "nonsense"}, "cannot be read as POSCAR"),
        ({"structure": "2\n\nCu 0 0 0\n"}, "cannot be read as XYZ"),
        ({"structure": "0\n\n"}, "no atoms"),
        ({"structure": "1\n\nCu 0 0 nan\n"}, "not a finite number"),
        ({"structure": "1\n\nXx 0 0 0\n"}, "XYZ"),
        ({"structure": "1\n\nU 0 0 0\n"}, "The calculator EMT cannot treat U"),
        ({"structure": "2\n\nCu 0 0 0\nCu 0 0 0\n"}, "on top of each other"),
        (
            {"structure": "1\n\nCu 0 0 0\n", "calculator": "os.system"},
            "There is no calculator named 'os.system'. Known ones: lennard-jones-of-ours,",
        ),
        ({"structure": "1\n\nCu 0 0 0\n", "calculator": "vasp"}, "vasp cannot"),
        ({"structure": "1\n\nCu 0 0 0\n", "fmax": 0}, "fmax must be above 0"),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(bb: Backburner, inputs: dict[str, Any], message: str) -> None:
    error = finish(bb, bb.service.submit("run_geometry_optimization", inputs).task_id).error
    assert error is not None
    assert message in error.message


def test_an_unknown_optimizer_is_refused_before_there_is_a_task(bb: Backburner) -> None:
    with pytest.raises(Exception, match="'Magic' is not one of \\['BFGS'"):
        bb.service.submit("run_geometry_optimization", {"structure": "x", "optimizer": "Magic"})


def test_a_structure_is_relaxed_with_trajectory_plot_and_progress(
    bb: Backburner, slab: str, tmp_path: Path
) -> None:
    task = finish(bb, bb.service.submit("run_geometry_optimization", {"structure": slab}).task_id)
    assert task.error is None, task.error
    result = task.result
    assert result["status"] == "success"
    assert result["fmax_ev_per_angstrom"] < 0.05
    assert result["energy_change_ev"] < 0
    assert (result["formula"], result["n_atoms"]) == ("CCu27O", 29)
    assert task.progress is not None
    assert task.progress.context["energy_ev"] == result["energy_ev"]
    (tmp_path / "opt.traj").write_bytes(artifact(bb, task.task_id, "opt.traj"))
    frames: Any = ase.io.read(tmp_path / "opt.traj", ":")
    assert len(frames) == result["n_steps"] + 1
    assert frames[-1].get_potential_energy() == result["energy_ev"]
    assert artifact(bb, task.task_id, "opt.png").startswith(b"\x89PNG")
    assert artifact(bb, task.task_id, "opt-intermediate.traj")
    relaxed = read_structure(artifact(bb, task.task_id, "relaxed.xyz").decode())
    assert relaxed.positions == pytest.approx(frames[-1].positions, abs=1e-6)


def test_an_app_adds_calculators_of_its_own(bb: Backburner, run: Run) -> None:
    """EMT, the default, has no argon; the app's own calculator is found by its name in any case."""
    argon = "2\n\nAr 0 0 0\nAr 0 0 4.2\n"
    result = run("run_geometry_optimization", structure=argon, calculator="Lennard-Jones-of-Ours")
    assert (result["status"], result["formula"]) == ("success", "Ar2")
    assert "lennard-jones-of-ours" in bb.tools.get("run_geometry_optimization").description
    with pytest.raises(ToolDefinitionError, match="calculators\\['mine'\\]"):
        science.add_to(Backburner("other"), calculators={"mine": "not a maker"})  # type: ignore[dict-item]


def test_too_few_steps_end_without_convergence(run: Run, slab: str) -> None:
    result = run("run_geometry_optimization", structure=slab, steps=3)
    assert (result["status"], result["n_steps"]) == ("not_converged", 3)
    assert run("run_geometry_optimization", structure=slab, steps=0)["n_steps"] == 0


@pytest.mark.whole(but_first=1)
@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["BFGS", "LBFGS", "FIRE", "MDMin", "BFGSLineSearch"])
def test_a_killed_optimization_goes_on_and_ends_with_the_same_energy(
    bb: Backburner, slab: str, optimizer: str
) -> None:
    inputs = {"structure": slab, "optimizer": optimizer, "fmax": 0.01, "steps": 400}
    whole = finish(bb, bb.service.submit("run_geometry_optimization", inputs).task_id)
    assert whole.error is None, whole.error

    def half_way(task: Task) -> bool:
        return task.finished or (task.progress is not None and (task.progress.step or 0) > steps / 2)

    steps = whole.result["n_steps"]
    task_id = bb.service.submit("relax_to_a_halt", {**inputs, "halt_after": steps / 2}).task_id
    assert not bb.service.wait(task_id, 60, until=half_way).task.finished
    kill_runner(bb, task_id)
    task = finish(bb, task_id)
    assert task.error is None, task.error
    assert task.attempt == 2
    assert abs(task.result["energy_ev"] - whole.result["energy_ev"]) < 1e-6
    assert task.result["n_steps"] == steps
    assert task.result["resumed_from_step"] > 0
    before, after = steps_in_log(bb, task_id)
    assert max(before) > steps / 2
    assert len(after) < steps, "it began anew"


def steps_in_log(bb: Backburner, task_id: str) -> list[list[int]]:
    """The steps that each attempt computed. Step 0 is where the first one began."""
    log = "\n".join(line.message for line in bb.service.logs(task_id, limit=5000).lines)
    attempts = log.split("resuming after step")
    return [[int(step) for step in re.findall(r"step=([1-9]\d*) ", attempt)] for attempt in attempts]


@pytest.mark.whole
@pytest.mark.slow
def test_a_sweep_compares_child_tasks(bb: Backburner, slab: str) -> None:
    parameters = {"optimizer": ["BFGS", "FIRE"], "fmax": [0.2, 0.1]}
    inputs = {"structure": slab, "parameters": parameters, "fixed": {"steps": 100}}
    task = finish(bb, bb.service.submit("run_parameter_sweep", inputs, tags=["project:x"]).task_id)
    assert task.error is None, task.error
    assert (task.result["n_points"], task.result["n_succeeded"]) == (4, 4)
    assert task.result["best"]["fmax"] == 0.1
    children = bb.service.list(parent_id=task.task_id).tasks
    assert {child.task_id for child in children} == {point["task_id"] for point in task.result["points"]}
    assert {child.tags for child in children} == {("project:x",)}
    assert artifact(bb, task.task_id, "sweep.csv").startswith(b"optimizer,fmax,task_id,state,energy_ev")


def test_a_point_that_fails_is_a_line_of_the_sweep(run: Run) -> None:
    parameters = {"calculator": ["EMT", "LJ", "nonsense"]}
    result = run("run_parameter_sweep", structure="2\n\nCu 0 0 0\nCu 0 0 2.4\n", parameters=parameters)
    assert result["n_succeeded"] == 2
    assert "no calculator named 'nonsense'" in result["points"][2]["error"]


@pytest.mark.whole
def test_a_killed_sweep_finds_its_children_again(bb: Backburner, slab: str) -> None:
    inputs = {"structure": slab, "parameters": {"optimizer": ["BFGS", "LBFGS", "FIRE"]}}
    task_id = bb.service.submit("run_parameter_sweep", inputs).task_id
    bb.service.wait(task_id, 30, until=lambda task: task.progress is not None)
    kill_runner(bb, task_id)
    task = finish(bb, task_id)
    assert (task.error, task.attempt) == (None, 2)
    assert task.result["n_succeeded"] == 3
    assert len(bb.service.list(parent_id=task_id).tasks) == 3


def test_a_cancelled_sweep_cancels_its_children(bb: Backburner, slab: str) -> None:
    inputs = {"structure": slab, "parameters": {"fmax": [1e-9, 1e-10]}, "fixed": {"steps": 100_000}}
    task_id = bb.service.submit("run_parameter_sweep", inputs).task_id
    bb.service.wait(task_id, 30, until=lambda task: task.progress is not None)
    bb.service.cancel(task_id)
    assert finish(bb, task_id).state == "cancelled"
    for child in bb.service.list(parent_id=task_id).tasks:
        assert finish(bb, child.task_id).state == "cancelled"
