"""QM9 from the Python package `qm9pack`: 130,831 small molecules with eleven properties each.

The package contains coordinates, SMILES and properties; RDKit adds the bonds and the features of the atoms. The
eight molecules whose SMILES does not fit their coordinates are left out. Everything is read once and cached as arrays.
"""

import csv
import importlib.util
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcmoo.data.cache import Arrays, cached
from fedcmoo.files import DamagedError, reading
from fedcmoo.optional import missing, require

ELEMENTS = ("H", "C", "N", "O", "F")
HYDROGEN = (1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0)
"""The features of a hydrogen atom."""
RADII = {"H": 0.31, "C": 0.76, "N": 0.71, "O": 0.66, "F": 0.57}
"""Covalent radii in Angstrom: a distance above 1.3 times the sum of the atoms' radii cannot be a bond."""
FREE_ATOMS = {
    "InternalEnergy_0K_au": (-0.500273, -37.846772, -54.583861, -75.064579, -99.718730),
    "InternalEnergy_298K_au": (-0.498857, -37.845355, -54.582445, -75.063163, -99.717314),
    "Enthalphy_298K_au": (-0.497912, -37.844411, -54.581501, -75.062219, -99.716370),
    "GibbsFreeEnergy_298K_au": (-0.510927, -37.861317, -54.598897, -75.079532, -99.733544),
}
"""QM9's energies of free H, C, N, O and F atoms in Hartree: subtracting them gives atomisation energies."""
PROPERTIES = {
    "mu": "Dipole_debye",
    "alpha": "Polarizability_bohr3",
    "homo": "HOMO_au",
    "lumo": "LUMO_au",
    "r2": "R2_bohr2",
    "zpve": "ZPVE_au",
    "u0": "InternalEnergy_0K_au",
    "u298": "InternalEnergy_298K_au",
    "h298": "Enthalphy_298K_au",
    "g298": "GibbsFreeEnergy_298K_au",
    "cv": "Heatcapacity_Cv_cal_mol_K",
}
"""The eleven properties, in the order of targets 0, 1, 2, 3, 5, 6, 12, 13, 14, 15, 11 of PyTorch Geometric's QM9."""
VERSION = 1
"""Version in the name of the cached files: increase it whenever the features change."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Molecule:
    """Features of one molecule of n atoms."""

    nodes: NDArray[np.uint8]
    """[n, 11]: element (one-hot of H, C, N, O, F), atomic number, aromatic, sp, sp2, sp3, number of hydrogens."""
    positions: NDArray[np.float32]
    """[n, 3]"""
    bonds: NDArray[np.uint8]
    """[n, n]: 0 none, 1 single, 2 double, 3 triple, 4 aromatic."""
    targets: NDArray[np.float64]
    """[11]"""


def load_qm9(folder: Path) -> Arrays:
    """All molecules: `sizes` [N], `nodes` [A, 11], `positions` [A, 3], `bonds` [sum of n^2], `targets` [N, 11],
    cached in the data folder."""
    files = _package_files()
    return cached(folder, "qm9", {"version": VERSION}, files, lambda: _read(files))


def parse(row: Mapping[str, str]) -> Molecule | None:
    """The molecule in one row of the package's tables; None if its SMILES does not fit its coordinates.

    Heavy atoms have the same order in both. Hydrogens, which SMILES leaves out, belong to the nearest heavy
    atom, and each heavy atom must get as many as its SMILES says.
    """
    Chem = require("rdkit.Chem", "qm9")
    elements = np.array(row["Elements"].strip("[]").replace("'", "").split(","))
    numbers = row["XYZ_Ang"].replace("[", "").replace("]", "").split(",")
    positions = np.array(numbers, dtype=np.float64).reshape(-1, 3)
    if len(positions) != len(elements) or not np.isfinite(positions.astype(np.float32)).all():
        raise ValueError(f"{len(elements)} atoms must have as many finite positions, but got {row['XYZ_Ang']:.80}")
    heavy, light = np.flatnonzero(elements != "H"), np.flatnonzero(elements == "H")
    atoms = list(Chem.MolFromSmiles(row["SMILES"]).GetAtoms())
    if [atom.GetSymbol() for atom in atoms] != elements[heavy].tolist():
        return None
    lengths = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    owner = heavy[lengths[light][:, heavy].argmin(axis=1)]
    hydrogens = np.bincount(owner, minlength=len(elements))[heavy]
    if hydrogens.tolist() != [atom.GetTotalNumHs() for atom in atoms]:
        return None
    bonds = np.zeros(lengths.shape, dtype=np.uint8)
    bonds[light, owner] = bonds[owner, light] = 1
    kinds = {Chem.BondType.SINGLE: 1, Chem.BondType.DOUBLE: 2, Chem.BondType.TRIPLE: 3, Chem.BondType.AROMATIC: 4}
    for bond in (bond for atom in atoms for bond in atom.GetBonds()):
        i, j = heavy[bond.GetBeginAtomIdx()], heavy[bond.GetEndAtomIdx()]
        bonds[i, j] = bonds[j, i] = kinds[bond.GetBondType()]
    radii = np.array([RADII[element] for element in elements])
    if (lengths > 1.3 * (radii[:, None] + radii))[bonds > 0].any():
        return None
    nodes = np.zeros((len(elements), 11), dtype=np.uint8)
    nodes[light] = HYDROGEN
    nodes[heavy] = [_heavy_features(atom, Chem.HybridizationType) for atom in atoms]
    return Molecule(nodes, positions.astype(np.float32), bonds, _targets(row, elements.tolist()))


def _heavy_features(atom: Any, hybridization: Any) -> list[int]:
    kind = atom.GetHybridization()
    return [
        *(int(atom.GetSymbol() == element) for element in ELEMENTS),
        atom.GetAtomicNum(),
        int(atom.GetIsAromatic()),
        *(int(kind == known) for known in (hybridization.SP, hybridization.SP2, hybridization.SP3)),
        atom.GetTotalNumHs(),
    ]


def _targets(row: Mapping[str, str], elements: list[str]) -> NDArray[np.float64]:
    values = []
    for column in PROPERTIES.values():
        free = FREE_ATOMS.get(column)
        alone = sum(free[ELEMENTS.index(element)] for element in elements) if free else 0.0
        values.append(float(row[column]) - alone)
    if not np.isfinite(values).all():
        raise ValueError(f"properties must be finite numbers, but are {values}")
    return np.array(values)


def _package_files() -> list[Path]:
    """Read the package's tables without importing it, since its code needs a module removed from setuptools."""
    package = importlib.util.find_spec("qm9pack")
    if package is None or not package.submodule_search_locations:
        raise missing("qm9pack", "qm9")
    return [Path(package.submodule_search_locations[0], "data", f"qm9_part{i}.csv") for i in (1, 2, 3)]


def _molecules(files: list[Path]) -> Iterator[Molecule | None]:
    for path in files:
        with path.open(newline="") as file, reading(path):
            for n, row in enumerate(csv.DictReader(file), start=1):
                with reading(f"row {n} of {path}"):
                    yield parse(row)


def _read(files: list[Path]) -> Arrays:
    log.info("reading the molecules of QM9 once; this takes a minute or two")
    parsed = list(_molecules(files))
    molecules = [molecule for molecule in parsed if molecule is not None]
    if not molecules:
        raise DamagedError(f"{', '.join(map(str, files))} must hold molecules, but hold none; get them again")
    log.info("left out %d of %d molecules whose SMILES does not fit", len(parsed) - len(molecules), len(parsed))
    return {
        "sizes": np.array([len(molecule.nodes) for molecule in molecules]),
        "nodes": np.concatenate([molecule.nodes for molecule in molecules]),
        "positions": np.concatenate([molecule.positions for molecule in molecules]),
        "bonds": np.concatenate([molecule.bonds.ravel() for molecule in molecules]),
        "targets": np.stack([molecule.targets for molecule in molecules]),
    }
