"""Sites as a cohort: broadcasts and replies travel, data do not."""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from flwr.app import RecordDict

from fedadb.core.algorithm import Round
from fedadb.core.errors import Fault, Temporary
from fedadb.core.packing import pack
from fedadb.core.replies import MissingReply, Replies, Reply
from fedadb.core.vector import Vector
from fedadb.deploy.delivery import NOT_CONNECTED, DeliveryState, NoReply, send_and_wait
from fedadb.deploy.messages import TRAIN, make_content, shown, tensor_record, tensors_in
from fedadb.deploy.participants import Participants
from fedadb.deploy.reply_checks import CheckedReply, Spread, check_reply
from fedadb.engine.local import Learner
from fedadb.experiment.settings import Deployment, replies_needed

RECENT = 10  # replies that tell how far a site usually goes
RETRY_SECONDS = 2.0  # before a round is tried again: a site may have reconnected by then


@dataclass
class SiteCohort:
    """Trains the clients of a round at their sites, and drops replies that are not valid.

    A round's replies are all in memory, because whether one is plausible depends on the others.
    """

    learner: Learner[Any, Any, Any, Any]  # as the sites have it
    sites: Participants
    deployment: Deployment
    last_used: Mapping[int, int]  # the last round in which each client's reply was used
    on_status: Callable[[str], None] = lambda status: None  # called with the state of the round
    # the norms and the rows of the last valid replies
    _recent: deque[tuple[Mapping[str, float], int]] = field(
        default_factory=lambda: deque(maxlen=RECENT)
    )

    def __call__(
        self, sent: Any, clients: Sequence[int], round: Round
    ) -> Replies[Reply[Any] | MissingReply]:
        example = self.learner.example_reply(sent, round)
        valid: dict[int, CheckedReply] = {}
        missing: dict[int, MissingReply] = {}
        needed = replies_needed(len(clients), self.deployment.min_replies)
        for attempt in range(self.deployment.retries + 1):
            if attempt:
                time.sleep(RETRY_SECONDS)
            asked = list(missing) or clients
            more = needed - len(valid)
            for k, result in self._train(sent, asked, round, example, more).items():
                missing.pop(k, None)
                if isinstance(result, MissingReply):
                    missing[k] = result
                else:
                    valid[k] = result
            missing |= self._drop_far(valid, sent.w)
            if len(valid) >= needed:
                self._recent.extend((one.norms, self.sites.counted[k]) for k, one in valid.items())
                rows = [self.sites.counted[k] for k in valid]
                answers = [missing.get(k) or self._counted(k, valid[k].reply) for k in clients]
                return Replies(answers, rows, needed)
        names = self.sites.names
        reasons = "; ".join(f"{names[k]}: {lost.reason}" for k, lost in missing.items())
        raise Temporary(
            f"round {round.t}: {len(valid)} of {len(clients)} sites replied, but {needed} are "
            f"needed ({reasons}); the same command resumes after round {round.t - 1}"
        )

    def _train(
        self, sent: Any, clients: Sequence[int], round: Round, example: Reply[Any], needed: int
    ) -> dict[int, CheckedReply | MissingReply]:
        names = self.sites.names
        connected = self.sites.wait_for(
            clients, needed, lambda away: self.on_status(f"round {round.t}: {waits_for(away)}")
        )
        node_of = {k: connected[names[k]] for k in clients if names[k] in connected}
        tensors = tensor_record(pack(sent))
        contents = {
            node: make_content(self.sites.request(k, round, self.last_used.get(k, 0)), tensors)
            for k, node in node_of.items()
        }
        name_of = {node: names[k] for k, node in node_of.items()}
        away = [names[k] for k in clients if k not in node_of]
        replies = send_and_wait(
            self.sites.grid,
            contents,
            TRAIN,
            str(round.t),
            self.deployment.deadline,
            self.deployment.reconnect,
            lambda replies: self.on_status(f"round {round.t}: {describe(replies, name_of, away)}"),
        )
        offline = NoReply(NOT_CONNECTED)
        return {
            k: self._check(k, replies[node_of[k]] if k in node_of else offline, sent.w, example)
            for k in clients
        }

    def _check(
        self, k: int, reply: RecordDict | NoReply, w: Vector, example: Reply[Any]
    ) -> CheckedReply | MissingReply:
        if isinstance(reply, NoReply):
            return MissingReply(reply.reason)
        algorithm, rows = self.learner.algorithm, self.sites.rows[k]
        implied = algorithm.implied(self.learner.plan, rows)
        try:
            return check_reply(
                tensors_in(reply),
                w,
                rows,
                example,
                algorithm.measures,
                implied,
                self.learner.filters,
            )
        except Fault as error:
            return MissingReply(shown(error))
        except Exception as error:  # whatever a site sends, it must not stop the others
            return MissingReply(f"its reply cannot be read: {type(error).__name__}")

    def _drop_far(self, valid: dict[int, CheckedReply], w: Vector) -> dict[int, MissingReply]:
        """Remove the replies of which a part is much longer than usual.

        The weights' part is their distance from the received ones. Usual is the median of the
        round's replies. Fewer than three have none that tells which of them is wrong. Then the
        median of recent replies takes its place, and before there are three of those, the norm of
        the weights themselves. The bound is squared in that case, because rounds differ more than
        the sites of one round. Parts that have not the shape of the weights are not compared with
        them. The algorithm's `spread` says which parts have a wider bound or none.
        """
        if self.deployment.median_bound is None:
            return {}
        dropped = {}
        parts = next(iter(valid.values())).norms if valid else {}
        for part in parts:
            for k, reason in self._far(part, valid, w).items():
                del valid[k]
                dropped[k] = MissingReply(reason)
        return dropped

    def _far(self, part: str, valid: Mapping[int, CheckedReply], w: Vector) -> dict[int, str]:
        """The clients whose part of that name is too long, and why."""
        assert self.deployment.median_bound is not None, "the caller checks it"
        power = self.learner.algorithm.spread.get(part, 1)
        if math.isinf(power):
            return {}
        bound = self.deployment.median_bound**power
        if len(valid) >= 3:
            spread, what = Spread.of(self._norms(part, valid)), "the median of the round"
        else:
            bound = bound**2
            spread, what = Spread(float(w.norm()), max(self.sites.counted)), "the weights' norm"
            if len(self._recent) >= 3:
                recent = [(norms[part], rows) for norms, rows in self._recent]
                spread, what = Spread.of(recent), "the median of recent replies"
            elif not all(_is_vector(part, checked) for checked in valid.values()):
                return {}
        largest = {k: spread.bound(self.sites.counted[k], bound) for k in valid}
        norms = {k: checked.norms[part] for k, checked in valid.items()}
        return {
            k: f"{_length(part, norm)}; by {what} and deployment.median_bound, "
            f"{largest[k]:.4g} is the most"
            for k, norm in norms.items()
            if norm > largest[k] > 0
        }

    def _norms(self, part: str, replies: Mapping[int, CheckedReply]) -> list[tuple[float, int]]:
        return [(one.norms[part], self.sites.counted[k]) for k, one in replies.items()]

    def _counted(self, k: int, reply: Reply[Any]) -> Reply[Any]:
        """The reply with the number of rows by which the site counts, and what they imply."""
        counted, upload = self.sites.counted[k], reply.upload
        if counted == self.sites.rows[k]:
            return reply
        implied = self.learner.algorithm.implied(self.learner.plan, counted)
        numbers = {
            name: torch.full_like(getattr(upload, name), number) for name, number in implied.items()
        }
        return reply._replace(examples=torch.tensor(counted), upload=upload._replace(**numbers))


