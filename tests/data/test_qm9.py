"""Molecules from rows as qm9pack has them, their features, and the problem made of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcmoo.data import qm9
from fedcmoo.experiments.qm9 import QM9
from fedcmoo.optional import MissingExtraError

pytest.importorskip("rdkit", reason="needs the extra qm9")

HEADER = (
    "XYZ_file,Index,SMILES,N_atoms,Elements,XYZ_Ang,Dipole_debye,Polarizability_bohr3,HOMO_au,LUMO_au,R2_bohr2,"
    "ZPVE_au,InternalEnergy_0K_au,InternalEnergy_298K_au,Enthalphy_298K_au,GibbsFreeEnergy_298K_au,"
    "Heatcapacity_Cv_cal_mol_K"
)
METHANE = {
    "SMILES": "C",
    "Elements": "['C','H','H','H','H']",
    "XYZ_Ang": "[[0,0,0],[0.63,0.63,0.63],[-0.63,-0.63,0.63],[-0.63,0.63,-0.63],[0.63,-0.63,-0.63]]",
    "Dipole_debye": "0.",
    "Polarizability_bohr3": "13.21",
    "HOMO_au": "-0.3877",
    "LUMO_au": "0.1171",
    "R2_bohr2": "35.3641",
    "ZPVE_au": "0.044749",
    "InternalEnergy_0K_au": "-40.47893",
    "InternalEnergy_298K_au": "-40.476062",
    "Enthalphy_298K_au": "-40.475117",
    "GibbsFreeEnergy_298K_au": "-40.498597",
    "Heatcapacity_Cv_cal_mol_K": "6.469",
}
HYDROGEN_CYANIDE = METHANE | {
    "SMILES": "C#N",
    "Elements": "['C','N','H']",
    "XYZ_Ang": "[[0,0,0],[0,0,1.15],[0,0,-1.07]]",
}


def test_methane() -> None:
    molecule = qm9.parse(METHANE)
    assert molecule is not None
    assert molecule.nodes[0].tolist() == [0, 1, 0, 0, 0, 6, 0, 0, 0, 1, 4]
    assert molecule.nodes[1].tolist() == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    expected = np.zeros((5, 5))
    expected[0, 1:] = expected[1:, 0] = 1
    np.testing.assert_array_equal(molecule.bonds, expected)
    # MoleculeNet's table of QM9 gives -395.999594594 kcal/mol as the atomisation energy of methane at 0 K.
    assert molecule.targets[6] * 627.509 == pytest.approx(-395.9996, abs=0.01)
    assert molecule.targets[:3].tolist() == [0.0, 13.21, -0.3877]
    assert molecule.targets[10] == 6.469


def test_hydrogen_cyanide() -> None:
    molecule = qm9.parse(HYDROGEN_CYANIDE)
    assert molecule is not None
    assert molecule.bonds.tolist() == [[0, 3, 1], [3, 0, 0], [1, 0, 0]]
    assert molecule.nodes[0].tolist() == [0, 1, 0, 0, 0, 6, 0, 1, 0, 0, 1]
    assert molecule.nodes[1].tolist() == [0, 0, 1, 0, 0, 7, 0, 1, 0, 0, 0]


def test_hydrogens_may_stand_anywhere() -> None:
    # As in QM9's zwitterions: the ammonium's hydrogens come before those of the carbon.
    row = METHANE | {
        "SMILES": "C[NH3+]",
        "Elements": "['C','N','H','H','H','H','H','H']",
        "XYZ_Ang": "[[0,0,0],[1.5,0,0],[1.8,1,0],[1.8,-0.5,0.8],[1.8,-0.5,-0.8],[-0.4,1,0],"
        "[-0.4,-0.5,0.8],[-0.4,-0.5,-0.8]]",
    }
    molecule = qm9.parse(row)
    assert molecule is not None
    assert {tuple(pair) for pair in np.argwhere(np.triu(molecule.bonds)).tolist()} == {
        (0, 1), (1, 2), (1, 3), (1, 4), (0, 5), (0, 6), (0, 7)
    }  # fmt: skip
    assert molecule.nodes[:2, -1].tolist() == [3, 3]


@pytest.mark.parametrize(
    "change",
    [{"SMILES": "N"}, {"SMILES": "CC"}, {"XYZ_Ang": METHANE["XYZ_Ang"].replace("0.63,0.63,0.63", "1.63,0.63,0.63")}],
)
def test_misfits_are_left_out(change: dict[str, str]) -> None:
    assert qm9.parse(METHANE | change) is None


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the name and layout of qm9pack, of 40 molecules and two misfits, that must not be imported."""
    home = tmp_path / "site" / "qm9pack"
    (home / "data").mkdir(parents=True)
    (home / "__init__.py").write_text("raise ImportError('must not be imported')\n")
    rng = np.random.default_rng(0)
    for part in (1, 2, 3):
        lines = [HEADER]
        for _ in range(14):
            row = [METHANE, HYDROGEN_CYANIDE][rng.integers(2)] | {"Dipole_debye": f"{rng.normal():.4f}"}
            row = {"XYZ_file": "x", "Index": "1", "N_atoms": "0"} | row
            if part < 3 and len(lines) == 1:
                row["SMILES"] = "CCC"
            lines.append(",".join(f'"{row[column]}"' for column in HEADER.split(",")))
        (home / "data" / f"qm9_part{part}.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    importlib.invalidate_caches()
    return tmp_path / "data"


def test_problem(package: Path) -> None:
    settings = QM9(clients=4, train_molecules=25, validation_molecules=5, test_molecules=8)
    problem = settings.build(0, package)
    assert [objective.name for objective in problem.objectives] == list(qm9.PROPERTIES)
    assert [len(problem.client(i)) for i in range(4)] == [6] * 4
    assert (len(problem.validation), len(problem.test)) == (5, 8)
    problem.check()
    drawn = settings.draw(0, 40)
    assert len({*drawn.train, *drawn.validation, *drawn.test}) == 38
    assert all(set(index) <= set(drawn.train) for index in drawn.partition.indices)
    graphs = problem.client(0).data  # type: ignore[attr-defined]
    dipole = graphs.targets[0][torch.from_numpy(drawn.train)]
    assert dipole.mean().item() == pytest.approx(0, abs=1e-6)
    assert dipole.std().item() == pytest.approx(1, abs=1e-5)
    assert settings.skew(0, package).sizes.tolist() == [6] * 4


def test_missing_package_names_the_pip_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(MissingExtraError, match=r"qm9pack, .* pip install '"):
        QM9().build(0, tmp_path)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"clients": 0}, "clients must be a whole number of at least 1, but got 0"),
        ({"clients": 20, "train_molecules": 10}, "at least one per client"),
    ],
)
def test_refuses(settings: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        QM9(**settings)


def test_refuses_more_than_there_are() -> None:
    with pytest.raises(ValueError, match="at most 100 together, but are 60000"):
        QM9().draw(0, 100)
