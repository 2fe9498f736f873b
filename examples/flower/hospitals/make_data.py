"""Write made-up tables for three hospitals and a public test set: python make_data.py FOLDER"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

HEADER = ["age", "heart_rate", "systolic", "glucose", "prior_visits", "readmitted", "days"]


def rows(rng: np.random.Generator, n: int, older: float) -> list[list[float]]:
    """n patients; hospitals differ in the age of theirs and what comes with it."""
    age = np.clip(rng.normal(60 + older, 18, n), 18, 99)
    heart_rate = rng.normal(80, 12, n) + 0.1 * (age - 60)
    systolic = rng.normal(130, 15, n) + 0.4 * (age - 60)
    glucose = np.clip(rng.gamma(6, 1.0, n) + 0.02 * (age - 60), 3, 25)
    visits = rng.poisson(1.5 + 0.02 * np.clip(age - 60, 0, None))
    risk = 0.04 * (age - 65) + 0.25 * (glucose - 6) + 0.5 * (visits - 2)
    readmitted = rng.random(n) < 1 / (1 + np.exp(-risk))
    days = np.exp(0.9 + 0.012 * (age - 60) + 0.02 * (heart_rate - 80) + rng.normal(0, 0.3, n))
    table = np.column_stack([age, heart_rate, systolic, glucose, visits, readmitted, days])
    return [[round(float(value), 2) for value in row] for row in table]


def write_tables(folder: Path) -> None:
    """site-0.csv without the column "days", site-1.csv without "readmitted", site-2.csv with empty cells in "days", and
    test.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for name, n, older in [("site-0", 400, -15.0), ("site-1", 250, 0.0), ("site-2", 600, 12.0), ("test", 500, 0.0)]:
        without = {"site-0": "days", "site-1": "readmitted"}.get(name)
        table = [dict(zip(HEADER, row, strict=True)) for row in rows(rng, n, older)]
        if name == "site-2":
            for row in table[::4]:
                del row["days"]
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, [column for column in HEADER if column != without], extrasaction="ignore")
            writer.writeheader()
            writer.writerows(table)


if __name__ == "__main__":
    write_tables(Path(sys.argv[1]))
