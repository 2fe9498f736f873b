"""CelebA's loader and problems on generated images in the official layouts."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedcmoo.data.celeba import ATTRIBUTES, load_celeba, read_table
from fedcmoo.data.folder import MissingDataError
from fedcmoo.experiments.celeba import GROUPS, CelebA, CelebA5

COUNT = 40
RNG = np.random.default_rng(0)
MARKS = RNG.choice([-1, 1], size=(COUNT, 40))
PARTITION = [0] * 24 + [1] * 6 + [2] * 10
COLOURS = RNG.integers(256, size=(COUNT, 3))
FILES = [f"{i + 1:06d}.jpg" for i in range(COUNT)]


def write(folder: Path, zipped: bool, csv: bool) -> None:
    home = folder / "celeba"
    images = home / "img_align_celeba"
    images.mkdir(parents=True)
    for name, colour in zip(FILES, COLOURS.tolist(), strict=True):
        Image.new("RGB", (178, 218), tuple(colour)).save(images / name, quality=95)
    if zipped:
        with zipfile.ZipFile(home / "img_align_celeba.zip", "w") as archive:
            for name in FILES:
                archive.write(images / name, f"img_align_celeba/{name}")
        shutil.rmtree(images)
    rows = [[name, *map(str, marks)] for name, marks in zip(FILES, MARKS.tolist(), strict=True)]
    parts = [[name, str(part)] for name, part in zip(FILES, PARTITION, strict=True)]
    if csv:
        header = ["image_id", *ATTRIBUTES]
        (home / "list_attr_celeba.csv").write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
        parts = [["image_id", "partition"], *parts]
        (home / "list_eval_partition.csv").write_text("\n".join(",".join(row) for row in parts) + "\n")
    else:
        # The published file pads with blanks: two before a 1, one before a -1.
        table = "\n".join(" ".join(f"{value:>2}" for value in row) for row in rows)
        (home / "list_attr_celeba.txt").write_text(f"{COUNT}\n{' '.join(ATTRIBUTES)} \n{table}\n")
        (home / "list_eval_partition.txt").write_text("\n".join(" ".join(row) for row in parts) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    write(path, zipped=False, csv=False)
    return path


@pytest.mark.parametrize(("zipped", "csv"), [(False, False), (True, False), (True, True)])
def test_all_layouts(tmp_path: Path, zipped: bool, csv: bool) -> None:
    write(tmp_path, zipped, csv)
    for _ in range(2):  # the second time from what was kept
        faces = load_celeba(tmp_path)
        assert [len(faces[part].images) for part in ("train", "validation", "test")] == [24, 6, 10]
        for number, part in enumerate(("train", "validation", "test")):
            chosen = np.array(PARTITION) == number
            np.testing.assert_array_equal(faces[part].attributes, MARKS[chosen] == 1)
            assert faces[part].images.shape[1:] == (3, 32, 32)
            # JPEG changes a plain colour by a few steps.
            distance = faces[part].images.astype(int) - COLOURS[chosen][:, :, None, None]
            assert np.abs(distance).max() <= 4


def test_groups_are_a_partition_of_the_attributes() -> None:
    assert len(ATTRIBUTES) == 40
    assert sorted(name for group in GROUPS for name in group) == sorted(ATTRIBUTES)
    assert [len(group) for group in GROUPS] == [8] * 5


def test_celeba_problem(folder: Path) -> None:
    problem = CelebA(clients=4, samples_per_client=5).build(0, folder)
    assert problem.M == 40
    assert [o.name for o in problem.objectives] == ATTRIBUTES
    assert problem.shared_prefixes == ("encoder",)
    assert [len(problem.client(i)) for i in range(4)] == [5] * 4
    assert (len(problem.validation), len(problem.test)) == (6, 10)
    inputs, targets = problem.test.batch(torch.arange(10))
    assert inputs.shape == (10, 3, 32, 32)
    assert torch.equal(torch.stack(targets, dim=1), torch.from_numpy(MARKS[30:] == 1).long())
    problem.check()


def test_celeba5_problem(folder: Path) -> None:
    problem = CelebA5(clients=3).build(0, folder)
    assert problem.M == 5
    _, targets = problem.test.batch(torch.arange(10))
    expected = MARKS[30:][:, [ATTRIBUTES.index(name) for name in GROUPS[3]]] == 1
    assert torch.equal(targets[3], torch.from_numpy(expected).float())
    problem.check()


def test_both_problems_skew_the_same_three_attributes(folder: Path) -> None:
    columns = [ATTRIBUTES.index(name) for name in ("Attractive", "Male", "Mouth_Slightly_Open")]
    marks = (MARKS[:24][:, columns] == 1).astype(int)
    expected = marks @ [4, 2, 1]
    for settings in (CelebA(), CelebA5()):
        assert settings.labels(settings.splits(folder).train).tolist() == expected.tolist()


def test_training_lowers_the_losses(folder: Path) -> None:
    problem = CelebA5(clients=1).build(0, folder)
    inputs, targets = problem.client(0).batch(torch.arange(2))
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    values = []
    for _ in range(2):
        losses = problem.losses(problem.model(inputs), targets)
        values.append(sum(loss.item() for loss in losses))
        optimizer.zero_grad()
        torch.autograd.backward(torch.stack(losses).mean())
        optimizer.step()
    assert values[-1] < values[0]


def test_damaged_lists_are_refused(tmp_path: Path) -> None:
    write(tmp_path, zipped=True, csv=False)
    home = tmp_path / "celeba"
    good = (home / "list_attr_celeba.txt").read_text()
    for bad, complaint in [
        (good.replace("40\n", "41\n", 1), "announces 41 rows, but has 40"),
        (good.replace(" 1\n", "\n", 1), "rows of a file name and 40 numbers"),
        (good.replace("Bald", "Bold", 1), "CelebA's 40 attributes"),
        (good.replace("000001.jpg", "100001.jpg", 1), "the same files in order"),
    ]:
        (home / "list_attr_celeba.txt").write_text(bad)
        with pytest.raises(ValueError, match=complaint):
            load_celeba(tmp_path)


def test_missing_image_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="fedcmoo data get celeba"):
        load_celeba(tmp_path)
    write(tmp_path, zipped=False, csv=False)
    (tmp_path / "celeba" / "img_align_celeba" / FILES[7]).unlink()
    with pytest.raises(ValueError, match=r"must hold 000008\.jpg"):
        load_celeba(tmp_path)


def test_official_partition_has_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "list_eval_partition.txt"
    path.write_text("000001.jpg 0\n000002.jpg 2\n")
    table = read_table(path)
    assert table.files == ["000001.jpg", "000002.jpg"]
    assert table.values[:, 0].tolist() == [0, 2]
