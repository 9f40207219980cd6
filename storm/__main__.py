"""`python -m storm PART`: search for holes, and say what was tried and how often."""

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


def carry_out(outcome: Outcome, out: Path, part: Callable[[Outcome, Path], None]) -> None:
    """Carry out a part in a directory that is removed, and exit with 1 if a promise was broken."""
    with tempfile.TemporaryDirectory(prefix="storm-") as scratch:
        part(outcome, Path(scratch))
    sys.exit(0 if outcome.finish(out) else 1)


@app.command()
def kills(seed: Seed = 0, times: int = 500, out: Out = RESULTS) -> None:
    """Strike runs, comparisons, searches and workers at random moments."""
    from storm.commands import storm_commands

    outcome = Outcome("kills", seed, f"python -m storm kills --seed {seed} --times {times}")
    carry_out(outcome, out, lambda outcome, scratch: storm_commands(outcome, times, scratch))


@app.command()
def federations(seed: Seed = 0, times: int = 30, out: Out = RESULTS) -> None:
    """Strike servers and sites of real federations at random moments."""
    from storm.participants import storm_participants

    again = f"python -m storm federations --seed {seed} --times {times}"
    outcome = Outcome("federations", seed, again)
    carry_out(outcome, out, lambda outcome, scratch: storm_participants(outcome, times, scratch))


@app.command()
def fuzz(
    seed: Seed = 0,
    inputs: int = 1_000_000,
    only: Annotated[str, typer.Option(help="Readers whose name has this in it.")] = "",
    out: Out = RESULTS,
) -> None:
    """Give everything that reads from outside inputs that are nearly valid."""
    from storm.fuzz import storm_fuzz

    again = f"python -m storm fuzz --seed {seed} --inputs {inputs}" + (only and f" --only '{only}'")
    outcome = Outcome("fuzz", seed, again)
    carry_out(outcome, out, lambda outcome, scratch: storm_fuzz(outcome, inputs, scratch, only))


@app.command()
def load(
    seed: Seed = 0,
    scale: Annotated[float, typer.Option(help="Of all sizes.")] = 1.0,
    only: Annotated[str, typer.Option(help="Measurements whose name has this in it.")] = "",
    out: Out = RESULTS,
) -> None:
    """Measure time and memory of large federations."""
    from storm.load import storm_load

    again = f"python -m storm load --scale {scale}" + (only and f" --only '{only}'")
    outcome = Outcome("load", seed, again)
    carry_out(outcome, out, lambda outcome, scratch: storm_load(outcome, scratch, scale, only))


@app.command()
def guided(
    seed: Seed = 0,
    inputs: int = 100_000,
    only: Annotated[str, typer.Option(help="Readers whose name has this in it.")] = "",
    out: Out = RESULTS,
) -> None:
    """As fuzz, with inputs that Atheris chooses by the lines they reach."""
    from storm.guided import storm_guided

    again = f"python -m storm guided --seed {seed} --inputs {inputs}"
    outcome = Outcome("guided", seed, again + (only and f" --only '{only}'"))
    carry_out(outcome, out, lambda outcome, scratch: storm_guided(outcome, inputs, scratch, only))


@app.command()
def hostile(seed: Seed = 0, runs: int = 300, out: Out = RESULTS) -> None:
    """Let a site of a federation play tricks."""
    from storm.hostile import storm_hostile

    outcome = Outcome("hostile", seed, f"python -m storm hostile --seed {seed} --runs {runs}")
    carry_out(outcome, out, lambda outcome, scratch: storm_hostile(outcome, runs, scratch))


@app.command()
def stranger(seed: Seed = 0, rounds: int = 8, out: Out = RESULTS) -> None:
    """Attack the port of a running federation that also has a hostile site."""
    from storm.stranger import storm_stranger

    outcome = Outcome("stranger", seed, f"python -m storm stranger --seed {seed} --rounds {rounds}")
    carry_out(outcome, out, lambda outcome, scratch: storm_stranger(outcome, scratch, rounds))


@app.command()
def network(
    seed: Seed = 0,
    cut: Annotated[float, typer.Option(help="Seconds for which a site is cut off.")] = 60.0,
    out: Out = RESULTS,
) -> None:
    """Train over a network that delays and loses packets, and cut a site off."""
    from storm.network import storm_network

    outcome = Outcome("network", seed, f"python -m storm network --seed {seed} --cut {cut:g}")
    carry_out(outcome, out, lambda outcome, scratch: storm_network(outcome, scratch, cut))


@app.command()
def ray(seed: Seed = 0, out: Out = RESULTS) -> None:
    """Lose one of three Ray nodes, each in a network namespace of its own."""
    from storm.ray_nodes import storm_ray

    carry_out(Outcome("ray", seed, f"python -m storm ray --seed {seed}"), out, storm_ray)


if __name__ == "__main__":
    app()
