"""Imports point one way, even inside functions, for modules and for packages; and no two classes have one name."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import fedcmoo

ROOT = Path(fedcmoo.__file__).parents[1]


def modules() -> dict[str, Path]:
    """Every module of the package by its name."""
    files = (ROOT / "fedcmoo").rglob("*.py")
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def imported(file: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules of the package that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module in known:
            yield from (name if (name := f"{node.module}.{a.name}") in known else node.module for a in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def package(module: str) -> str:
    """The package right below fedcmoo that a module belongs to."""
    return ".".join(module.split(".")[:2])


def test_no_circles() -> None:
    known = modules()
    graph = {name: set(imported(file, known)) for name, file in known.items()}
    assert len(graph) > 100
    TopologicalSorter(graph).prepare()  # raises CycleError
    packages: dict[str, set[str]] = {}
    for name, targets in graph.items():
        packages.setdefault(package(name), set()).update(package(t) for t in targets if package(t) != package(name))
    packages.pop("fedcmoo")  # the front door, which collects names from everywhere
    TopologicalSorter({name: targets - {"fedcmoo"} for name, targets in packages.items()}).prepare()


def test_every_class_name_stands_for_one_class() -> None:
    trees = [ast.parse(file.read_text()) for file in modules().values()]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert [name for name, n in names.items() if n > 1] == []
