"""`fedcmoo bench`: measurements, each printing a table and saving what it measured."""

from dataclasses import asdict
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
    err,
    errors_for_people,
    make_missing,
    name_diverged,
    progress,
    show,
)
from fedcmoo.settings import SettingsError

app = typer.Typer(
    help="Measure Gram estimators, traffic, weighting rules, speed, engines, privacy.", no_args_is_help=True
)


@app.command()
@with_options("problem", "seed", "config", "sets", "small", "data")
def gram(
    options: Options,
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="one that estimates a Gram matrix", show_default="fedcmoo-pref")
    ] = None,
    rounds: Annotated[int, typer.Option(help="the number of rounds")] = 20,
    every: Annotated[int, typer.Option(help="rounds from one comparison to the next")] = 1,
    budgets: Annotated[
        str, typer.Option(help="uploads in multiples of d, separated by commas")
    ] = "1,0.3,0.1,0.03,0.01",
    only: Annotated[str | None, typer.Option(help="parts of estimators' names, separated by commas")] = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="where the figure and gram.json go")] = None,
    as_json: AsJson = False,
) -> None:
    """Train, and compare every Gram estimator at equal uploads: error, bytes, time and memory."""
    from fedcmoo.bench.gram import bench_gram
    from fedcmoo.callbacks import ProgressBar
    from fedcmoo.cli.resolving import numbers
    from fedcmoo.files import write_json

    with errors_for_people():
        chosen = options.resolve(method or "fedcmoo-pref", {"rounds": rounds})
        bench = bench_gram(
            chosen.build(),
            chosen.method,
            chosen.rounds,
            every=every,
            budgets=numbers("--budgets", budgets, float),
            only=only.split(",") if only else (),
            clients_per_round=chosen.clients_per_round,
            seed=chosen.seed,
            callbacks=[ProgressBar(err)],
        )
        if folder is not None:
            write_json(folder / "gram.json", asdict(bench))
            bench.plot(folder / "gram.png")
        show(as_json, asdict(bench), *bench.tables())


@app.command()
@with_options("problem", "rounds", "engine", "config", "sets", "small", "data")
def traffic(
    options: Options,
    uploads: Annotated[
        str, typer.Option(help="whole uploads of a client and round in multiples of d, separated by commas")
    ] = "0.1,0.05,0.02,0.01,0.005",
    bits: Annotated[
        str, typer.Option(help='bits per entry of the update, separated by commas; "" for none')
    ] = "8,4,2,1",
    seeds: Seeds = "0,1,2",
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="where the table and the figure go")] = None,
    runs: KeptRuns = None,
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """Train with updates in float32, in few bits and within small uploads, and compare accuracy and bytes.

    The paper's upload (a whole update, and a randomized SVD of d numbers) and FSMGDA are compared too. Each run has its
    own folder and is found again by its settings; run the same command again to continue.
    """
    from fedcmoo.bench.traffic import TrafficBench, configurations
    from fedcmoo.cli.resolving import numbers
    from fedcmoo.comparison import by_name, compare_configs
    from fedcmoo.files import write_atomically, write_json
    from fedcmoo.report.static import draw
    from fedcmoo.rounds import Sizes
    from fedcmoo.runs import Runs

    with errors_for_people(AGAIN):
        fedcmoo, fsmgda = (options.resolve(method) for method in ("fedcmoo", "fsmgda"))
        widths, whole = numbers("--bits", bits, int) if bits else [], numbers("--uploads", uploads, float)
        chosen = configurations(fedcmoo, fsmgda, numbers("--seeds", seeds, int), whole, widths)
        folder = folder or Path("runs") / f"traffic-{fedcmoo.problem.name}"
        d = Sizes.of(fedcmoo.build().flat_model(), M=1).d
        store = Runs(runs or folder, progress)
        make_missing(store, by_name(chosen), jobs)
        comparison = compare_configs(chosen, store)
        bench = TrafficBench.of(comparison, d)
        write_json(folder / "traffic.json", bench.summary())
        write_atomically(folder / "traffic.md", bench.table().markdown().encode())
        draw(bench.chart(), folder / "traffic.png")
        files = f"in {folder}: traffic.png, .md and .json; the runs are in {runs or folder}"
        show(as_json, bench.summary(), bench.table(), files)
    name_diverged(comparison.diverged)


