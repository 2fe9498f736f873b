"""Wall-clock time of several runs: one after the other on all cores, against side by side with one core each.

python benchmarks/side_by_side.py [PROBLEM] [ROUNDS]
"""

import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from fedcmoo.callbacks.progress import ProgressBars
from fedcmoo.config import RunConfig, preset
from fedcmoo.engines.pool import usable_cores
from fedcmoo.runs import Runs
from fedcmoo.side_by_side import make_side_by_side


def main() -> None:
    problem = sys.argv[1] if len(sys.argv) > 1 else "multimnist"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    cores = usable_cores()
    configs = [
        RunConfig.from_table({**preset(problem, "fedcmoo"), "rounds": rounds, "evaluate_every": 10, "seed": seed})
        for seed in range(cores)
    ]
    configs[0].build()  # composes images once, for both
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        runs = Runs(Path(folder, "one after the other"))
        for config in configs:
            runs.get(config)
        middle = time.perf_counter()
        make_side_by_side(Runs(Path(folder, "side by side")), configs, cores, ProgressBars(Console(stderr=True)))
        end = time.perf_counter()
    first, second = middle - start, end - middle
    print(f"{problem}, {cores} runs of {rounds} rounds on {cores} cores:")
    print(f"one after the other {first:.0f} s, side by side {second:.0f} s, ratio {second / first:.2f}")


if __name__ == "__main__":
    main()
