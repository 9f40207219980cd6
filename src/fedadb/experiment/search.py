"""A search for the settings of one method: trials are runs, judged on validation data alone.

The runs and one file beside them are all that a search keeps. A search that was interrupted starts
again from its first trial: the values are the same, and rounds that were recorded are read, not
trained.
"""

from collections.abc import Generator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from fedadb.core.data import LocalPlan
from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.presets import LEARNING_RATE
from fedadb.experiment.proposals import proposed_values
from fedadb.experiment.run import rounds
from fedadb.experiment.space import (
    Space,
    Values,
    first_values,
    given_space,
    grid,
    require_possible,
    space_of,
    with_values,
)
from fedadb.experiment.trials import PRUNERS, Train, TrialRunner
from fedadb.experiment.validation import suggest
from fedadb.roles import Searched
from fedadb.storage.files import locked, write_atomically
from fedadb.storage.searches import Search, Trial, read_search, search_file, write_search

SAMPLERS = ("tpe", "grid")


class SearchPlan(NamedTuple):
    """How a search proceeds."""

    budget: int  # runs that the method is given
    sampler: str = "tpe"
    pruner: str = "median"


def tune(
    experiment: Experiment,
    budget: int = 8,
    out: str | Path | None = None,
    search: str | Sequence[str] = (),
    sampler: str = "tpe",
    pruner: str = "median",
) -> Experiment:
    """Search the experiment's settings, and return it with the best ones.

    They are chosen on validation data, never on test data. An interrupted search resumes.

    Args:
        experiment: What to tune. Its `validation` must be above 0.
        budget: The number of runs.
        out: A directory for the runs; by default `runs/tune-DATASET`.
        search: What to vary, such as `["local.lr=0.003..0.1"]`; by default the learning rate and
            what the algorithm declares as worth searching.
        sampler: "tpe", or "grid" for evenly spaced values.
        pruner: "median" or "halving" stops runs that are far behind; "none" stops no run.

    ```python
    experiment = fedadb.Experiment(rounds=3, validation=0.2)
    best = fedadb.tune(experiment, budget=2)
    print(best.local.lr)
    ```
    """
    if not isinstance(experiment, Experiment):
        raise BadInput(f"{experiment!r} is not an Experiment: Experiment(dataset=…) makes one")
    assignments = [search] if isinstance(search, str) else search
    space = space_of(experiment, given_space(assignments, [experiment]))
    directory = Path(out) if out else default_search_directory(experiment)
    plan = SearchPlan(budget, sampler, pruner)
    *_, found = find_settings(experiment, space, plan, directory, rounds)
    return tuned(experiment, found)


def default_search_directory(experiment: Experiment) -> Path:
    return Path("runs") / f"tune-{str(experiment.dataset).rpartition('/')[2]}"


