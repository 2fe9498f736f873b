"""`fit`: train a model, with callbacks, checkpoints and resume."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import NoneType

from fedcmoo.acceptance import ACCEPTANCES, Acceptance
from fedcmoo.callbacks.base import Callback, Training
from fedcmoo.contributions import Stage, check_channels
from fedcmoo.download import Download, check_download
from fedcmoo.engines import ENGINES, Engine, choose_engine, start_engine
from fedcmoo.failures import FAILURE_RULES, FailureRule
from fedcmoo.history import Record
from fedcmoo.identity import identity
from fedcmoo.loop import Loop
from fedcmoo.methods import METHODS
from fedcmoo.methods.base import Method
from fedcmoo.privacy.differential import DifferentialPrivacy, PrivateRun
from fedcmoo.privacy.secure import Secure
from fedcmoo.problem import Problem
from fedcmoo.result import Result
from fedcmoo.rounds import Server, Sizes
from fedcmoo.run_folder import MODEL, RunFolder, save_model
from fedcmoo.settings import SettingsError, Table, described, object_of
from fedcmoo.validation import at_least_one


def fit(
    problem: Problem,
    method: Method | str,
    rounds: int = 100,
    *,
    clients_per_round: int | None = None,
    seed: int = 0,
    engine: Engine | str | None = None,
    evaluate_every: int = 5,
    callbacks: Sequence[Callback] = (),
    folder: str | Path | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
    privacy: DifferentialPrivacy | None = None,
    secure: bool | Secure = False,
    stages: Sequence[Stage] = (),
    acceptance: Acceptance | str = "bounded",
    on_failure: FailureRule | str = "stop",
    download: Download = "full",
    config: Table | None = None,
) -> Result:
    """Train a model for several objectives over many clients.

    Args:
        problem: model, objectives and data.
        method: the method, such as `FedCMOO(client_lr=0.1)`, or its name, such as "fedcmoo", for its defaults.
        rounds: the number of rounds, T.
        clients_per_round: the cohort's size; by default 10, or all clients if there are fewer.
        seed: the seed of all randomness in training: cohorts, batches, dropout. Training starts from the current
            parameters of `problem.model`, so call `torch.manual_seed` before you create the model.
        engine: where clients run, such as `Pool()` or "pool"; by default worker processes if there are enough cores and
            enough work.
        evaluate_every: rounds between evaluations on test and validation data. The last round is always evaluated,
            unless a callback ends the run before; the scores of the result are then those of the last evaluation.
        callbacks: callbacks for progress, early stopping and so on.
        folder: the output folder for configuration, history, checkpoints, final model, curves and results; None to
            write nothing.
        checkpoint_every: rounds between checkpoints. One is also written at the end, on Ctrl-C and on SIGTERM.
        resume: continue from the checkpoint in `folder`; results are bit for bit those of an uninterrupted run.
        privacy: differential privacy, such as `DifferentialPrivacy(epsilon=8.0)`; cohorts and noise are then not
            derived from the seed.
        secure: secure aggregation: the server learns sums over cohorts, but no single reply. True for the defaults of
            `Secure`.
        stages: processing steps applied to every contribution between clients and server, such as `Clip(1.0)` for a
            bound on what one client contributes, or `TrimmedMean()` against hostile clients.
        acceptance: the rule by which the model of a round replaces the previous one, or its name. "bounded": it must be
            finite and have a norm of at most 1e8; "bounded-rise": also without a large rise of the validation loss.
        on_failure: what to do about clients that fail, on every engine: "stop" ends the run with the client's error,
            "skip" continues without such clients and records them; `Skip(min_replies=5)` requires at least 5 replies.
        download: how the model is sent to clients: "full", or in fewer bits as "bfloat16" or "8-bit".
        config: the table written to config.toml; by default one built from those of these arguments that have names.

    Returns:
        The result, with the history of every round and the trained model.
    """
    algorithm: Method = object_of(method, METHODS, "method")
    wanted: Engine | None = object_of(engine, ENGINES, "engine")
    rule: FailureRule = object_of(on_failure, FAILURE_RULES, "on_failure")
    accept: Acceptance = object_of(acceptance, ACCEPTANCES, "acceptance")
    _check_types(problem, algorithm, rule, accept, privacy)
    _check_lists(stages, callbacks)
    at_least_one(rounds=rounds, evaluate_every=evaluate_every, checkpoint_every=checkpoint_every)
    n = cohort_size(clients_per_round, problem)
    if rule.min_replies > n:
        raise ValueError(f"min_replies must be at most clients_per_round ({n}), but got {rule.min_replies}")
    if resume and folder is None:
        raise ValueError("resume needs the folder of the run to continue")
    check_download(download)
    settings = config or {
        "problem": {"name": problem.name},
        "method": described(algorithm, METHODS),
        **({} if wanted is None else {"engine": described(wanted, ENGINES)}),
        "rounds": rounds,
        "clients_per_round": n,
        "seed": seed,
        "evaluate_every": evaluate_every,
        "checkpoint_every": checkpoint_every,
        "download": download,
    }
    problem.check()
    stages = [*stages, *(stage for stage in (Secure() if secure is True else secure, privacy) if stage)]
    server = _new_server(problem, algorithm, seed, rule, download)
    private = PrivateRun.of(stages, algorithm.releases, problem, n, rounds)
    channels = algorithm.channels(stages if private is None else private.stages)
    check_channels(channels, problem, n, server.sizes)
    accept.check(problem)
    steps = algorithm.local_steps * n * rounds
    chosen = choose_engine(
        wanted, problem, channels, server.sizes, clients_per_round=n, steps=steps, batch_size=algorithm.batch_size
    )
    with ExitStack() as stack:
        for callback in callbacks:
            stack.callback(callback.close)
        path, run_folder = None if folder is None else Path(folder), None
        history: list[Record] = []
        if path is not None:
            others = {"stages": list(stages), "download": download, "acceptance": accept}
            run_folder = RunFolder(path, identity(problem, algorithm, chosen, n, seed, others))
            stack.callback(run_folder.close)
            history = run_folder.begin(server, resume)
            run_folder.save_config(settings)
        if private is not None:
            private.start(server, path, resume)
        training = Training(problem, algorithm, rounds, history, path, server)
        for callback in callbacks:
            callback.on_start(training)
        session = stack.enter_context(start_engine(chosen, problem, channels, seed, server.sizes))
        loop = Loop(problem, algorithm, channels, session, server, run_folder, callbacks, history, accept, private)
        loop.run(rounds, n, evaluate_every, checkpoint_every)
        result = Result(settings, history, training.model(), server.x.nbytes, training.model)
        if path is not None:
            save_model(path / MODEL, result.model)
            result.save(path)
        for callback in callbacks:
            callback.on_end(result)
    return result


def cohort_size(clients_per_round: int | None, problem: Problem) -> int:
    """The number of clients in a round: by default 10, or all clients if there are fewer."""
    n = min(10, problem.N) if clients_per_round is None else clients_per_round
    if not 1 <= n <= problem.N:
        raise SettingsError(f"clients_per_round must be from 1 to the number of clients ({problem.N}), but got {n}")
    return n


def _check_types(
    problem: Problem,
    method: Method,
    on_failure: FailureRule,
    acceptance: Acceptance,
    privacy: DifferentialPrivacy | None,
) -> None:
    for name, value, kind, example in (
        ("problem", problem, Problem, "Problem(model, objectives, clients)"),
        ("method", method, Method, "FedCMOO()"),
        ("on_failure", on_failure, FailureRule, "Skip()"),
        ("acceptance", acceptance, Acceptance, "BoundedRise()"),
        ("privacy", privacy, (DifferentialPrivacy, NoneType), "DifferentialPrivacy(epsilon=8.0)"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be an object such as {example}, but got {value!r:.200}")


def _check_lists(stages: Sequence[Stage], callbacks: Sequence[Callback]) -> None:
    for name, values, kind, example in (
        ("stages", stages, Stage, "[TrimmedMean()]"),
        ("callbacks", callbacks, Callback, "[ProgressBar()]"),
    ):
        if not isinstance(values, Sequence) or not all(isinstance(value, kind) for value in values):
            raise TypeError(f"{name} must be a list such as {example}, but got {values!r:.200}")


def _new_server(problem: Problem, method: Method, seed: int, on_failure: FailureRule, download: Download) -> Server:
    model = problem.flat_model()
    return Server(
        sizes=Sizes.of(model, problem.M),
        seed=seed,
        N=problem.N,
        x=model.public.x.clone(),
        buffers=model.public.buffers,
        counters=model.public.counters,
        w=method.initial_weights(problem.M),
        download=download,
        on_failure=on_failure,
    )
