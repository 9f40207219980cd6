"""Sites as a cohort: broadcasts and replies travel, data do not."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import RecordDict

from fedadb.core.algorithm import Reply, Round
from fedadb.core.errors import Fault
from fedadb.core.packing import pack
from fedadb.core.vector import Vector
from fedadb.deploy.delivery import TRAIN, NoReply, send_and_wait
from fedadb.deploy.messages import make_content, tensor_record, tensors_in
from fedadb.deploy.participants import Participants
from fedadb.deploy.replies import check_reply
from fedadb.engine.cohorts import MissingReply
from fedadb.experiment.settings import Deployment

RETRY_SECONDS = 2.0  # before a round is tried again: a site may have reconnected by then


@dataclass
class SiteCohort:
    """Trains the clients of a round at their sites, and drops replies that are not valid."""

    sites: Participants
    deployment: Deployment
    last_used: dict[int, int]  # the last round in which each client's reply was used

    def __call__(
        self, sent: Any, clients: Sequence[int], round: Round
    ) -> list[Reply | MissingReply]:
        results: dict[int, Reply | MissingReply] = {}
        missing: dict[int, MissingReply] = {}
        needed = self._needed(len(clients))
        for attempt in range(self.deployment.retries + 1):
            if attempt:
                time.sleep(RETRY_SECONDS)
            results |= self._train(sent, list(missing) or clients, round)
            missing = {k: r for k in clients if isinstance(r := results[k], MissingReply)}
            if len(clients) - len(missing) >= needed:
                self.last_used |= {k: round.t for k in clients if k not in missing}
                return [results[k] for k in clients]
        reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.values())
        raise Fault(
            f"round {round.t}: {len(clients) - len(missing)} of {len(clients)} sites replied, but "
            f"{needed} are needed ({reasons}); the same command resumes after round {round.t - 1}"
        )

    def _needed(self, asked: int) -> int:
        """The number of valid replies that a round with so many clients needs."""
        least = self.deployment.min_replies
        return min(asked, -(-asked // 2) if least is None else least)

    def _train(
        self, sent: Any, clients: Sequence[int], round: Round
    ) -> dict[int, Reply | MissingReply]:
        connected, names = self.sites.connected(), self.sites.names
        node_of = {k: connected[names[k]] for k in clients if names[k] in connected}
        tensors = tensor_record(pack(sent))
        contents = {
            node: make_content(self.sites.request(k, round, self.last_used.get(k, 0)), tensors)
            for k, node in node_of.items()
        }
        replies = send_and_wait(
            self.sites.grid, contents, TRAIN, str(round.t), self.deployment.deadline
        )
        offline = NoReply("is not connected")
        return {
            k: self._check(k, replies[node_of[k]] if k in node_of else offline, sent.w)
            for k in clients
        }

    def _check(self, k: int, reply: RecordDict | NoReply, w: Vector) -> Reply | MissingReply:
        name, rows = self.sites.names[k], self.sites.rows[k]
        if isinstance(reply, NoReply):
            return MissingReply(name, reply.reason)
        try:
            return check_reply(tensors_in(reply), w, rows, self.deployment.norm_bound)
        except Fault as error:
            return MissingReply(name, str(error))
        except Exception as error:  # whatever a site sends, it must not stop the others
            return MissingReply(name, f"its reply cannot be read: {type(error).__name__}")
