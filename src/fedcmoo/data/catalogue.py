"""The data sets of the ready-made problems: official sources, checksums, and whether they are present."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from fedcmoo.data.cifar import PLACES as CIFAR_PLACES
from fedcmoo.data.folder import data_folder, present
from fedcmoo.optional import pip_line


@dataclass(frozen=True)
class RemoteFile:
    """A file that can be downloaded: where it belongs in the data folder, where it is published, and its MD5 sum."""

    path: str
    urls: tuple[str, ...]
    md5: str


@dataclass(frozen=True)
class DataSet:
    """A data set.

    Attributes:
        name: what commands call it.
        needs: what the data folder must contain: groups of paths, of which at least one per group must exist.
        files: what to download; empty if it must be downloaded by hand.
        instructions: how to get it by hand; may name the data `{folder}`.
        packages: the names of the Python packages that contain it, if any.
    """

    name: str
    needs: tuple[tuple[str, ...], ...]
    files: tuple[RemoteFile, ...] = ()
    instructions: str = ""
    packages: tuple[str, ...] = ()

    def missing(self, folder: Path) -> list[str]:
        """What is still missing; empty if the data set is complete."""
        packages = [f"the Python package {name}" for name in self.packages if importlib.util.find_spec(name) is None]
        return packages + [" or ".join(paths) for paths in self.needs if present(folder, paths) is None]


def _idx_set(name: str, home: str, places: tuple[str, ...], sums: tuple[str, str, str, str]) -> DataSet:
    parts = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    files = tuple(
        RemoteFile(f"{home}/{part}.gz", tuple(f"{place}{part}.gz" for place in places), md5)
        for part, md5 in zip(parts, sums, strict=True)
    )
    return DataSet(name, tuple((f"{home}/{part}", f"{home}/{part}.gz") for part in parts), files)


def _cifar10(name: str, archive: str, md5: str) -> DataSet:
    places = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
    return DataSet(name, (CIFAR_PLACES,), (RemoteFile(archive, tuple(f"{place}{archive}" for place in places), md5),))


MNIST = _idx_set(
    "mnist",
    "MNIST/raw",
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
    (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
)
FASHION_MNIST = _idx_set(
    "fashion-mnist",
    "FashionMNIST/raw",
    ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
    (
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
)
CIFAR10 = _cifar10("cifar10", "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530")
CIFAR10_PYTHON = _cifar10("cifar10-python", "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a")
CELEBA = DataSet(
    "celeba",
    (
        ("celeba/img_align_celeba", "celeba/img_align_celeba.zip"),
        ("celeba/list_attr_celeba.txt", "celeba/list_attr_celeba.csv"),
        ("celeba/list_eval_partition.txt", "celeba/list_eval_partition.csv"),
    ),
    instructions=(
        "CelebA may be used for non-commercial research only and may not be passed on, so you download it yourself: "
        "read the agreement at https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, follow its link to the aligned and "
        "cropped images, and put img_align_celeba.zip (no need to unpack it), list_attr_celeba.txt and "
        "list_eval_partition.txt into {folder}/celeba"
    ),
)
QM9 = DataSet(
    "qm9", (), instructions=f"QM9 comes as a Python package: {pip_line('qm9')}", packages=("qm9pack", "rdkit")
)

DATA_SETS: dict[str, DataSet] = {
    data_set.name: data_set for data_set in (MNIST, FASHION_MNIST, CIFAR10, CIFAR10_PYTHON, CELEBA, QM9)
}
"""By name."""

NEEDED_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("two-digits", "mixed-digits", "digit-groups", "loans", "couples"), ()),
    "multimnist": ("mnist",),
    "mnist-fmnist": ("mnist", "fashion-mnist"),
    "cifar10-mnist": ("cifar10", "mnist"),
    "celeba": ("celeba",),
    "celeba5": ("celeba",),
    "qm9": ("qm9",),
}
"""The data sets that each ready-made problem needs."""


def missing_data(problem: str, data: Path | str | None = None) -> tuple[str, ...]:
    """The data sets that a ready-made problem needs and that are missing from the data folder."""
    folder = data_folder(data)
    return tuple(name for name in NEEDED_BY.get(problem, ()) if DATA_SETS[name].missing(folder))
