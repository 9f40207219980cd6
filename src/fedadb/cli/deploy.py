"""The commands of a real federation: keys, server, site and Flower application."""

import re
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from fedadb.cli.commands import CONNECTS, Commands
from fedadb.cli.terminal import (
    FromRoundOption,
    SettingsOption,
    TrackOption,
    console,
    experiment_table,
    sets,
    show_disclosures,
    show_message,
    show_progress,
)
from fedadb.core.errors import BadInput
from fedadb.interruption import this_command
from fedadb.storage.run_directory import MODEL, ROUNDS

deploy = typer.Typer(cls=Commands, help="Train across real sites; their data do not leave them.")

SharedExperimentArgument = Annotated[
    Path,
    typer.Argument(help="The experiment in TOML. The server and all sites use the same file."),
]


def require_flower() -> None:
    """Raise BadInput unless the version of Flower that we need is installed."""
    (needed,) = re.findall(r"flwr==([\w.]+)", " ".join(metadata.requires("fedadb") or ()))
    try:
        found = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        raise BadInput("Flower is not installed: pip install 'fedadb[federation]'") from None
    if found != needed:
        raise BadInput(
            f"Flower {found} is installed, but {needed} is needed: pip install 'fedadb[federation]'"
        )


@deploy.command(name="keys")
def make_keys(
    directory: Annotated[
        Path, typer.Argument(help="The directory for the keys; created if it does not exist.")
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name or address by which sites reach the server. Can be given several times."
        ),
    ] = None,
    site: Annotated[
        bool, typer.Option("--site", help="Make a site's key instead of the server's keys.")
    ] = False,
    days: Annotated[
        int,
        typer.Option(
            min=1,
            max=36_500,
            help="The validity of the server's certificate in days; its authority's is ten times "
            "as long.",
        ),
    ] = 365,
    renew: Annotated[
        bool,
        typer.Option(
            "--renew",
            help="Make a new certificate of the server, also while it runs. Sites need nothing.",
        ),
    ] = False,
) -> None:
    """Make the server's certificates and keys, or a site's key, in DIRECTORY.

    Run it on the machine that will use the keys: private keys should never travel.
    """
    require_flower()
    from fedadb.deploy import keys

    if site and (host or renew):
        raise BadInput("--site excludes --host and --renew: a site's key has no certificate")
    if renew:
        keys.renew_server_certificate(directory, host or [], days)
        show_message(f"{directory / keys.SERVER} is new. A running server uses it in a second.")
        return
    if site:
        keys.make_site_keys(directory)
        show_message(f"Give {directory / keys.SITE_PUBLIC} to the server. Keep the rest here.")
        return
    if not host:
        raise BadInput("--host is missing: the name or address by which sites reach the server")
    keys.make_server_keys(directory, host, days)
    show_message(f"Give {directory / keys.CA} to every site. Keep the rest here.")
    show_message(f"Put the site.pub of each site into {directory / keys.SITES} as NAME.pub.")


@deploy.command()
def fingerprint(
    directory: Annotated[Path, typer.Argument(help="The directory with the site's key.")],
) -> None:
    """Show the fingerprint of all sites' public keys, for secure aggregation.

    DIRECTORY contains roster/NAME.pub for every site. People at all sites compare the fingerprint,
    by phone for example, before the first run.
    """
    require_flower()
    from fedadb.deploy.roster import read_roster

    roster = read_roster(directory)
    show_message(f"{roster.name} of the sites {', '.join(sorted(roster.public_keys))}")
    show_message(roster.fingerprint)


@deploy.command()
def application(
    experiment: SharedExperimentArgument,
    directory: Annotated[Path, typer.Argument(help="The directory for the application.")],
    settings: SettingsOption = None,
) -> None:
    """Write the experiment as a Flower application, for `flwr run`.

    EXPERIMENT is a TOML file. The application is written to DIRECTORY.
    """
    require_flower()
    from fedadb.deploy.agreement import write_application
    from fedadb.experiment.config import Experiment

    e = Experiment.read(experiment_table(experiment, settings))
    write_application(directory, e)
    show_message(f"flwr run {directory} --run-config 'out=\"/absolute/path/of/the/run\"'")


