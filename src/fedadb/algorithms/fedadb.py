"""FedADB: Liu et al., "FedADB: Class Anchor-Driven Dual-Branch Federated Learning for Mitigating
Forgetting", MM 2026, doi:10.1145/3767308.3835615. Equation numbers are the paper's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Le
from torch import Tensor, nn

from fedadb.core.algorithm import Algorithm, Context
from fedadb.core.balance import balanced
from fedadb.core.data import Batch, Shard
from fedadb.core.errors import BadInput, Diverged
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.roles import Added, Searched


class Anchors(NamedTuple):
    """Ã: inputs that the global model assigns to given classes."""

    x: Tensor  # x̃_i; uint8 during transmission if anchor_dtype is uint8
    c: Tensor  # c_i, the class of each
    confidence: Tensor  # ỹ_i = [ψ_A(φ(x̃_i))]_{c_i}


class FedADBBroadcast(NamedTuple):
    w: Vector  # θ_φ, θ_A, θ_L
    anchors: Anchors  # Ã_t
    tau: Tensor  # τ_t


class KeptAnchors(NamedTuple):
    """A broadcast, with the input bounds that are needed to show its anchors as images."""

    w: Vector
    anchors: Anchors
    tau: Tensor
    low: Tensor
    high: Tensor


class BalancedBatch(NamedTuple):
    """B_k^A: local rows and anchors."""

    x: Tensor
    y: Tensor
    weight: Tensor  # of each row in the sum over the batch
    anchor: Tensor  # whether each row is an anchor


class DualBatch(NamedTuple):
    balanced: BalancedBatch  # for the global branch (AGB)
    local: Batch  # for the local branch (LCB)


@dataclass(frozen=True)
class FedADB(Algorithm[Weights, FedADBBroadcast]):
    """The server generates class anchors from the global model; clients train two branches."""

    eta: Annotated[float, Gt(0), Searched(0.1, 2)] = 1.0  # η: step size of anchor generation
    steps: Annotated[int, Ge(1)] = 50  # I: iterations of anchor generation
    lam: Annotated[float, Ge(0), Searched(1e-5, 1e-3)] = 1e-4  # λ: weight of an anchor's ‖x̃‖²
    # σ: standard deviation of the noise that anchors start from
    sigma: Annotated[float, Gt(0)] = 1.0
    anchors_per_class: Annotated[int, Ge(1)] = 1  # N / |C|: anchors that the server makes per class
    # The classes whose anchors enter a client's balanced batches: all, or those it lacks.
    anchors_for: Literal["all", "missing"] = "missing"
    # The weight of an anchor in Eq. (6), relative to a row: 1, or its confidence ỹ.
    anchor_weight: Literal["one", "confidence"] = "one"
    # How long an epoch of the global branch is: as many steps as the local one, or until every
    # class was seen as often as the client's largest.
    balanced_epoch: Annotated[Literal["local", "largest"], Added()] = "local"
    # β: weight of the local branch; none: adaptive, (t/T)^(γ_k τ_t).
    beta: Annotated[float, Ge(0), Le(1)] | None = None
    # CAG: generate anchors; without them, balanced batches hold only the client's own classes
    generate: bool = True
    calibrate: bool = True  # LCB: train the local branch; without it, the loss is L_AGB alone
    deploy: Literal["A", "L", "mean"] = "A"  # the head that is evaluated and exported
    # How anchors are transmitted: uint8 takes a quarter of the bytes.
    anchor_dtype: Literal["float32", "uint8"] = "float32"

    broadcast_seconds_key = "cag_seconds"
    measures = ("tau", "gamma", "beta", "anchor_confidence")

    def heads(self, dim: int, classes: int) -> Mapping[str, nn.Module]:
        return {"A": nn.Linear(dim, classes), "L": nn.Linear(dim, classes)}  # ψ_A, ψ_L

    # server: class anchor generation (CAG)

    def broadcast(self, s: Weights, f: Model, rng: Stream) -> FedADBBroadcast:
        if not self.generate:
            empty = s.w.flat.new_zeros(0)
            no_anchors = Anchors(empty.view(0, *f.domain.shape), empty.long(), empty)
            return FedADBBroadcast(s.w, no_anchors, s.w.flat.new_ones(()))  # τ = 1
        c = torch.arange(f.classes).repeat_interleave(self.anchors_per_class)
        x = self.noise(f, len(c), rng)
        anchors = self.optimise(f, s.w, x.to(s.w.flat.device), c.to(s.w.flat.device))
        if self.anchor_dtype == "uint8":
            anchors = anchors._replace(x=f.domain.quantise(anchors.x))
        return FedADBBroadcast(s.w, anchors, anchors.confidence.mean())  # Eq. (5)

    def noise(self, f: Model, n: int, rng: Stream) -> Tensor:
        """What n anchors start from."""
        return self.sigma * torch.randn(n, *f.domain.shape, generator=rng.generator())

    def optimise(self, f: Model, w: Vector, x: Tensor, c: Tensor) -> Anchors:
        """Gradient descent on the inputs x until the model assigns them to the classes c."""
        if not (f.domain.low.isfinite().all() and f.domain.high.isfinite().all()):
            raise BadInput("anchors need bounded inputs: give the model's Domain finite bounds")
        for _ in range(self.steps):
            x = x.detach().requires_grad_()
            nll = F.cross_entropy(f(w, x, "A").logits, c, reduction="sum")
            loss = nll + self.lam * x.square().sum()  # Eq. (3), summed over the anchors
            (g,) = torch.autograd.grad(loss, x)
            x = f.domain.project(x.detach() - self.eta * g)  # Eq. (4)
        with torch.no_grad():
            confidence = f(w, x, "A").logits.softmax(1).gather(1, c[:, None])[:, 0]
        if not (x.isfinite().all() and confidence.isfinite().all()):
            raise Diverged(
                f"the anchors are not finite: eta = {self.eta} or sigma = {self.sigma} is too "
                "large, or the model has diverged"
            )
        return Anchors(x, c, confidence)

    def keep(self, sent: FedADBBroadcast, f: Model) -> KeptAnchors | None:
        return KeptAnchors(*sent, *_bounds(f)) if self.generate else None

    def deployed(self, s: Weights) -> Vector:
        """The weights, with the deployed head in place of A."""
        w = s.w.clone()
        for part in ("weight", "bias"):
            psi_a, psi_l = w[f"heads.A.{part}"], w[f"heads.L.{part}"]
            # The mean of two linear heads' logits is the linear head of their mean.
            psi_a.copy_({"A": psi_a, "L": psi_l, "mean": (psi_a + psi_l) / 2}[self.deploy])
        return w

    # client: dual-branch collaborative training (DBCT)

    def batches(
        self, f: Model, data: Shard, ctx: Context[FedADBBroadcast], rng: Stream
    ) -> Iterator[DualBatch]:
        """Local batches, each with a class-balanced one."""
        anchors = ctx.sent.anchors
        anchors = anchors._replace(x=f.domain.dequantise(anchors.x))
        if self.anchors_for == "missing":
            missing = data.counts[anchors.c] == 0
            anchors = Anchors(*(part[missing] for part in anchors))
        generator = rng.at("balanced").generator()
        plan, sizes = ctx.plan, ctx.plan.sizes(len(data))
        if self.balanced_epoch == "largest":
            classes = torch.unique(torch.cat([data.labels, anchors.c]))
            sizes = plan.sizes(len(classes) * int(data.counts.max()))
            plan = replace(plan, epochs=len(sizes))  # enough; the last ones are not drawn
        balance = balanced(data.labels.cpu(), anchors.c.cpu(), sizes, generator)
        for (rows, copies), local in zip(balance, plan.batches(data, rng), strict=False):
            real = data.batch(rows.to(data.rows.device), generator)
            yield DualBatch(self.mix(f, real, anchors, copies.to(data.rows.device)), local)

    def mix(self, f: Model, real: Batch, anchors: Anchors, copies: Tensor) -> BalancedBatch:
        """Real rows, and the given number of copies of each anchor."""
        if f.batch_statistics:  # each copy affects them, so each is a row of its own
            which = torch.arange(len(copies), device=copies.device).repeat_interleave(copies)
            weight = real.x.new_ones(len(which))
        else:  # copies have equal gradients: one row with their total weight suffices
            which = torch.nonzero(copies).flatten()
            weight = copies[which].to(real.x.dtype)
        size = len(real.y) + copies.sum()
        if self.anchor_weight == "confidence":
            weight = weight * anchors.confidence[which]
        x = torch.cat([real.x, anchors.x[which]])
        y = torch.cat([real.y, anchors.c[which]])
        weight = torch.cat([real.x.new_ones(len(real.y)), weight]) / size
        return BalancedBatch(x, y, weight, torch.arange(len(y), device=y.device) >= len(real.y))

    def loss(self, f: Model, w: Vector, batch: DualBatch, ctx: Context[FedADBBroadcast]) -> Tensor:
        local = [(batch.local.x, "L")] if self.calibrate else []
        *on_local, on_balanced = f.branches(w, *local, (batch.balanced.x, "A"))
        agb = self.balanced_loss(f, on_balanced.logits, batch.balanced, ctx)
        if not self.calibrate:
            return agb
        lcb = F.cross_entropy(on_local[0].logits, batch.local.y)  # Eq. (7)
        return agb + self.local_weight(ctx) * lcb  # Eq. (8)

    def balanced_loss(
        self, f: Model, z: Tensor, batch: BalancedBatch, ctx: Context[FedADBBroadcast]
    ) -> Tensor:
        """L_AGB, given the logits z of the batch."""
        return batch.weight @ F.cross_entropy(z, batch.y, reduction="none")  # Eq. (6)

    def local_weight(self, ctx: Context[FedADBBroadcast]) -> Tensor:
        """β_k(r) = r^(γ_k τ_t), with r = t/T."""
        if self.beta is not None:
            return ctx.sent.tau.new_tensor(self.beta)
        r = ctx.round.t / ctx.round.total
        return r ** (missing_rate(ctx.counts) * ctx.sent.tau)

    def personal(self, f: Model, w: Vector, x: Tensor) -> Tensor | None:
        """ψ_L fits the client's own distribution; without LCB it is not trained."""
        return f(w, x, "L").logits if self.calibrate else None

    def measure(
        self, f: Model, batch: DualBatch, ctx: Context[FedADBBroadcast]
    ) -> dict[str, Tensor]:
        """τ, γ, β, and the anchors' confidence within this client's first balanced batch."""
        x, y, _, anchor = batch.balanced
        if not f.batch_statistics:  # the other rows do not matter
            x, y, anchor = x[anchor], y[anchor], anchor[anchor]
        confidence = f(ctx.sent.w, x, "A").logits.softmax(1).gather(1, y[:, None])[:, 0]
        return {
            "tau": ctx.sent.tau,
            "gamma": missing_rate(ctx.counts),
            "beta": self.local_weight(ctx) if self.calibrate else torch.zeros(()),
            "anchor_confidence": confidence[anchor].mean(),
        }


def _bounds(f: Model) -> tuple[Tensor, Tensor]:
    """The bounds of the model's inputs, as vectors of one value per channel."""
    return f.domain.low.flatten(), f.domain.high.flatten()


def missing_rate(counts: Tensor) -> Tensor:
    """γ_k = 1 − |C_k| / |C|."""
    return (counts == 0).float().mean()
