"""Personal models: what a client makes of the global model with its own rows.

To make and test them is a round of all clients with a learner of its own, so any cohort can do it.
A client is tested on the whole test set with weights, and not on a sample of it: each class has the
share that it has among the client's training rows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor
from typing_extensions import TypeVar

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import LocalPlan, Shard
from fedadb.core.errors import BadInput
from fedadb.core.model import Model
from fedadb.core.replies import Reply
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine.cohorts import Cohort
from fedadb.engine.evaluate import TestSet
from fedadb.engine.local import ClientMemory, Learner
from fedadb.progress import Progress, no_progress

Sent = TypeVar("Sent", default=tuple[()])


class PersonalStart(NamedTuple, Generic[Sent]):
    """What clients receive to make their personal models."""

    w: Vector  # the global model: the deployed weights
    sent: Sent  # the algorithm's broadcast; () if its clients have no head of their own


@dataclass(frozen=True)
class PersonalLearner(Learner[Any, Any, Any, Any]):
    """Makes and tests a client's personal models. The client's memory stays as it is.

    A reply has the weights of the fine-tuned model and, as measurements, the number of correct
    predictions in each cell of the test set: "tuned" for this model, and "head" for the client's
    own head after a local round of the algorithm, if it has one.
    """

    test_set: TestSet = field(kw_only=True)

    def train(
        self,
        data: Shard,
        sent: PersonalStart[Any],
        memory: ClientMemory[Any, Any] | None,
        round: Round,
        rng: Stream,
    ) -> tuple[Reply[Weights], ClientMemory[Any, Any]]:
        rows = self._test_rows(data)
        tuned = self._tuner.fit(data, Weights(sent.w), None, round, rng.at("tuned")).w
        hits = {"tuned": count_hits(self.test_set, lambda x: self.f(tuned, x).logits, rows)}
        if sent.sent:
            own = self.fit(data, sent.sent, memory, round, rng.at("head")).w
            hits["head"] = count_hits(self.test_set, lambda x: self._head(own, x), rows)
        kept = self.first_memory(sent.w) if memory is None else memory
        return Reply(Weights(tuned), torch.tensor(len(data)), hits), kept

    def example_reply(self, sent: PersonalStart[Any], round: Round) -> Reply[Weights]:
        hits = torch.zeros(len(self.test_set.counts), dtype=torch.int64)
        return Reply(Weights(sent.w), torch.tensor(0), {"tuned": hits, "head": hits})

    @cached_property
    def _tuner(self) -> Learner[Any, Any, Any, Any]:
        """Plain cross entropy for one epoch, by the run's plan."""
        return Learner(FedAvg(), self.f, replace(self.plan, epochs=1))

    def _test_rows(self, data: Shard) -> Tensor:
        """The test rows that count for the client, or all if they depend on each other."""
        y = self.test_set.examples.y
        if self.f.batch_statistics:
            return torch.arange(len(y), device=y.device)
        return torch.nonzero(data.counts[y]).flatten()

    def _head(self, w: Vector, x: Tensor) -> Tensor:
        logits = self.algorithm.personal(self.f, w, x)
        assert logits is not None, "there is a broadcast only if there is a head"
        return logits


@torch.inference_mode()
def count_hits(test_set: TestSet, predict: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """The number of correct predictions in each cell, among the given rows of the test set.

    A prediction that is not finite, because training diverged, is not correct.
    """
    x, y = test_set.examples
    hits = torch.zeros(len(test_set.counts), dtype=torch.int64, device=y.device)
    for begin in range(0, len(rows), test_set.batch_size):
        which = rows[begin : begin + test_set.batch_size]
        logits = predict(test_set.transform.normalise(x[which]))
        correct = (logits.argmax(1) == y[which]) & logits.isfinite().all(1)
        hits.index_add_(0, test_set.cells[which], correct.long())
    return hits.cpu()


def personal_accuracies(
    cohort: Cohort[PersonalStart[Any]],
    start: PersonalStart[Any],
    round: Round,
    test_set: TestSet,
    cells: Sequence[Sequence[int]],
    progress: Progress = no_progress,
) -> dict[str, list[float]]:
    """Each client's accuracy, by kind of model: "global", "tuned" and perhaps "head".

    It is nan for clients without rows, and for those whose classes the test set lacks.

    Args:
        cohort: Trains with a PersonalLearner.
        start: The global model.
        round: The round after which this is.
        test_set: Of the global model.
        cells: The training rows of each client by cell of the test set.
        progress: Reports the clients that are done.
    """
    rows = torch.arange(len(test_set.examples.y), device=start.w.flat.device)
    hits = count_hits(test_set, lambda x: test_set.f(start.w, x).logits, rows)
    found = {"global": [own_accuracy(hits.tolist(), test_set.counts, own) for own in cells]}
    clients = [k for k, own in enumerate(cells) if any(own)]
    with progress(f"personal models after round {round.t}", len(clients), "clients") as advance:
        for k, reply in zip(clients, cohort(start, clients, round), strict=True):
            assert isinstance(reply, Reply), "no cohort of a simulation loses replies"
            for kind, hits in reply.measured.items():
                of_clients = found.setdefault(kind, [math.nan] * len(cells))
                of_clients[k] = own_accuracy(hits.tolist(), test_set.counts, cells[k])
            advance(1)
    return found


def own_accuracy(hits: Sequence[int], tested: Sequence[int], rows: Sequence[int]) -> float:
    """A client's accuracy on the cells of its own rows: Σ_c n_c h_c / m_c over Σ_c n_c.

    Cells without test rows do not count; nan if no cell of the client has any.

    Args:
        hits: The correct predictions in each cell, h_c.
        tested: The test rows of each cell, m_c.
        rows: The client's training rows of each cell, n_c; more cells than the test set has are
            cells without test rows.
    """
    known = [(n, h / m) for n, h, m in zip(rows, hits, tested, strict=False) if n and m]
    total = sum(n for n, _ in known)
    return math.fsum(n * accuracy for n, accuracy in known) / total if total else math.nan


def has_own_head(algorithm: Algorithm[Any, Any, Any, Any], f: Model) -> bool:
    """Whether clients have a head of their own; BadInput if its logits have a wrong shape."""
    w = _first_weights(algorithm, f)
    with torch.no_grad():
        logits = algorithm.personal(f, w, torch.zeros(2, *f.domain.shape, device=w.flat.device))
    if logits is not None and logits.shape != (2, f.classes):
        raise BadInput(
            f"{type(algorithm).__name__}.personal returns logits of shape {tuple(logits.shape)} "
            f"for 2 inputs; it must be (2, {f.classes})"
        )
    return logits is not None


def _first_weights(algorithm: Algorithm[Any, Any, Any, Any], f: Model) -> Vector:
    """The weights at which a client's first training starts."""
    w = f.weights()
    if type(algorithm).start is Algorithm.start:
        return w
    sent = algorithm.broadcast(algorithm.init(w), f, Stream(0))
    counts, round = torch.ones(f.classes), Round(t=1, total=1, clients=1, examples=1)
    ctx = Context(sent, algorithm.memory(w), counts, round, LocalPlan(), torch.tensor(1))
    return algorithm.start(ctx)
