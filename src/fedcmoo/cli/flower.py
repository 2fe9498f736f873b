"""`fedcmoo flower`: try Flower on this machine, write an app, write keys, start a node."""

from pathlib import Path
from typing import Annotated

import typer

from fedcmoo.cli.configured import Options, with_options
from fedcmoo.cli.options import err, errors_for_people, out
from fedcmoo.settings import merge

app = typer.Typer(help="Flower: federations of many machines.", no_args_is_help=True)


@app.command()
@with_options("rounds", "config")
def demo(options: Options, nodes: Annotated[int, typer.Option(help="how many SuperNodes")] = 3) -> None:
    """Run some rounds on a SuperLink and SuperNodes on this machine, and compare with the local engine."""
    with errors_for_people():
        from fedcmoo.config import RunConfig
        from fedcmoo.flower.demo import DEMO, demo

        chosen = RunConfig.from_table(merge(DEMO, options.given())) if options.config is None else options.resolve()
        comparison = demo(chosen, nodes, err.print)
    out.print(comparison.local.table())
    if not comparison.equal:
        err.print("[bold red]error:[/] Flower and the local engine gave different results")
        raise typer.Exit(1)
    out.print(
        f"Flower with {nodes} nodes and the local engine gave the same model and history, bit for bit "
        f"({comparison.seconds:.0f} s and {comparison.local.seconds:.1f} s)."
    )


@app.command()
@with_options("config", "sets")
def init(options: Options, folder: Annotated[Path, typer.Argument(help="where to write the app")]) -> None:
    """Write a ready Flower app for a run's configuration (by default the two-digits problem)."""
    with errors_for_people():
        from fedcmoo.flower.template import write_app

        for path in write_app(folder, options.resolve()):
            out.print(str(path))
    err.print(f"{folder}/README.md has the commands")


@app.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="where to write certificates and keys")],
    nodes: Annotated[int, typer.Option(help="how many nodes")] = 3,
    host: Annotated[list[str] | None, typer.Option(help="name or address of the server; may be repeated")] = None,
    days: Annotated[int, typer.Option(help="how long certificates are valid")] = 365,
) -> None:
    """Write certificates, the nodes' keys and a proxy's configuration, and print the commands."""
    with errors_for_people():
        from fedcmoo.flower.keys import commands, write_keys, write_proxy

        hosts = host or ["localhost"]
        write_keys(folder, nodes, hosts, days)
        write_proxy(folder, listen="8443", superlink="127.0.0.1:8000")
    out.print(commands(folder, nodes, hosts[0]), soft_wrap=True, markup=False)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="All other options are those of flower-supernode.",
)
def node(
    context: typer.Context,
    preload: Annotated[list[str] | None, typer.Option(help="a module that your app imports; may be repeated")] = None,
) -> None:
    """Start a SuperNode that imports the app once instead of for every message, so rounds are much faster."""
    with errors_for_people():
        from fedcmoo.flower.warm import run_node

        code = run_node(context.args, preload or ())
    raise typer.Exit(code)
