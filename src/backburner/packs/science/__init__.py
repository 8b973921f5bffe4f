"""The science pack: geometry optimizations with ASE, and sweeps over them (extra `science`).

`backburner serve backburner.packs.science` serves it; `science.add_to(bb)` adds its tools to another app.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from backburner.app import Backburner
from backburner.context import TaskContext
from backburner.errors import ToolDefinitionError

from .relaxation import optimization, run_geometry_optimization
from .structures import Calculators
from .sweep import sweep

__all__ = ["add_to", "bb", "run_geometry_optimization"]

_TOOL = "run_geometry_optimization"


def add_to(app: Backburner, *, calculators: Calculators | None = None) -> None:
    """Add the tools of this pack to an app.

    `calculators` are further ones beside ASE's, by name: each a function without arguments, or a class, that
    makes a calculator for one task. Raises ToolDefinitionError.
    """
    further: Mapping[str, Any] = calculators or {}
    for name, make in further.items():
        if not callable(make):
            reason = f"calculators[{name!r}] must be a function or class that makes a calculator"
            raise ToolDefinitionError(tool_name=_TOOL, reason=reason)

    def run_parameter_sweep(
        structure: Annotated[str, Field(description="The atoms, as the text of a CIF, XYZ or POSCAR file")],
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

        `parameters` lists the values to try of each input of run_geometry_optimization, for example
        {"fmax": [0.1, 0.01], "optimizer": ["BFGS", "FIRE"]}; `fixed` holds inputs that are the same
        for all points.
        """
        return sweep(app, _TOOL, {"structure": structure, **(fixed or {})}, parameters, ctx)

    description = inspect.getdoc(run_geometry_optimization) or ""
    if further:
        description += f"\n\nFurther calculators: {', '.join(further)}."
    options: dict[str, Any] = {"queue": "cpu_heavy", "timeout": "24h", "estimate": _estimate}
    app.tool(description=description, **options)(optimization(further))
    app.tool(queue="cpu_small", timeout="7d")(run_parameter_sweep)


def _estimate(inputs: Mapping[str, Any]) -> float:
    """A cheap force field at first; experience corrects it."""
    atoms = len(inputs["structure"].splitlines())
    return 1.0 + 0.0005 * atoms * float(inputs.get("steps", 200))


bb = Backburner("science")
add_to(bb)