def check_searchable(experiment: Experiment, space: Space, plan: SearchPlan, out: Path) -> None:
    """Raise BadInput if the search cannot be carried out."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file; --out must name a directory")
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise BadInput("a search needs Optuna: `pip install 'fedadb[tune]'`") from error
    if not isinstance(plan.budget, int) or plan.budget < 1:
        raise BadInput(f"--budget {plan.budget!r}: must be a whole number, and at least 1")
    for option, given, known in (
        ("sampler", plan.sampler, SAMPLERS),
        ("pruner", plan.pruner, PRUNERS),
    ):
        if given not in known:
            raise BadInput(f"--{option} {given}: is not known; {suggest(given, known)}")
    if not experiment.validation:
        raise BadInput(
            "validation = 0: settings are chosen on validation data, so it must be above 0, for "
            "example --set validation=0.1"
        )
    require_possible(experiment, space)
    first_values(experiment, space, plan.budget)
    if plan.sampler == "grid":
        grid(experiment, space, plan.budget)


def next_values(
    experiment: Experiment, space: Space, plan: SearchPlan, done: Sequence[Trial]
) -> Values | None:
    """The values of the next trial; None if there is nothing left to try."""
    n = len(done)
    if plan.sampler == "grid":
        planned = grid(experiment, space, plan.budget)
        return planned[n] if n < len(planned) else None
    planned = first_values(experiment, space, plan.budget)
    return planned[n] if n < len(planned) else proposed_values(experiment, space, done)


def find_settings(
    experiment: Experiment, space: Space, plan: SearchPlan, out: Path, train: Train
) -> Generator[Search]:
    """Try as many values as the budget allows; resume if that was begun.

    Args:
        experiment: What to tune.
        space: The settings to vary.
        plan: How many runs, and how values are chosen and runs stopped.
        out: The directory of the runs.
        train: Trains the rounds that a run's directory lacks, and yields their records; those of
            earlier rounds may come first.

    Yields:
        The search after each trial. The last one has the best settings.
    """
    check_searchable(experiment, space, plan, out)
    path = search_path(out, experiment, space)
    search = _resumed(path, experiment, space, plan)
    earlier = search.trials
    runner = TrialRunner(plan.pruner, experiment.rounds)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        done: list[Trial] = []
        for n in range(plan.budget):
            if n < len(earlier):
                trial = earlier[n]
            elif (values := next_values(experiment, space, plan, done)) is not None:
                trial = Trial(run_name(with_values(experiment, values)), values)
            else:
                break
            rest = search.trials[n + 1 :]
            write_search(path, search._replace(trials=[*done, trial, *rest]))
            done.append(runner.run(trial, with_values(experiment, trial.values), out, train))
            write_search(path, search._replace(trials=[*done, *rest]))
            yield search._replace(trials=done)
        search = search._replace(trials=[*done, *search.trials[len(done) :]], complete=True)
        write_search(path, search)
        if search.best is None:
            diverged = sum(trial.state == "diverged" for trial in done)
            raise BadInput(
                f"no trial of {experiment.algorithm.name} finished: {diverged} of {len(done)} "
                "diverged; search smaller values, such as --search local.lr=0.0003..0.003, with "
                "another --out"
            )
        write_atomically(winner_file(path), _winner(experiment, search).encode())


def search_path(out: Path, experiment: Experiment, space: Space) -> Path:
    """The file of the experiment's search. If the learning rate is searched, it may change."""
    if LEARNING_RATE in space:
        experiment = with_values(experiment, {LEARNING_RATE: LocalPlan().lr})
    return search_file(out, run_name(experiment))


def winner_file(path: Path) -> Path:
    """The experiment with the chosen settings, beside the file of its search."""
    return path.with_suffix(".toml")


def tuned(experiment: Experiment, search: Search) -> Experiment:
    """The experiment with the settings that the search chose."""
    assert search.best is not None
    return with_values(experiment, search.best.values)


def _resumed(path: Path, experiment: Experiment, space: Space, plan: SearchPlan) -> Search:
    """The search as far as it was carried out; BadInput if the file holds another one."""
    table = experiment.table()
    new = Search(
        table["algorithm"]["name"],
        table,
        {key: asdict(d) if isinstance(d, Searched) else list(d) for key, d in space.items()},
        *(plan.sampler, plan.pruner, plan.budget),
    )
    if not path.exists():
        return new
    old = read_search(path)
    same = ["space", "sampler", "pruner", *(["budget"] if plan.sampler == "grid" else [])]
    for name in same:
        there, here = getattr(old, name), getattr(new, name)
        if there != here:
            raise BadInput(
                f"{path} is another search for this experiment: its {name} is {there}, and {here} "
                "here; choose another --out"
            )
    return new._replace(trials=old.trials)


def _winner(experiment: Experiment, search: Search) -> str:
    assert search.best is not None
    assert search.best.score is not None
    values = ", ".join(f"{key} = {value}" for key, value in search.best.values.items())
    return (
        f"# Chosen among {len(search.tried)} runs: {values}.\n"
        f"# Validation accuracy {100 * search.best.score:.2f} %, mean of the best five rounds.\n\n"
        + tuned(experiment, search).toml()
    )
