"""Sites on Flower's grid as a cohort, and as those who test the model."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fedadb.core.algorithm import Reply, Round, Weights
from fedadb.core.errors import Fault
from fedadb.core.packing import pack
from fedadb.core.vector import Vector
from fedadb.deploy import wire
from fedadb.deploy.check import checked
from fedadb.deploy.exchange import EVALUATE, TRAIN, exchange
from fedadb.deploy.sites import Sites
from fedadb.engine.cohorts import Lost
from fedadb.engine.evaluate import AtOnce, Exam, Examiner, Scores
from fedadb.experiment.config import Deployment

BREATH = 2.0  # seconds before a round is tried again: who was away may be back


@dataclass
class OnSites:
    """A cohort whose clients are sites: what is sent travels, their data do not."""

    sites: Sites
    deployment: Deployment

    def __call__(self, sent: Any, clients: Sequence[int], round: Round) -> list[Reply | Lost]:
        came: dict[int, Reply | Lost] = {}
        left, needed = list(clients), self.needed(len(clients))
        for again in range(self.deployment.retries + 1):
            if again:
                time.sleep(BREATH)
            came |= self._ask(sent, left, round)
            left = [k for k in clients if isinstance(came[k], Lost)]
            if len(clients) - len(left) >= needed:
                return [came[k] for k in clients]
        reasons = "; ".join(f"{self.sites.names[k]}: {came[k].reason}" for k in left)  # type: ignore[union-attr]
        raise Fault(
            f"round {round.t}: {len(clients) - len(left)} of {len(clients)} sites replied and "
            f"{needed} are needed ({reasons}); the same command goes on from round {round.t - 1}"
        )

    def needed(self, asked: int) -> int:
        least = self.deployment.min_replies
        return min(asked, -(-asked // 2) if least is None else least)

    def _ask(self, sent: Any, clients: Sequence[int], round: Round) -> dict[int, Reply | Lost]:
        here = self.sites.here()
        node_of = {k: here[self.sites.names[k]] for k in clients if self.sites.names[k] in here}
        tensors = pack(sent)
        answers = exchange(
            self.sites.grid,
            {n: wire.content(self.sites.order(k, round), tensors) for k, n in node_of.items()},
            TRAIN,
            str(round.t),
            self.deployment.deadline,
        )
        return {
            k: self._checked(k, answers[node_of[k]], sent.w)
            if k in node_of
            else Lost("is not connected")
            for k in clients
        }

    def _checked(self, k: int, answer: Any, w: Vector) -> Reply | Lost:
        if isinstance(answer, Lost):
            return answer
        try:
            tensors = wire.tensors_of(answer)
            return checked(tensors, w, self.sites.rows[k], self.deployment.norm_bound)
        except Fault as error:
            return Lost(str(error))


@dataclass
class BySites:
    """Every site tests the model on its own images: by site, and pooled by rows."""

    sites: Sites
    deployment: Deployment
    own: AtOnce | None  # the server's test set, whose numbers then are the run's
    overlaps: bool = False
    _w: list[Vector] = field(default_factory=list)

    def begin(self, w: Vector) -> None:
        self._w = [w]
        if self.own:
            self.own.begin(w)

    def scores(self) -> Scores:
        here, names = self.sites.here(), self.sites.names
        order = self.sites.order(-1, Round(0, 0, 0, 0))
        content = wire.content(order, pack(Weights(self._w[0])))
        nodes = [here[name] for name in names if name in here]
        answers = exchange(
            self.sites.grid,
            dict.fromkeys(nodes, content),
            EVALUATE,
            "",
            self.deployment.deadline,
        )
        told = [_told(answers.get(here[name])) if name in here else {} for name in names]
        by_site = [_share(said.get("right", []), said.get("rows", [])) for said in told]
        if self.own:
            return self.own.scores()._replace(domain_accuracy=by_site)
        told = [said for said in told if said]
        if not told:
            raise Fault("no site could test the model; the same command goes on from here")
        right, rows = (
            [sum(column) for column in zip(*(said[key] for said in told), strict=True)]
            for key in ("right", "rows")
        )
        return Scores(
            accuracy=_share(right, rows),
            loss=sum(said["loss"] for said in told) / sum(rows),
            class_accuracy=[_share([r], [n]) for r, n in zip(right, rows, strict=True)],
            domain_accuracy=by_site,
        )


def _told(answer: Any) -> dict[str, Any]:
    if answer is None or isinstance(answer, Lost):
        return {}
    said = wire.about(answer)
    return said if "rows" in said else {}


def _share(right: Sequence[int], rows: Sequence[int]) -> float:
    return sum(right) / sum(rows) if sum(rows) else math.nan


def crew_of(sites: Sites, deployment: Deployment) -> Any:
    """The crew of a run whose clients are these sites."""

    @contextmanager
    def crew(
        experiment: Any, learner: Any, shards: Any, rng: Any, exam: Exam, memories: Any
    ) -> Iterator[tuple[OnSites, Examiner]]:
        sites.keep()
        examiner: Examiner = AtOnce(exam)
        if deployment.evaluate != "server":
            own = AtOnce(exam) if deployment.evaluate == "both" else None
            examiner = BySites(sites, deployment, own)
        yield OnSites(sites, deployment), examiner

    return crew
