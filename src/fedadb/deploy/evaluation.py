"""Evaluation of the model by the sites, on their own test images."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from flwr.app import RecordDict

from fedadb.core.errors import Fault, Temporary
from fedadb.core.packing import pack
from fedadb.core.vector import Vector, Weights
from fedadb.deploy.delivery import NoReply, send_and_wait
from fedadb.deploy.messages import EVALUATE, NO_ROUND, make_content, shown, table_in, tensor_record
from fedadb.deploy.participants import Participants
from fedadb.deploy.reply_checks import SiteCounts, check_counts
from fedadb.engine.evaluate import Scores, TestSet, share
from fedadb.experiment.settings import Deployment


@dataclass
class SiteEvaluator:
    """Evaluates weights at all sites: an accuracy per site, and the mean of the sites' scores.

    If the server has a test set of its own, the scores are the server's, beside the accuracy per
    site.
    """

    sites: Participants
    deployment: Deployment
    test_set: TestSet | None
    on_status: Callable[[str], None] = lambda status: None  # called with what is wrong at a site
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
        scores = self.test_set.evaluate(self._w) if self.test_set else self._mean(counts)
        return scores._replace(domain_accuracy=accuracies)

    def _counts(self, w: Vector) -> dict[str, SiteCounts]:
        """The evaluations of the sites that replied with a valid one, by name."""
        connected = self.sites.connected()
        nodes = {name: connected[name] for name in self.sites.names if name in connected}
        request = self.sites.request(-1, NO_ROUND)
        content = make_content(request, tensor_record(pack(Weights(w))))
        contents = dict.fromkeys(nodes.values(), content)
        replies = send_and_wait(
            self.sites.grid,
            contents,
            EVALUATE,
            "",
            self.deployment.deadline,
            self.deployment.reconnect,
        )
        checked = {name: self._checked(name, replies[node]) for name, node in nodes.items()}
        return {name: counts for name, counts in checked.items() if counts is not None}

    def _checked(self, name: str, reply: RecordDict | NoReply) -> SiteCounts | None:
        try:
            if isinstance(reply, NoReply):
                raise Fault(reply.reason)
            return check_counts(table_in(reply), len(self.sites.spec.classes))
        except Exception as error:  # whatever a site sends, it must not stop the others
            self.on_status(f"no evaluation by {name}: {shown(error)}")
            return None

    def _mean(self, counts: Mapping[str, SiteCounts]) -> Scores:
        if not counts:
            raise Temporary("no site could evaluate the model; the same command resumes here")
        rows = self.deployment.rows
        return mean_scores({name: (rows.get(name, 1), of) for name, of in counts.items()})


def mean_scores(weighted: Mapping[str, tuple[int, SiteCounts]]) -> Scores:
    """The mean of the sites' scores; a site does not decide its own weight.

    The accuracy of a class is the mean over the sites that have test images of it.
    """
    weights = [weight for weight, _ in weighted.values()]
    sites = [site for _, site in weighted.values()]

    def mean(values: Iterable[float]) -> float:
        known = [(q, v) for q, v in zip(weights, values, strict=True) if not math.isnan(v)]
        total = sum(q for q, _ in known)
        return math.fsum(q / total * v for q, v in known) if known else math.nan

    return Scores(
        accuracy=mean(share(site.correct, site.rows) for site in sites),
        loss=mean(site.loss / sum(site.rows) for site in sites),
        class_accuracy=[
            mean(share([site.correct[c]], [site.rows[c]]) for site in sites)
            for c in range(len(sites[0].rows))
        ],
    )
