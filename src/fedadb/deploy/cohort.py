"""Sites on Flower's grid as a cohort, and as those who test the model."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flwr.app import RecordDict

from fedadb.core.algorithm import Reply, Round, Weights
from fedadb.core.errors import Fault
from fedadb.storage.run_directory import ROUNDS
from fedadb.core.packing import pack
from fedadb.core.vector import Vector
from fedadb.deploy import wire
from fedadb.deploy.check import Tested, checked, tested
from fedadb.deploy.exchange import EVALUATE, TRAIN, exchange
from fedadb.deploy.sites import Sites
from fedadb.storage.records import read_records
from fedadb.engine.cohorts import MissingReply
from fedadb.engine.evaluate import ImmediateEvaluator, Evaluator, Scores, share
from fedadb.experiment.config import Deployment
from fedadb.experiment.crew import Crew, Work

BREATH = 2.0  # seconds before a round is tried again: who was away may be back


@dataclass
class OnSites:
    """A cohort whose clients are sites: what is sent travels, their data do not."""

    sites: Sites
    deployment: Deployment
    used: dict[int, int]  # the last round in which each client's reply was

    def __call__(
        self, sent: Any, clients: Sequence[int], round: Round
    ) -> list[Reply | MissingReply]:
        came: dict[int, Reply | str] = {}
        left, needed = list(clients), self.needed(len(clients))
        for again in range(self.deployment.retries + 1):
            if again:
                time.sleep(BREATH)
            came |= self._ask(sent, left, round)
            left = [k for k in clients if isinstance(came[k], str)]
            if len(clients) - len(left) >= needed:
                self.used |= {k: round.t for k in clients if k not in left}
                return [self._lost(k, came[k]) for k in clients]
        reasons = "; ".join(f"{self.sites.names[k]}: {came[k]}" for k in left)
        raise Fault(
            f"round {round.t}: {len(clients) - len(left)} of {len(clients)} sites replied and "
            f"{needed} are needed ({reasons}); the same command goes on from round {round.t - 1}"
        )

    def needed(self, asked: int) -> int:
        least = self.deployment.min_replies
        return min(asked, -(-asked // 2) if least is None else least)

    def _ask(self, sent: Any, clients: Sequence[int], round: Round) -> dict[int, Reply | str]:
        here, payload = self.sites.here(), wire.payload(pack(sent))  # the same for all
        node_of = {k: here[self.sites.names[k]] for k in clients if self.sites.names[k] in here}
        orders = {
            node: wire.content(self.sites.order(k, round, self.used.get(k, 0)), payload)
            for k, node in node_of.items()
        }
        grid, deadline = self.sites.grid, self.deployment.deadline
        answers = exchange(grid, orders, TRAIN, str(round.t), deadline)
        return {
            k: self._checked(k, answers[node_of[k]], sent.w) if k in node_of else "is not connected"
            for k in clients
        }

    def _checked(self, k: int, answer: RecordDict | str, w: Vector) -> Reply | str:
        if isinstance(answer, str):
            return answer
        try:
            tensors = wire.tensors_of(answer)
            return checked(tensors, w, self.sites.rows[k], self.deployment.norm_bound)
        except Fault as error:
            return str(error)
        except Exception as error:  # whatever a site can think of is its own loss
            return f"its reply cannot be read: {type(error).__name__}"

    def _lost(self, k: int, came: Reply | str) -> Reply | MissingReply:
        return MissingReply(self.sites.names[k], came) if isinstance(came, str) else came


@dataclass
class BySites:
    """Every site tests the model on its own images: by site, and pooled by rows."""

    sites: Sites
    deployment: Deployment
    own: ImmediateEvaluator | None  # the server's test set, whose numbers then are the run's
    in_background: bool = False
    _w: Vector | None = None

    def begin(self, w: Vector) -> None:
        self._w = w
        if self.own:
            self.own.begin(w)

    def scores(self) -> Scores:
        assert self._w is not None, "nothing was begun"
        here, order = self.sites.here(), self.sites.order(-1, Round(0, 0, 0, 0))
        content = wire.content(order, wire.payload(pack(Weights(self._w))))
        nodes = {name: here[name] for name in self.sites.names if name in here}
        contents = dict.fromkeys(nodes.values(), content)
        answers = exchange(self.sites.grid, contents, EVALUATE, "", self.deployment.deadline)
        told = {name: self._told(answers[node]) for name, node in nodes.items()}
        found = {name: one for name, one in told.items() if one is not None}
        by_site = [
            share(found[name].right, found[name].rows) if name in found else math.nan
            for name in self.sites.names
        ]
        if self.own:
            return self.own.scores()._replace(domain_accuracy=by_site)
        if not found:
            raise Fault("no site could test the model; the same command goes on from here")
        right, rows = (
            [sum(column) for column in zip(*(getattr(o, key) for o in found.values()), strict=True)]
            for key in ("right", "rows")
        )
        return Scores(
            accuracy=share(right, rows),
            loss=sum(one.loss for one in found.values()) / sum(rows),
            class_accuracy=[share([r], [n]) for r, n in zip(right, rows, strict=True)],
            domain_accuracy=by_site,
        )

    def _told(self, answer: RecordDict | str) -> Tested | None:
        if isinstance(answer, str):
            return None
        try:
            return tested(wire.about(answer), len(self.sites.task.classes))
        except Fault:
            return None


def crew_of(sites: Sites, deployment: Deployment) -> Crew:
    """The crew of a run whose clients are these sites."""

    @contextmanager
    def crew(work: Work) -> Iterator[tuple[OnSites, Evaluator]]:
        sites.keep()
        evaluator: Evaluator = ImmediateEvaluator(work.exam)
        if deployment.evaluate != "server":
            own = ImmediateEvaluator(work.exam) if deployment.evaluate == "both" else None
            evaluator = BySites(sites, deployment, own)
        done = read_records(sites.out / ROUNDS)
        used = {k: line["round"] for line in done for k in line["clients"]}
        yield OnSites(sites, deployment, used), evaluator

    return crew
