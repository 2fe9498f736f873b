"""`fedcmoo compare`: several methods and seeds on one problem."""

from pathlib import Path
from typing import Annotated

import typer

from fedcmoo.cli.configured import Options, with_options
from fedcmoo.cli.options import (
    AGAIN,
    AsJson,
    Jobs,
    KeptRuns,
    Seeds,
    errors_for_people,
    make_missing,
    name_diverged,
    out,
    print_json,
    progress,
)


@with_options("problem", "rounds", "engine", "config", "sets", "small", "data")
def compare(
    options: Options,
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            "-m",
            help="methods separated by commas (see: fedcmoo list), with settings if any: fedcmoo+server=adam",
        ),
    ] = "fedcmoo,fsmgda,fedavg",
    seeds: Seeds = "0,1,2",
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OBJECTIVE=SCORE",
            help="print the rounds, seconds and bytes until this score is reached, such as left=0.9; repeatable",
        ),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="the folder of the comparison")] = None,
    runs: KeptRuns = None,
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """Run several methods with several seeds; print a table with mean and spread, and save a figure.

    Each run has its own folder and is found again by its settings; run the same command again to continue. A method
    may be compared with itself: settings appended to its name, as in fedcmoo+trips=1+server.momentum=0.9, act like
    --set method.KEY=VALUE for this variant only, and fedcmoo+upload=0.02 like --upload 0.02.

    With --target left=0.9 --target right=0.8 a second table lists the rounds, seconds and bytes until all targets
    are reached, and targets.png plots them; the JSON has them, too. A target refers to the objective's first metric;
    right:loss=0.3 names another. Runs that diverge are left out and listed at the end, with exit status 1.
    """
    from fedcmoo.cli.resolving import different, numbers, short_name, variant, within
    from fedcmoo.comparison import by_name, compare_configs
    from fedcmoo.report.targets import Target
    from fedcmoo.runs import Runs

    with errors_for_people(AGAIN):
        every_seed = numbers("--seeds", seeds, int)
        configs = {}
        for label in different("--methods", methods):
            name, own, upload = variant(label)
            configs[label] = [within(options.resolve(name, {"seed": seed}, own), upload) for seed in every_seed]
        first = next(iter(configs.values()))[0]
        objectives = first.build().objectives if target else []
        targets = [Target.parse(text, objectives) for text in target or []]
        folder = folder or Path("runs") / f"compare-{short_name(first)}"
        store = Runs(runs or folder, progress)
        make_missing(store, by_name(configs), jobs)
        comparison = compare_configs(configs, store)
        comparison.save(folder, targets)
        if as_json:
            print_json(comparison.summary(targets))
        else:
            out.print(comparison.table())
            if targets:
                out.print(comparison.targets(targets))
            out.print(
                f"in {folder}: comparison.png and comparison.json; the runs are in {runs or folder}", soft_wrap=True
            )
    name_diverged(comparison.diverged)
