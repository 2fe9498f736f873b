"""The data folder, with the same layout as torchvision's.

MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]
FashionMNIST/raw/...        the same four names
cifar-10-batches-bin/       or cifar-10-batches-py/, or the archives cifar-10-{binary,python}.tar.gz
celeba/                     img_align_celeba/ or its .zip; list_attr_celeba and list_eval_partition as .txt or .csv
composed/                   arrays that the library composes from them and reuses
"""

import os
from collections.abc import Sequence
from pathlib import Path

ENVIRONMENT = "FEDCMOO_DATA"


class MissingDataError(FileNotFoundError):
    """Raised if a data set's file is missing; the message says where it belongs and how to get it."""


def data_folder(path: Path | str | None = None) -> Path:
    """The data folder: `path` if given, else the environment's FEDCMOO_DATA, else a folder in the user's cache.

    >>> data_folder("somewhere").name
    'somewhere'
    """
    if path is not None:
        return Path(path).expanduser()
    if os.environ.get(ENVIRONMENT):
        return Path(os.environ[ENVIRONMENT]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "fedcmoo" / "data"


def present(folder: Path, names: Sequence[str]) -> Path | None:
    """The first of `names` (paths within the folder) that exists."""
    return next((folder / name for name in names if (folder / name).exists()), None)


def require(folder: Path, names: Sequence[str], data_set: str) -> Path:
    """The first of `names` that exists in the folder; raises if none does, with the command that downloads it."""
    found = present(folder, names)
    if found is None:
        places = " or ".join(str(folder / name) for name in names)
        raise MissingDataError(
            f"{data_set} needs {places}, but it is not there; run `fedcmoo data get {data_set}`, "
            f"or name the data folder with --data or the environment variable {ENVIRONMENT}"
        )
    return found
