"""Proposes values to try next, by Optuna's TPE."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedadb.core.stream import Stream
from fedadb.experiment.config import Experiment
from fedadb.experiment.space import Dimension, Space, Values, inside, is_whole
from fedadb.roles import Searched
from fedadb.storage.searches import Trial

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

ATTEMPTS = 20  # at values that were not tried before


def proposed_values(experiment: Experiment, space: Space, done: Sequence[Trial]) -> Values | None:
    """Values that are likely to be good, given the earlier trials; None if all were tried.

    They follow from the experiment and the earlier trials alone, so a resumed search proposes the
    same.
    """
    import optuna

    distributions = {key: _distribution(experiment, key, d) for key, d in space.items()}
    rng = Stream(experiment.seed).at("search", len(done))
    for attempt in range(ATTEMPTS):
        seed = int(rng.at(attempt).numpy().integers(2**31))
        # Every search begins with values of its own, so TPE needs no random ones.
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=0)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials([_observed(trial, distributions) for trial in done])
        params = study.ask(distributions).params
        values = {key: _readable(params[key], experiment, key, d) for key, d in space.items()}
        if values not in [trial.values for trial in done]:
            return values
    return None


def _observed(trial: Trial, distributions: "dict[str, BaseDistribution]") -> "FrozenTrial":
    """The trial for Optuna; one that diverged has the lowest score."""
    import optuna
    from optuna.trial import TrialState

    params = dict(trial.values)
    if trial.state == "stopped":
        return optuna.trial.create_trial(
            params=params,
            distributions=distributions,
            intermediate_values={trial.rounds: trial.score or 0.0},
            state=TrialState.PRUNED,
        )
    score = trial.score if trial.eligible else 0.0
    return optuna.trial.create_trial(params=params, distributions=distributions, value=score)


def _distribution(experiment: Experiment, key: str, dimension: Dimension) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(dimension, Searched):
        return CategoricalDistribution(dimension)
    low, high, log = dimension.low, dimension.high, dimension.scale == "log"
    if is_whole(experiment, key):
        return IntDistribution(round(low), round(high), log=log)
    return FloatDistribution(low, high, log=log)


def _readable(value: Any, experiment: Experiment, key: str, dimension: Dimension) -> Any:
    """The value of a range with three digits, which people can read and repeat."""
    if not isinstance(dimension, Searched):
        return value
    return inside(float(f"{value:.3g}"), dimension, is_whole(experiment, key))
