"""Wall-clock time of several runs: one after the other on all cores, against in parallel on one core each.

python benchmarks/parallel_runs.py [PROBLEM] [ROUNDS]
"""

import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from fedcmoo.callbacks.progress import ProgressBars
from fedcmoo.config import RunConfig, preset
from fedcmoo.engines.pool import usable_cores
from fedcmoo.parallel_runs import make_in_parallel
from fedcmoo.runs import Runs


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
        with ProgressBars(Console(stderr=True)) as bars:
            named = {f"seed {config.seed}": config for config in configs}
            make_in_parallel(Runs(Path(folder, "in parallel")), named, cores, bars)
        end = time.perf_counter()
    first, second = middle - start, end - middle
    print(f"{problem}, {cores} runs of {rounds} rounds on {cores} cores:")
    print(f"one after the other {first:.0f} s, in parallel {second:.0f} s, ratio {second / first:.2f}")


if __name__ == "__main__":
    main()
