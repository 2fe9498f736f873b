"""CelebA from its official files: aligned images as a folder or a zip, attributes and partition as txt or csv.

The 202,599 images are read once, resized to 32x32 and cached as bytes beside the composed images.
"""

import io
import logging
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcmoo.data.cache import Arrays, cached
from fedcmoo.data.catalogue import CELEBA
from fedcmoo.data.folder import require
from fedcmoo.files import DamagedError, reading

ATTRIBUTES = [
    *("5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald", "Bangs", "Big_Lips", "Big_Nose"),
    *("Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair", "Bushy_Eyebrows", "Chubby", "Double_Chin", "Eyeglasses"),
    *("Goatee", "Gray_Hair", "Heavy_Makeup", "High_Cheekbones", "Male", "Mouth_Slightly_Open", "Mustache"),
    *("Narrow_Eyes", "No_Beard", "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline", "Rosy_Cheeks"),
    *("Sideburns", "Smiling", "Straight_Hair", "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat", "Wearing_Lipstick"),
    *("Wearing_Necklace", "Wearing_Necktie", "Young"),
]
"""The 40 attributes, in the order of list_attr_celeba."""
SIZE = 32
LARGEST = 2**24
"""An upper limit on the bytes of an image, a thousand times the usual."""
PARTS = ("train", "validation", "test")
"""The parts, in the order of the numbers 0, 1, 2 of list_eval_partition."""
VERSION = 1
"""Version in the name of the cached files: increase it whenever the way images are read changes."""

log = logging.getLogger(__name__)


class Faces(NamedTuple):
    """One part of CelebA."""

    images: NDArray[np.uint8]
    """[n, 3, 32, 32]"""
    attributes: NDArray[np.uint8]
    """1 if a face has an attribute, else 0, [n, 40]"""


class CelebAList(NamedTuple):
    """A list of CelebA: a row of numbers for each image file."""

    columns: list[str]
    files: list[str]
    values: NDArray[np.int64]


def load_celeba(folder: Path) -> dict[str, Faces]:
    """The faces of the parts "train", "validation" and "test", from the subfolder `celeba` of the data folder."""
    images, *lists = (require(folder, names, "celeba") for names in CELEBA.needs)
    settings = {"size": SIZE, "version": VERSION, "images": _extent(images)}
    arrays = cached(folder, "celeba", settings, lists, lambda: _read(images, *lists))
    return {part: Faces(arrays[f"{part}-images"], arrays[f"{part}-attributes"]) for part in PARTS}


def _read(images: Path, attribute_list: Path, partition_list: Path) -> Arrays:
    attributes, partition = (_table(path) for path in (attribute_list, partition_list))
    if attributes.columns != ATTRIBUTES or not set(np.unique(attributes.values)) <= {-1, 1}:
        raise ValueError(f"{attribute_list} must hold CelebA's 40 attributes as -1 and 1, but does not")
    if attributes.files != partition.files:
        raise ValueError(f"{attribute_list} and {partition_list} must list the same files in order, but do not")
    if not set(np.unique(partition.values)) <= {0, 1, 2}:
        raise ValueError(f"{partition_list} must hold the numbers 0, 1 and 2, but holds others")
    log.info("reading the %d images of CelebA once; this takes minutes", len(attributes.files))
    pixels = read_images(images, attributes.files)
    marks = (attributes.values == 1).astype(np.uint8)
    arrays: Arrays = {}
    for number, part in enumerate(PARTS):
        chosen = partition.values[:, 0] == number
        arrays |= {f"{part}-images": pixels[chosen], f"{part}-attributes": marks[chosen]}
    return arrays


def _table(path: Path) -> CelebAList:
    with reading(path):
        return read_table(path)


def read_table(path: Path) -> CelebAList:
    """A list of CelebA, as published (a count, the column names, rows split by blanks) or as csv (a header, rows).

    The published list_eval_partition.txt has rows only.
    """
    lines = path.read_text().splitlines()
    if path.suffix == ".csv":
        rows = [line.split(",") for line in lines if line.strip()]
        columns, rows = rows[0][1:], rows[1:]
    else:
        rows = [line.split() for line in lines if line.strip()]
        columns = ["partition"]
        if rows and len(rows[0]) == 1:
            count, columns, rows = int(rows[0][0]), rows[1], rows[2:]
            if count != len(rows):
                raise ValueError(f"{path} announces {count} rows, but has {len(rows)}; get it again")
    wrong = next((row for row in rows if len(row) != len(columns) + 1), None)
    if not rows or wrong is not None:
        raise ValueError(f"{path} must have rows of a file name and {len(columns)} numbers, but has {wrong}")
    return CelebAList(columns, [row[0] for row in rows], np.array([row[1:] for row in rows], dtype=np.int64))


def read_images(source: Path, files: Sequence[str]) -> NDArray[np.uint8]:
    """The named images of a folder or zip file, resized to 32x32 (bilinear, the whole image): [n, 3, 32, 32]."""
    result = np.empty((len(files), 3, SIZE, SIZE), dtype=np.uint8)
    with _opened(source) as read, ThreadPoolExecutor() as pool:
        # In small batches, so that few encoded images are in memory at once; Pillow decodes them in parallel.
        for start in range(0, len(files), 512):
            names = files[start : start + 512]
            contents = [read(name) for name in names]
            for i, image in enumerate(pool.map(_shrink, contents, names), start):
                result[i] = image
    return result


def _shrink(content: bytes, name: str) -> NDArray[np.uint8]:
    from PIL import Image

    with reading(name), Image.open(io.BytesIO(content)) as image:
        small = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return np.asarray(small).transpose(2, 0, 1)


@contextmanager
def _opened(source: Path) -> Iterator[Callable[[str], bytes]]:
    """A function that reads a named image of a folder or zip file."""
    if source.is_dir():

        def read_file(name: str) -> bytes:
            if not (source / name).exists():
                raise ValueError(f"{source} must hold {name}, but does not; unpack img_align_celeba.zip again")
            return (source / name).read_bytes()

        yield read_file
        return
    with reading(source), zipfile.ZipFile(source) as archive:
        members = {Path(member).name: member for member in archive.namelist()}

        def read(name: str) -> bytes:
            if name not in members:
                raise DamagedError(f"{source} must hold {name}, but does not; get it again")
            size = archive.getinfo(members[name]).file_size
            if size > LARGEST:
                raise DamagedError(f"{name} in {source} must have at most {LARGEST:,} bytes, but has {size:,}")
            return archive.read(members[name])

        yield read


def _extent(images: Path) -> int:
    """Substitute for a checksum, since reading 1.4 GB takes long: the zip file's size, or the number of images."""
    return sum(1 for _ in images.iterdir()) if images.is_dir() else images.stat().st_size
