"""The trials of a search: runs that are stopped if they are far behind earlier ones."""

from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

from fedadb.core.errors import Diverged
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import require_same_run
from fedadb.storage.records import Record, read_records
from fedadb.storage.run_directory import MODEL, ROUNDS
from fedadb.storage.searches import State, Trial

PRUNERS = ("median", "halving", "none")
BEST = 5  # rounds whose mean validation accuracy is the score, as in the paper's tables
COMPLETE = 2  # trials before the median stops any

Train: TypeAlias = Callable[[Experiment, Path], Generator[Record]]


class TrialRunner:
    """Carries out the trials of one search, in their order."""

    def __init__(self, pruner: str, rounds: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        pruners = {
            "median": optuna.pruners.MedianPruner(
                n_startup_trials=COMPLETE, n_warmup_steps=rounds // 3
            ),
            "halving": optuna.pruners.SuccessiveHalvingPruner(
                min_resource=max(1, rounds // 9), reduction_factor=3
            ),
            "none": optuna.pruners.NopPruner(),
        }
        self.study = optuna.create_study(direction="maximize", pruner=pruners[pruner])

    def run(self, trial: Trial, experiment: Experiment, out: Path, train: Train) -> Trial:
        """Train the trial's run as far as it is worth it, and return the trial's outcome.

        The decision depends on recorded rounds alone, so it is the same after an interruption. A
        trial that is known to diverge is not trained again.
        """
        from optuna.trial import TrialState

        asked = self.study.ask()
        best: list[float] = []
        state: State = "finished"
        if trial.state == "diverged":
            train = _diverge
        with closing(_records(experiment, out / trial.run, train)) as records:
            try:
                for record in records:
                    best = sorted([*best, record["validation_accuracy"]])[-BEST:]
                    score = sum(best) / len(best)
                    trial = trial._replace(rounds=record["round"], score=score)
                    asked.report(score, trial.rounds)
                    if trial.rounds < experiment.rounds and asked.should_prune():
                        state = "stopped"
                        break
            except Diverged:
                state = "diverged"
        known = {"stopped": TrialState.PRUNED, "diverged": TrialState.FAIL}
        self.study.tell(asked, trial.score if state == "finished" else None, known.get(state))
        return trial._replace(state=state)


def _records(experiment: Experiment, directory: Path, train: Train) -> Generator[Record]:
    """The records of a run: those on the disk, then new ones."""
    require_same_run(directory, experiment)
    done = read_records(directory / ROUNDS)
    yield from done
    if not (directory / MODEL).exists():
        with closing(train(experiment, directory)) as records:
            yield from (record for record in records if record["round"] > len(done))


def _diverge(experiment: Experiment, directory: Path) -> Generator[Record]:
    raise Diverged(f"{directory}: an earlier process found that it diverges")
    yield
