"""`fedcmoo compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcmoo.cli.configured import Options, with_options
from fedcmoo.cli.options import AGAIN, AsJson, Seeds, errors_for_people, out, print_json, progress

if TYPE_CHECKING:
    from fedcmoo.config import RunConfig
    from fedcmoo.result import Result


@with_options("problem", "rounds", "engine", "config", "sets", "small", "data")
def compare(
    options: Options,
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            "-m",
            help="separated by commas (see: fedcmoo list), with settings of their own such as fedcmoo+server=adam",
        ),
    ] = "fedcmoo,fsmgda,fedavg",
    seeds: Seeds = "0,1,2",
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="OBJECTIVE=SCORE", help="print what it takes to reach this, such as left=0.9; repeatable"),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="the folder of the comparison")] = None,
    as_json: AsJson = False,
) -> None:
    """Run several methods with several seeds: one table with mean and spread, one figure.

    Each run has its own folder; run the same command again to continue an interrupted one. A folder with runs of
    other settings is refused: choose another --out. A method may be compared with itself: settings appended to its
    name, as in fedcmoo+trips=1+server.momentum=0.9, act like --set method.KEY=VALUE for this variant only.

    With --target left=0.9 --target right=0.8 a second table has the rounds, seconds and bytes until all of them are
    reached, and targets.png shows them; --json has the rounds. A target refers to the objective's first metric;
    right:loss=0.3 names another.
    """
    from fedcmoo.cli.resolving import different, seed_numbers, short_name, variant
    from fedcmoo.comparison import compare_configs
    from fedcmoo.evaluation import columns
    from fedcmoo.report.targets import Target

    with errors_for_people(AGAIN):
        numbers = seed_numbers(seeds)
        configs = {
            label: [options.resolve(name, {"seed": seed}, own) for seed in numbers]
            for label, name, own in map(variant, different("--methods", methods))
        }
        first = next(iter(configs.values()))[0]
        targets = [Target.parse(text) for text in target or []]
        known = columns(first.build()) if targets else []
        for wanted in targets:
            wanted.check(known)
        folder = folder or Path("runs") / f"compare-{short_name(first)}"
        comparison = compare_configs(configs, folder, with_progress)
        if targets:
            comparison.plot_targets(targets, folder / "targets.png")
        if as_json:
            print_json(comparison.summary(targets))
        else:
            out.print(comparison.table())
            if targets:
                out.print(comparison.targets(targets))
            out.print(f"in {folder}: comparison.png, comparison.json and a folder for each run", soft_wrap=True)


def with_progress(config: RunConfig, folder: Path, resume: bool) -> Result:
    """Run a configuration of a comparison with a progress bar."""
    return config.run(folder, progress(folder.name), resume=resume)
