"""SCAFFOLD: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
ICML 2020, arXiv:1910.06378. The clients' control variates are those of option II.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from annotated_types import Gt

from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import Batch, LocalPlan, Shard
from fedadb.core.model import Model
from fedadb.core.optimizers import weight_of_steps
from fedadb.core.replies import Mean, Reply, Sum
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector
from fedadb.roles import Searched


class Control(NamedTuple):
    w: Vector
    c: Vector  # the server's control variate, or the change of a client's


class ControlVariate(NamedTuple):
    c: Vector  # c_k: an estimate of the gradient of the client's loss


Ctx = Context[Control, ControlVariate]


@dataclass(frozen=True)
class SCAFFOLD(Algorithm[Control, Control, ControlVariate, Control]):
    """Control variates correct each local step for the client's drift."""

    eta: Annotated[float, Gt(0), Searched(0.25, 1)] = 1.0  # η_g: the server's step size
    weighted: bool = True  # weigh clients by their rows; in the paper all weigh the same

    def check_plan(self, plan: LocalPlan) -> None:
        weight_of_steps(plan.optimizer, 1)

    def init(self, w: Vector) -> Control:
        return Control(w, w.zeros())

    def broadcast(self, s: Control, f: Model, rng: Stream) -> Control:
        return s

    def memory(self, w: Vector) -> ControlVariate:
        return ControlVariate(w.zeros())

    def gradient(self, f: Model, w: Vector, batch: Batch, ctx: Ctx) -> Vector:
        return super().gradient(f, w, batch, ctx) + (ctx.sent.c - ctx.memory.c)

    def upload(self, f: Model, w: Vector, data: Shard, ctx: Ctx) -> Control:
        """w_k, and c_k⁺ − c_k = (w_t − w_k) / (a η_t) − c, where the S steps weigh a."""
        a = weight_of_steps(ctx.plan.optimizer, int(ctx.steps))
        return Control(w, (ctx.sent.w - w) / (a * ctx.lr) - ctx.sent.c)

    def remember(self, w: Vector, upload: Control, ctx: Ctx) -> ControlVariate:
        return ControlVariate(ctx.memory.c + upload.c)

    def aggregate(self, s: Control, replies: Iterable[Reply[Control]], round: Round) -> Control:
        mean, change = Mean[Vector](replies, self.weighted), Sum[Vector]()
        for reply in replies:
            q = int(reply.examples) / round.examples if self.weighted else 1 / round.clients
            mean.add(reply, reply.w)
            change.add(q, reply.upload.c)
        w = mean.value + (self.eta - 1) * (mean.value - s.w)  # exactly the mean if η_g = 1
        return Control(w, s.c + change.total)
