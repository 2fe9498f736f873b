"""A campaign against the library: kills, faulty clients, fuzzed messages and files, flipped bits, equal bits, memory.

python benchmarks/reliability.py [--scale 0.1] [--seed 1] [--engines local,pool,ray,flower] [--parts kills,fuzz]

Everything is bounded by counts: at scale 1 there are 100 kills, 100,000 fuzzed messages, 10,000 damaged files, 1,000
flipped bits of checkpoints and 1,000 rounds on every engine. Prints a Markdown table; exits with 1 if a promise broke.
The rounds on Flower take more than an hour, all the rest some minutes.
"""

import argparse
import logging
import sys
from collections.abc import Callable

from campaign.faults import faulty_clients
from campaign.files import damaged_files, flipped_bits
from campaign.fuzz import fuzzed_messages
from campaign.kills import kills
from campaign.outcome import Outcome, markdown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="the share of all counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engines", default="local,pool,ray,nodes,flower")
    parser.add_argument("--parts", default="kills,bits,files,fuzz,faults")
    options = parser.parse_args()
    engines, seed = tuple(options.engines.split(",")), options.seed
    logging.disable(logging.CRITICAL)  # thousands of failures, all of them intended

    def times(count: int) -> int:
        return max(1, round(count * options.scale))

    parts: dict[str, list[Callable[[], Outcome]]] = {
        "kills": [lambda: kills(times(100), seed)],
        "bits": [lambda: flipped_bits(times(1_000), times(100), seed)],
        "files": [lambda: damaged_files(times(10_000), seed)],
        "fuzz": [lambda: fuzzed_messages(times(100_000), seed)],
        "faults": [lambda name=name: faulty_clients(name, times(1_000), seed) for name in engines],  # type: ignore[misc]
    }
    outcomes = []
    for part in options.parts.split(","):
        for measure in parts[part]:
            outcomes.append(measure())
            print(*markdown(outcomes[-1:]).splitlines()[2:], sep="\n", file=sys.stderr, flush=True)
    print(markdown(outcomes))
    sys.exit(0 if all(outcome.passed for outcome in outcomes) else 1)


if __name__ == "__main__":
    main()
