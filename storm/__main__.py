"""`python -m storm PART`: search for holes, and say what was tried and how often."""

import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from storm.outcome import Outcome

app = typer.Typer(no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)
Seed = Annotated[int, typer.Option(help="Decides what is tried.")]
Out = Annotated[Path, typer.Option(help="The directory for the counts.")]
RESULTS = Path("storm-results")


@app.callback()
def options() -> None:
    """Each part prints its seed and the command that repeats it."""


def carry_out(
    name: str, part: Callable[..., None], seed: int, out: Path, **options: float | str
) -> None:
    """Carry out a part in a directory that is removed, and exit with 1 if a promise was broken."""
    given = [f" --{key} {shlex.quote(str(value))}" for key, value in options.items() if value != ""]
    outcome = Outcome(name, seed, f"python -m storm {name} --seed {seed}{''.join(given)}")
    with tempfile.TemporaryDirectory(prefix="storm-") as scratch:
        part(outcome, scratch=Path(scratch), **options)
    sys.exit(0 if outcome.finish(out) else 1)


@app.command()
def kills(seed: Seed = 0, times: int = 500, out: Out = RESULTS) -> None:
    """Strike runs, comparisons, searches and workers at random moments."""
    from storm.commands import storm_commands

    carry_out("kills", storm_commands, seed, out, times=times)


@app.command()
def federations(seed: Seed = 0, times: int = 30, out: Out = RESULTS) -> None:
    """Strike servers and sites of real federations at random moments."""
    from storm.participants import storm_participants

    carry_out("federations", storm_participants, seed, out, times=times)


@app.command()
def fuzz(
    seed: Seed = 0,
    inputs: int = 1_000_000,
    only: Annotated[str, typer.Option(help="Readers whose name has this in it.")] = "",
    out: Out = RESULTS,
) -> None:
    """Give everything that reads from outside inputs that are nearly valid."""
    from storm.fuzz import storm_fuzz

    carry_out("fuzz", storm_fuzz, seed, out, inputs=inputs, only=only)


@app.command()
def load(
    seed: Seed = 0,
    scale: Annotated[float, typer.Option(help="Of all sizes.")] = 1.0,
    only: Annotated[str, typer.Option(help="Measurements whose name has this in it.")] = "",
    out: Out = RESULTS,
) -> None:
    """Measure time and memory of large federations."""
    from storm.load import storm_load

    carry_out("load", storm_load, seed, out, scale=scale, only=only)


@app.command()
def guided(
    seed: Seed = 0,
    inputs: int = 100_000,
    only: Annotated[str, typer.Option(help="Readers whose name has this in it.")] = "",
    out: Out = RESULTS,
) -> None:
    """As fuzz, with inputs that Atheris chooses by the lines they reach."""
    from storm.guided import storm_guided

    carry_out("guided", storm_guided, seed, out, inputs=inputs, only=only)


@app.command()
def hostile(seed: Seed = 0, runs: int = 300, out: Out = RESULTS) -> None:
    """Let a site of a federation play tricks."""
    from storm.hostile import storm_hostile

    carry_out("hostile", storm_hostile, seed, out, runs=runs)


@app.command()
def stranger(seed: Seed = 0, rounds: int = 8, out: Out = RESULTS) -> None:
    """Attack the port of a running federation that also has a hostile site."""
    from storm.stranger import storm_stranger

    carry_out("stranger", storm_stranger, seed, out, rounds=rounds)


@app.command()
def network(
    seed: Seed = 0,
    cut: Annotated[float, typer.Option(help="Seconds for which a site is cut off.")] = 60.0,
    out: Out = RESULTS,
) -> None:
    """Train over a network that delays and loses packets, and cut a site off."""
    from storm.network import storm_network

    carry_out("network", storm_network, seed, out, cut=cut)


@app.command()
def ray(seed: Seed = 0, out: Out = RESULTS) -> None:
    """Lose one of three Ray nodes, each in a network namespace of its own."""
    from storm.ray_nodes import storm_ray

    carry_out("ray", storm_ray, seed, out)


if __name__ == "__main__":
    app()
