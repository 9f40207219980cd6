"""The commands of a real federation: keys, the server, a site."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from fedadb.cli.terminal import SETTINGS, complain, given, out, tell
from fedadb.core.errors import BadInput
from fedadb.storage.run_directory import MODEL, ROUNDS

deploy = typer.Typer(help="Train across real sites, whose data stay where they are.")

EXPERIMENT = Annotated[
    Path, typer.Argument(help="The experiment in TOML: the same file at the server and all sites.")
]


def _require_flower() -> None:
    if importlib.util.find_spec("flwr") is None:
        raise BadInput("Flower is not installed: pip install 'fedadb[federation]'")


@deploy.command(name="keys")
def make_keys(
    directory: Annotated[Path, typer.Argument(help="Where they go; made if it is not there.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="Of the server: a name or address by which sites reach it."),
    ] = None,
    site: Annotated[
        bool, typer.Option("--site", help="A site's key, in place of the server's keys.")
    ] = False,
    days: Annotated[
        int, typer.Option(min=1, max=36_500, help="How long the certificates last.")
    ] = 365,
) -> None:
    """Make the server's certificates and secret, or a site's key, where they are to stay."""
    _require_flower()
    from fedadb.deploy import keys

    if site and host:
        raise BadInput("--site and --host: a site's key has no host; make the server's elsewhere")
    if site:
        keys.make_site_keys(directory)
        tell(f"Give {directory / keys.SITE_PUBLIC} to the server, and keep the rest here.")
        return
    if not host:
        raise BadInput("--host is missing: the name or address by which sites reach the server")
    keys.make_server_keys(directory, host, days)
    tell(f"Give {directory / keys.CA} to every site, and keep the rest here.")
    tell(f"Put the site.pub of every site into {directory / keys.SITES} as NAME.pub.")


@deploy.command()
def application(
    experiment: EXPERIMENT,
    directory: Annotated[Path, typer.Argument(help="Where it goes.")],
    settings: SETTINGS = None,
) -> None:
    """Write the experiment as an application of Flower, for `flwr run`."""
    _require_flower()
    from fedadb.deploy.application import write_application
    from fedadb.experiment.config import Experiment

    e = Experiment.read(given(experiment, settings))
    write_application(directory, e)
    tell(f"flwr run {directory} --run-config 'out=\"/absolute/path/of/the/run\"'")


@deploy.command()
def server(
    directory: Annotated[Path, typer.Argument(help="Where the server's keys are.")],
    experiment: EXPERIMENT,
    place: Annotated[Path, typer.Option("--out", help="Where the run goes.")],
    listen: Annotated[str, typer.Option(help="ADDRESS:PORT that sites reach.")] = "0.0.0.0:8443",
    settings: SETTINGS = None,
) -> None:
    """Bring the server up, train with the sites, and stop; or go on where it stopped."""
    _require_flower()
    from fedadb.cli.many import show
    from fedadb.deploy.address import read_address
    from fedadb.deploy.keys import SITES
    from fedadb.deploy.server import server as up
    from fedadb.deploy.server_app import STOPPED, status_of
    from fedadb.storage.records import read_records
    from fedadb.experiment.config import Experiment
    from fedadb.experiment.directory import require_own
    from fedadb.experiment.run import Run
    from fedadb.cli.display import bar, follow

    e = Experiment.read(given(experiment, settings))
    host, port = read_address(listen, "--listen")
    require_own(place, e)
    if (place / MODEL).exists():
        tell(f"done earlier, in {place}")
        show([place], experiment.stem, None)
        return
    names = [path.stem for path in (directory / SITES).glob("*.pub")]
    if names and len(names) != e.federation.clients:
        raise BadInput(
            f"{directory / SITES} has the keys of {len(names)} sites and federation.clients = "
            f"{e.federation.clients}"
        )
    with up(directory, host, port) as running:
        tell(f"The server is up on {listen} for {', '.join(running.sites)}")
        number = running.submit(e, place)
        try:
            done = read_records(place / ROUNDS)
            rounds = running.rounds(number, place, e.rounds, len(done), tell)
            with bar(out) as progress:
                title = f"{type(e.algorithm).__name__} across {e.federation.clients} sites"
                follow(Run(place, done, rounds), e.rounds, progress, title)
        except KeyboardInterrupt:
            status_of(place).write_text(f"{STOPPED}by the operator")
            complain(f"stopped; the same command goes on from the last round in {place}")
            raise typer.Exit(130) from None
    show([place], experiment.stem, None)
    tell(f"Results: {place}")


@deploy.command()
def site(
    directory: Annotated[Path, typer.Argument(help="Where the site's key and ca.crt are.")],
    experiment: EXPERIMENT,
    server: Annotated[str, typer.Option(help="HOST:PORT of the server.")],
    data: Annotated[str, typer.Option(help="The site's images: folder:PATH or npz:PATH.")],
    threads: Annotated[
        int, typer.Option(min=1, help="To train with; more than one changes the last bits.")
    ] = 1,
    settings: SETTINGS = None,
) -> None:
    """Take part as a site, until it is stopped. Its images stay here."""
    _require_flower()
    from fedadb.deploy.site import Place, join
    from fedadb.experiment.config import Experiment

    e = Experiment.read(given(experiment, settings))
    join(Place(directory, server, data, threads), e, tell)