@app.command()
@with_options("problem", "seed", "config", "sets", "small", "data")
def speed(
    options: Options,
    rounds: Annotated[int, typer.Option(help="rounds measured on each engine")] = 8,
    workers: Annotated[
        list[int] | None, typer.Option(help="sizes of the pool to measure", show_default="one a core")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="three rounds, and less growth")] = False,
    growing: Annotated[bool, typer.Option("--growth/--no-growth", help="measure how rounds grow")] = True,
    trace: Annotated[Path | None, typer.Option("--profile", help="write a trace of one local round there")] = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="where the figure and speed.json go")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure rounds by phase and engine beside a plain PyTorch loop, and how they grow with the problem."""
    from fedcmoo.bench.speed import GROWTH, bench_speed, profile
    from fedcmoo.engines import Engine, Local, Pool
    from fedcmoo.engines.pool import usable_cores
    from fedcmoo.files import write_json
    from fedcmoo.methods import FedCMOO
    from fedcmoo.training import cohort_size

    with errors_for_people():
        chosen = options.resolve("fedcmoo", {"rounds": rounds})
        if not isinstance(chosen.method, FedCMOO):
            raise SettingsError(f"the speed of fedcmoo is measured, but method.name is {type(chosen.method).__name__}")
        built = chosen.build()
        n = cohort_size(chosen.clients_per_round, built)
        engines: dict[str, Engine] = {"local": Local()}
        engines |= {f"pool of {n}": Pool(workers=n) for n in workers or [usable_cores()]}
        bench = bench_speed(
            built,
            chosen.method,
            engines,
            rounds=3 if quick else chosen.rounds,
            clients_per_round=n,
            growth={what: values[: 3 if quick else None] for what, values in GROWTH.items() if growing},
            repeats=1 if quick else 3,
            say=err.print,
        )
        if trace is not None:
            profile(built, chosen.method, n, trace)
        if folder is not None:
            write_json(folder / "speed.json", bench.summary())
            bench.plot(folder / "speed.png")
        show(as_json, bench.summary(), *bench.tables())


@app.command()
def engines(
    names: Annotated[list[str] | None, typer.Argument(help="local, pool, ray, flower", show_default="all")] = None,
    rounds: Annotated[int, typer.Option(help="rounds on each; the first counts as part of the start")] = 5,
    nodes: Annotated[int, typer.Option(help="Flower's SuperNodes, on this machine")] = 3,
    secure: Annotated[bool, typer.Option("--secure", help="with secure sums, on local and flower")] = False,
    trips: Annotated[int, typer.Option(help="trips a round: 2, or 1 for FedCMOO(trips=1)")] = 2,
    as_json: AsJson = False,
) -> None:
    """Measure what a round costs on each engine when clients have almost nothing to do."""
    from fedcmoo.bench.engines import measure, table

    with errors_for_people():
        costs = measure(names or (), rounds, nodes, secure, trips, err.print)
    show(as_json, [asdict(cost) for cost in costs], table(costs, trips))


@app.command()
@with_options("rounds", "data")
def weights(
    options: Options,
    rules: Annotated[
        str | None,
        typer.Option(
            help="weighting rules, separated by commas", show_default="all but krum, which wants three objectives"
        ),
    ] = None,
    problems: Annotated[
        str | None, typer.Option(help="ready-made problems, separated by commas", show_default="the suite")
    ] = None,
    seeds: Seeds = "0,1,2",
    folder: Annotated[Path, typer.Option("--out", "-o", help="for tables and the figure")] = Path("runs/bench-weights"),
    runs: KeptRuns = None,
    as_json: AsJson = False,
) -> None:
    """Compare weighting rules with FedAvg on problems whose objectives differ in scale or conflict.

    Each run has its own folder and is found again by its settings; run the same command again to continue.
    """
    from fedcmoo.bench.weights import SUITE, Suite
    from fedcmoo.cli.resolving import different, known, numbers
    from fedcmoo.config import variants
    from fedcmoo.experiments import PROBLEMS
    from fedcmoo.files import write_atomically, write_json
    from fedcmoo.runs import Runs
    from fedcmoo.weights import WEIGHTS
    from fedcmoo.weights.scalarization import SCALARIZATIONS

    every = {**WEIGHTS, **SCALARIZATIONS}
    with errors_for_people(AGAIN):
        chosen = different("--rules", rules) if rules else [name for name in every if name != "krum"]
        on = different("--problems", problems) if problems else SUITE
        for rule in chosen:
            known("weighting rule", rule, every)
        for problem in on:
            known("problem", problem, [*PROBLEMS, *variants()])
        suite = Suite(Runs(runs or folder, progress), numbers("--seeds", seeds, int), options.given())
        bench = suite.bench(chosen, on)
        table = bench.overview()
        write_json(folder / "weights.json", bench.summary())
        write_atomically(folder / "weights.md", table.markdown().encode())
        write_atomically(folder / "weights.csv", table.csv().encode())
        bench.plot(folder / "weights.png")
        files = f"in {folder}: weights.png, .md, .csv and .json; the runs are in {runs or folder}"
        show(as_json, bench.summary(), table, files)


@app.command()
def privacy(
    problem: Annotated[str, typer.Option(help="two-digits or multimnist")] = "two-digits",
    epsilons: Annotated[str, typer.Option(help="budgets, separated by commas; none for no noise")] = "none,32,8,2",
    clients: Annotated[str, typer.Option(help="numbers of clients, separated by commas")] = "100,1000",
    rounds: Annotated[int, typer.Option(help="rounds of each run")] = 30,
    as_json: AsJson = False,
) -> None:
    """Measure the accuracy with differential privacy, for several budgets and numbers of clients."""
    from fedcmoo.bench.privacy import measure, table
    from fedcmoo.cli.resolving import numbers

    with errors_for_people():
        budgets = numbers("--epsilons", epsilons, lambda text: None if text == "none" else float(text))
        costs = measure(problem, numbers("--clients", clients, int), budgets, rounds, err.print)
    show(as_json, [asdict(cost) for cost in costs], table(costs, rounds))
