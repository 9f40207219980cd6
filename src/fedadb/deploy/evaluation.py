"""Evaluation of the model by the sites, on their own test images."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import RecordDict

from fedadb.core.algorithm import Round, Weights
from fedadb.core.errors import Fault
from fedadb.core.packing import pack
from fedadb.core.vector import Vector
from fedadb.deploy.delivery import EVALUATE, NoReply, send_and_wait
from fedadb.deploy.messages import make_content, table_in, tensor_record
from fedadb.deploy.participants import Participants
from fedadb.deploy.replies import SiteCounts, check_counts
from fedadb.engine.evaluate import Scores, TestSet, share


@dataclass
class SiteEvaluator:
    """Evaluates weights at all sites: an accuracy per site, and the scores over all their rows.

    If the server has a test set of its own, the scores are the server's, beside the accuracy per
    site.
    """

    sites: Participants
    deadline: float  # seconds
    test_set: TestSet | None
    in_background: bool = False
    _w: Vector | None = None

    def start(self, w: Vector) -> None:
        self._w = w

    def scores(self) -> Scores:
        assert self._w is not None, "`start` comes first"
        counts = self._counts(self._w)
        accuracies = [
            share(counts[name].correct, counts[name].rows) if name in counts else math.nan
            for name in self.sites.names
        ]
        scores = self.test_set.evaluate(self._w) if self.test_set else pooled(counts)
        return scores._replace(domain_accuracy=accuracies)

    def _counts(self, w: Vector) -> dict[str, SiteCounts]:
        """The evaluations of the sites that replied with a valid one, by name."""
        connected = self.sites.connected()
        nodes = {name: connected[name] for name in self.sites.names if name in connected}
        request = self.sites.request(-1, Round(0, 0, 0, 0))
        content = make_content(request, tensor_record(pack(Weights(w))))
        contents = dict.fromkeys(nodes.values(), content)
        replies = send_and_wait(self.sites.grid, contents, EVALUATE, "", self.deadline)
        checked = {name: self._checked(replies[node]) for name, node in nodes.items()}
        return {name: counts for name, counts in checked.items() if counts is not None}

    def _checked(self, reply: RecordDict | NoReply) -> SiteCounts | None:
        if isinstance(reply, NoReply):
            return None
        try:
            return check_counts(table_in(reply), len(self.sites.spec.classes))
        except Fault:
            return None


def pooled(counts: Mapping[str, SiteCounts]) -> Scores:
    """The scores over the test rows of all sites."""
    if not counts:
        raise Fault("no site could evaluate the model; the same command resumes here")
    sites = list(counts.values())
    correct = [sum(column) for column in zip(*(site.correct for site in sites), strict=True)]
    rows = [sum(column) for column in zip(*(site.rows for site in sites), strict=True)]
    return Scores(
        accuracy=share(correct, rows),
        loss=sum(site.loss for site in sites) / sum(rows),
        class_accuracy=[share([c], [n]) for c, n in zip(correct, rows, strict=True)],
    )