@deploy.command()
def server(
    directory: Annotated[Path, typer.Argument(help="The directory with the server's keys.")],
    experiment: SharedExperimentArgument,
    out: Annotated[Path, typer.Option("--out", help="The run's directory.")],
    listen: Annotated[
        str, typer.Option(help="ADDRESS:PORT at which the server accepts sites.")
    ] = "0.0.0.0:8443",
    metrics: Annotated[
        str | None,
        typer.Option(
            help="ADDRESS:PORT for GET /health and GET /metrics, without TLS and login; off unless "
            "it is given."
        ),
    ] = None,
    from_round: FromRoundOption = None,
    track: TrackOption = None,
    settings: SettingsOption = None,
) -> None:
    """Start the server, train with the sites, and stop the server.

    DIRECTORY contains the server's keys. EXPERIMENT is a TOML file; all sites must have the same
    one. The same command resumes an interrupted run.
    """
    require_flower()
    from fedadb.cli.display import ProgressBar, progress_bars
    from fedadb.cli.execution import show_results, show_run_warnings
    from fedadb.deploy.accepted_sites import site_names
    from fedadb.deploy.metrics import Watched
    from fedadb.deploy.monitoring import monitored
    from fedadb.deploy.ports import parse_address, require_free_port
    from fedadb.deploy.server import start_server, upload_limit
    from fedadb.deploy.server_app import interruption_noted
    from fedadb.experiment.config import Experiment
    from fedadb.experiment.identity import require_same_run
    from fedadb.experiment.observation import observed
    from fedadb.observers import make_trackers
    from fedadb.storage.records import read_records

    trackers = make_trackers(track)
    e = Experiment.read(experiment_table(experiment, settings))
    host, port = parse_address(listen, "--listen")
    watch = parse_address(metrics, "--metrics") if metrics else None
    if watch:
        require_free_port(*watch, "--metrics")
    require_same_run(out, e)
    if (out / MODEL).exists():
        if from_round is not None:
            raise BadInput(f"--from-round {from_round}: the run in {out} is finished")
        show_message(f"finished earlier, in {out}")
        show_results([out])
        return
    show_disclosures(e.table())
    sites = site_names(directory)
    if len(sites) > e.federation.clients:
        raise BadInput(
            f"federation.clients = {e.federation.clients}, but {directory} has the public keys of "
            f"{len(sites)} sites: {', '.join(sites)}"
        )
    records = read_records(out / ROUNDS)
    done = records[:from_round]
    with (
        monitored(Watched(directory, out, e), *watch) if watch else nullcontext(),
        interruption_noted(out),
        start_server(directory, host, port, upload_limit(e, show_progress)) as running,
    ):
        show_message(f"The server accepts {', '.join(running.sites)} at {listen}.")
        run = running.submit(e, out, from_round, sets(settings, "engine.kernels"))
        forgotten = records[len(done) :]
        rounds = running.follow(run, out, e.rounds, len(done), show_message, forgotten)
        title = f"{e.algorithm.name} across {e.federation.clients} sites"
        with (
            progress_bars(console) as bars,
            show_run_warnings(),
            observed([ProgressBar(bars, title)], e, out, done, rounds) as shown,
        ):
            # Trackers write to the run's directory, which the server makes before its first round.
            done += [record for record in [next(shown, None)] if record]
            with observed(trackers, e, out, done, shown) as tracked:
                for _ in tracked:
                    pass  # the observers show it
    show_results([out])
    show_message(f"Results: {out}")


@deploy.command()
def site(
    directory: Annotated[
        Path, typer.Argument(help="The directory with the site's key and the server's ca.crt.")
    ],
    experiment: SharedExperimentArgument,
    server: Annotated[str, typer.Option(help="HOST:PORT of the server.")],
    data: Annotated[str, typer.Option(help="The site's data: folder:PATH, npz:PATH or csv:PATH.")],
    threads: Annotated[
        int,
        typer.Option(
            min=1,
            help="Threads to train with. With more than one, results are not bit-identical.",
        ),
    ] = 1,
    max_runs: Annotated[
        int, typer.Option(min=1, help="Runs of the experiment in which the site takes part.")
    ] = 10,
    settings: SettingsOption = None,
) -> None:
    """Take part as a site until Ctrl-C or SIGTERM.

    DIRECTORY contains the site's key and the server's ca.crt. EXPERIMENT is the server's TOML file.
    The site's data do not leave it.
    """
    require_flower()
    from fedadb.deploy.site import run_site
    from fedadb.experiment.config import Experiment

    e = Experiment.read(experiment_table(experiment, settings))
    show_disclosures(e.table())
    run_site(directory, e, server, data, threads, show_message, max_runs)
    show_message(f"stopped; {CONNECTS}: {this_command()}")
