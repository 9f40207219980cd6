"""A hostile site in a federation: the honest ones finish, as if it had been absent.

The sites are in this process, with Flower's messages and fedadb's own handlers. Time is simulated,
so that a silent site costs none.
"""

import random
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import patch

from flwr.app import Context, Message

from fedadb.deploy import cohort, delivery, participants, processes, server
from fedadb.deploy.client_app import app
from fedadb.storage.tensorfile import read_tensors
from storm.outcome import Outcome
from storm.traces import results
from storm.tricks import TRICKS
from tests.deploy.conftest import Clock
from tests.deploy.fake_grid import CLIENTS, FakeGrid, Handler, experiment, nodes, train

ROUNDS = 3


@contextmanager
def simulated_time() -> Iterator[None]:
    """Let the server's code see a clock that advances only when it sleeps."""
    clock = Clock()
    with ExitStack() as stack:
        for module in (cohort, delivery, participants, processes, server):
            stack.enter_context(patch.object(module, "time", clock))
        yield


def absent(message: Message, context: Context) -> Message:
    """A site that introduces itself and is offline in every round."""
    if message.metadata.message_type == "train":
        raise ConnectionError
    return app(message, context)


def _train(handle: Handler, k: int, algorithm: str, out: Path) -> list[dict[str, str]]:
    """Train with site k handled so; returns the lost sites of each round."""
    e = experiment(algorithm, ROUNDS, participation=1.0, min_replies=CLIENTS - 1, deadline=10.0)
    with simulated_time():
        records = train(e, out, FakeGrid(e.toml(), nodes({k: handle})))
    return [record.get("lost", {}) for record in records]


class Hostile:
    """Federations with one hostile site."""

    def __init__(self, outcome: Outcome, scratch: Path) -> None:
        self.outcome, self.scratch = outcome, scratch
        self.rng = random.Random(outcome.seed)
        self.without = cache(self._without)

    def _without(self, k: int, algorithm: str) -> str:
        """The final model of a run in which site k was absent."""
        out = self.scratch / f"absent-{k}-{algorithm}"
        _train(absent, k, algorithm, out)
        return results(out)["model.safetensors"]

    def federation(self, algorithm: str) -> None:
        """One run in which a site plays another trick in every round."""
        k, done, out = self.rng.randrange(CLIENTS), list[str](), self.scratch / "run"

        def handle(message: Message, context: Context) -> Message:
            if message.metadata.message_type != "train":
                return app(message, context)
            name = self.rng.choice(list(TRICKS))
            done.append(name)
            return TRICKS[name](message, context, self.rng)

        try:
            lost = _train(handle, k, algorithm, out)
        except Exception as error:
            self.outcome.violation(
                f"{algorithm}, site {k}, {done}: {type(error).__name__}: {error}"
            )
            return
        for name in done:
            self.outcome.count("tricks")
            self.outcome.count(name)
        name = f"client-{k}"
        others = [one for round in lost for one in round if one != name]
        self.outcome.require(not others, f"{done}: honest sites were lost: {others}")
        self.outcome.require(len(lost) == ROUNDS, f"{done}: {len(lost)} of {ROUNDS} rounds")
        tensors, _ = read_tensors(out / "model.safetensors", "")
        finite = all(bool(t.isfinite().all()) for t in tensors.values())
        self.outcome.require(finite, f"{done}: the model is not finite")
        if all(name in round for round in lost):
            same = results(out)["model.safetensors"] == self.without(k, algorithm)
            self.outcome.require(same, f"{done}: not as if site {k} had been absent")
            self.outcome.count("ends compared with the absent site's")
        else:  # a changed reply was valid, and within the bounds
            self.outcome.count("runs in which a reply was within the bounds")
        shutil.rmtree(out)


def storm_hostile(outcome: Outcome, runs: int, scratch: Path) -> None:
    """So many federations with a hostile site."""
    hostile = Hostile(outcome, scratch)
    for n in range(runs):
        hostile.federation(("fedavg", "feddyn", "scaffold")[n % 3])
