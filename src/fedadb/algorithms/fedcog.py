"""FedCOG: Ye et al., "Fake It Till Make It: Federated Learning with Consensus-Oriented Generation",
ICLR 2024, arXiv:2312.05966.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Generator, Tensor

from fedadb.core.algorithm import Algorithm, Context, PreviousModel
from fedadb.core.data import Batch, Shard
from fedadb.core.losses import distil
from fedadb.core.model import Model
from fedadb.core.optimizers import Adam
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights, gradient
from fedadb.roles import Searched

ADAM = Adam(beta1=0.5, beta2=0.9)  # of the generation


class ComplementedBatch(NamedTuple):
    local: Batch
    x: Tensor  # generated inputs
    z: Tensor  # the global model's logits for them


Ctx = Context[Weights, PreviousModel]


@dataclass(frozen=True)
class FedCOG(Algorithm[Weights, Weights, PreviousModel]):
    """Clients generate inputs of the classes they have few of, and distil the global model on them.

    Until `first_round`, and for a client with equally many rows of each class, it is FedAvg.
    """

    # The first round in which clients generate inputs; auto: ⌈0.7 T⌉ of T rounds, at most 50.
    first_round: Annotated[int, Ge(1)] | Literal["auto"] = "auto"
    images: Annotated[int, Ge(1)] = 256  # inputs that a client generates, but for rounding
    steps: Annotated[int, Ge(1)] = 500  # Adam's steps on the generated inputs
    eta: Annotated[float, Gt(0)] = 0.01  # η: Adam's step size on the generated inputs
    # λ: weight of the disagreement between the two models
    lam: Annotated[float, Ge(0), Searched(0.01, 1)] = 0.1
    tau: Annotated[float, Gt(0)] = 1.0  # τ: temperature of the distillation
    project: bool = False  # keep the generated inputs within the bounds of real ones

    def memory(self, w: Vector) -> PreviousModel:
        return PreviousModel(w)

    def remember(self, w: Vector, upload: Weights, ctx: Ctx) -> PreviousModel:
        return PreviousModel(w.clone())  # so that the reply is released when the server has used it

    def batches(self, f: Model, data: Shard, ctx: Ctx, rng: Stream) -> Iterator[Any]:
        """Each local batch, with one of generated inputs."""
        local, c = ctx.plan.batches(data, rng), self.classes(data.counts)
        auto = min(50, -(-7 * ctx.round.total // 10))
        first = auto if self.first_round == "auto" else self.first_round
        if ctx.round.t < first or not len(c):
            yield from local
            return
        generator = rng.at("generated").generator()
        x = self.generate(f, c, ctx, generator)
        with torch.no_grad():
            z = f(ctx.sent.w, x).logits
        order = shuffled(len(c), ctx.plan.batch_size, generator)
        for batch, which in zip(local, order, strict=False):
            yield ComplementedBatch(batch, x[which], z[which])

    def classes(self, counts: Tensor) -> Tensor:
        """The class of each input to generate: in proportion to the rows that a class lacks."""
        lacking = shortfall(counts)
        shares = self.images * lacking // lacking.sum().clamp(min=1)
        return torch.arange(len(counts), device=counts.device).repeat_interleave(shares)

    def generate(self, f: Model, c: Tensor, ctx: Ctx, generator: Generator) -> Tensor:
        """Inputs of the classes c, on which the previous local model disagrees with the global."""
        noise = torch.randn(len(c), *f.domain.shape, generator=generator)
        x = Vector.of({"x": noise.to(ctx.sent.w.flat.device)})
        state = ADAM.start(x)

        def loss(v: Vector) -> Tensor:
            z, z_previous = (f(w, v["x"]).logits for w in (ctx.sent.w, ctx.memory.w))
            return F.cross_entropy(z, c) + self.lam * agreement(z_previous, z)

        for _ in range(self.steps):
            ADAM.step(x, gradient(loss, x), state, self.eta, weight_decay=0.0)
            if self.project:
                x = Vector.of({"x": f.domain.project(x["x"])})
        return x["x"]

    def loss(self, f: Model, w: Vector, batch: Batch | ComplementedBatch, ctx: Ctx) -> Tensor:
        """(n CE + m τ² KL) / (n + m), where m rows would make all classes equally frequent."""
        if isinstance(batch, Batch):
            return super().loss(f, w, batch, ctx)
        n, m = ctx.counts.sum(), shortfall(ctx.counts).sum()
        local = F.cross_entropy(f(w, batch.local.x).logits, batch.local.y)
        return (n * local + m * distil(f(w, batch.x).logits, batch.z, self.tau)) / (n + m)


def shortfall(counts: Tensor) -> Tensor:
    """e_c = max n_{k,c'} − n_{k,c}: the rows by which each class is behind the largest."""
    return counts.max() - counts


def agreement(z_previous: Tensor, z: Tensor) -> Tensor:
    """D = 1 − J, clamped to [0, 1], with J = (KL(m ‖ p) + KL(m ‖ q)) / 2 and m = (p + q) / 2."""
    p, q = z_previous.softmax(1), z.softmax(1)
    p, q, m = (t.clamp(0.01, 0.99) for t in (p, q, (p + q) / 2))
    towards_p, towards_q = (F.kl_div(t.log(), m, reduction="batchmean") for t in (p, q))
    return 1 - ((towards_p + towards_q) / 2).clamp(0, 1)


def shuffled(n: int, size: int, generator: Generator) -> Iterator[Tensor]:
    """Batches of n rows in random order, again and again."""
    while True:
        yield from torch.split(torch.randperm(n, generator=generator), size)
