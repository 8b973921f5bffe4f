"""Structures from text, and calculators by name. What is wrong with them is said in plain words."""

# mypy: disallow-untyped-calls = False
# (ASE has annotations only in part.)

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ase import Atoms

#: Further calculators: what makes a new one, by name.
Calculators = Mapping[str, Callable[[], Any]]
Format = Literal["auto", "cif", "xyz", "poscar"]

_ASE_FORMATS = {"cif": "cif", "xyz": "extxyz", "poscar": "vasp"}
_CIF = re.compile(r"^\s*(data_|loop_|_cell_|_atom_)", re.MULTILINE)


def require_ase() -> None:
    """Raise ImportError, saying what to install, when the extra is absent."""
    try:
        import ase  # noqa: F401
    except ImportError:
        raise ImportError("This tool needs ASE: pip install 'backburner[science]'") from None


def read_structure(text: str, text_format: Format = "auto") -> Atoms:
    """The atoms that a CIF, XYZ or POSCAR text describes. Raises ValueError."""
    import ase.io
    import numpy as np

    if not text.strip():
        raise ValueError("The structure is empty.")
    chosen = guess_format(text) if text_format == "auto" else text_format
    try:
        atoms = ase.io.read(io.StringIO(text), format=_ASE_FORMATS[chosen])
    except Exception as error:  # the readers raise whatever the text makes them stumble over
        reason = str(error) or type(error).__name__
        raise ValueError(f"The structure cannot be read as {chosen.upper()}: {reason}") from error
    if isinstance(atoms, list) or len(atoms) == 0:
        raise ValueError("There are no atoms in the structure.")
    if not np.isfinite(atoms.positions).all() or not np.isfinite(atoms.cell.array).all():
        raise ValueError("A position or the cell of the structure is not a finite number.")
    return atoms


def guess_format(text: str) -> Literal["cif", "xyz", "poscar"]:
    """By the look of it: an XYZ file begins with a number of atoms, a CIF has its keywords."""
    if text.lstrip().split(None, 1)[0].isdigit() and len(text.splitlines()[0].split()) == 1:
        return "xyz"
    return "cif" if _CIF.search(text) else "poscar"


def make_calculator(name: str, further: Calculators) -> Any:
    """Make one of the `further` calculators or one of ASE's, by its name in any case.

    Raises ValueError, naming the known ones.
    """
    from ase.calculators.calculator import get_calculator_class
    from ase.calculators.names import names

    own = {known.lower(): make for known, make in further.items()}
    if name.lower() not in (*own, *names):
        known = ", ".join([*further, *names])
        raise ValueError(f"There is no calculator named {name!r}. Known ones: {known}.")
    try:
        return own[name.lower()]() if name.lower() in own else get_calculator_class(name.lower())()
    except Exception as error:  # most need a program or a file that is not here
        raise ValueError(f"The calculator {name} cannot be used here: {error}") from error


def check_calculator(atoms: Atoms, name: str) -> None:
    """Raise ValueError when the calculator cannot treat these atoms."""
    import numpy as np

    try:
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    except Exception as error:
        raise ValueError(f"The calculator {name} cannot treat {atoms.symbols}: {error}") from error
    if not (np.isfinite(energy) and np.isfinite(forces).all()):
        raise ValueError("The energy or a force is not finite: do some atoms sit on top of each other?")