def _is_vector(part: str, checked: CheckedReply) -> bool:
    # "w" is one, also if the upload is compressed and has no such field
    return part == "w" or isinstance(getattr(checked.reply.upload, part), Vector)


def _length(part: str, norm: float) -> str:
    if part == "w":
        return f"its weights are {norm:.4g} away from the received ones"
    return f"the norm of its {part} is {norm:.4g}"


def waits_for(away: Sequence[str]) -> str:
    """What is said of a round that cannot begin, because too few sites are connected."""
    return f"waits for {', '.join(away)} to connect"


def describe(replies: DeliveryState, name_of: Mapping[int, str], away: Sequence[str]) -> str:
    """Who was asked, who answered when, and who is waited for, in one sentence."""
    parts = [f"asked {', '.join(name_of.values()) or 'nobody'}"]
    if away:
        parts.append(f"not connected: {', '.join(away)}")
    for node, seconds in replies.seconds.items():
        verb = "failed" if node in replies.failed else "answered"
        parts.append(f"{name_of[node]} {verb} after {seconds:.0f} s")
    waiting = [
        f"{name_of[node]} ({'connected' if connected else 'disconnected'})"
        for node, connected in replies.connected.items()
    ]
    if waiting:
        parts.append(f"waiting for {', '.join(waiting)}")
    return "; ".join(parts)
