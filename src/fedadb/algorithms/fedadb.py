"""FedADB: Liu et al., "Class Anchor-Driven Dual-Branch Federated Learning for Mitigating
Forgetting", MM 2026, doi:10.1145/3767308.3835615. Equation numbers are the paper's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Le
from torch import Tensor, nn

from fedadb.core.algorithm import Algorithm, Context, Reply, Round, Weights, average
from fedadb.core.balance import balanced
from fedadb.core.data import Batch, LocalPlan, Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector


class Anchors(NamedTuple):
    x: Tensor  # x̃_i; while they travel perhaps as bytes, a pixel each
    c: Tensor  # c_i, the class that each stands for
    confidence: Tensor  # ỹ_i = [ψ_A(φ(x̃_i))]_{c_i}


class Sent(NamedTuple):
    w: Vector  # θ_φ, θ_A, θ_L
    anchors: Anchors  # Ã_t
    tau: Tensor  # τ_t


class Mixed(NamedTuple):
    """B_k^A: local rows and anchors."""

    x: Tensor
    y: Tensor
    weight: Tensor  # what each counts for in the mean over the batch
    anchor: Tensor  # whether each is an anchor


class Dual(NamedTuple):
    mixed: Mixed  # for the global branch (AGB)
    local: Batch  # for the local branch (LCB)


@dataclass(frozen=True)
class FedADB(Algorithm[Weights, Sent]):
    """The server makes class anchors from the global model; clients train two branches."""

    eta: Annotated[float, Gt(0)] = 1.0  # η: step size of anchor generation
    steps: Annotated[int, Ge(1)] = 50  # I: its iterations
    lam: Annotated[float, Ge(0)] = 1e-4  # λ: weight of ‖x̃‖²
    sigma: Annotated[float, Gt(0)] = 1.0  # σ: deviation of the initial noise
    anchors_per_class: Annotated[int, Ge(1)] = 1  # N / |C|
    # Which classes' anchors a client puts into its balanced batches.
    anchors_for: Literal["all", "missing"] = "missing"
    # What an anchor counts for in Eq. (6): as much as a row, or that times its confidence ỹ.
    anchor_weight: Literal["one", "confidence"] = "one"
    # β: constant if given, else adaptive, (t/T)^(γ_k τ_t).
    beta: Annotated[float, Ge(0), Le(1)] | None = None
    generate: bool = True  # CAG; without it the balanced batch holds the client's own classes
    calibrate: bool = True  # LCB; without it the loss is L_AGB alone
    deploy: Literal["A", "L", "mean"] = "A"  # the head that is evaluated
    # How anchors travel: as they are, or as 8-bit pixels, which are a quarter of the bytes.
    anchor_dtype: Literal["float32", "uint8"] = "float32"
    # The rounds whose anchors stay in the run's directory; auto: the first, one early (t = T/20),
    # the one in the middle and the last.
    keep_anchors: tuple[Annotated[int, Ge(1)], ...] | Literal["auto"] = "auto"

    timed = "cag_seconds"

    def heads(self, dim: int, classes: int) -> Mapping[str, nn.Module]:
        return {"A": nn.Linear(dim, classes), "L": nn.Linear(dim, classes)}  # ψ_A, ψ_L

    def init(self, w: Vector) -> Weights:
        return Weights(w)

    # server: class anchor generation (CAG)

    def broadcast(self, s: Weights, f: Model, rng: Stream) -> Sent:
        if not self.generate:
            nothing = s.w.flat.new_zeros(0)
            none = Anchors(nothing.view(0, *f.domain.shape), nothing.long(), nothing)
            return Sent(s.w, none, s.w.flat.new_ones(()))  # τ = 1
        c = torch.arange(f.classes).repeat_interleave(self.anchors_per_class)
        x = self.sigma * torch.randn(len(c), *f.domain.shape, generator=rng.generator())
        anchors = self.optimise(f, s.w, x.to(s.w.flat.device), c.to(s.w.flat.device))
        if self.anchor_dtype == "uint8":
            anchors = anchors._replace(x=f.domain.to_bytes(anchors.x))
        return Sent(s.w, anchors, anchors.confidence.mean())  # Eq. (5)

    def optimise(self, f: Model, w: Vector, x: Tensor, c: Tensor) -> Anchors:
        """Descend from the inputs x to ones that the model takes for the classes c."""
        if not (f.domain.low.isfinite().all() and f.domain.high.isfinite().all()):
            raise BadInput("the model's Domain has no bounds, and anchors need them: give it some")
        for _ in range(self.steps):
            x = x.detach().requires_grad_()
            nll = F.cross_entropy(f(w, x, "A").logits, c, reduction="sum")
            loss = nll + self.lam * x.square().sum()  # Eq. (3), summed over the anchors
            (g,) = torch.autograd.grad(loss, x)
            x = f.domain.project(x.detach() - self.eta * g)  # Eq. (4)
        with torch.no_grad():
            confidence = f(w, x, "A").logits.softmax(1).gather(1, c[:, None])[:, 0]
        if not (x.isfinite().all() and confidence.isfinite().all()):
            raise Fault(
                f"the anchors are not finite: eta = {self.eta} or sigma = {self.sigma} is too "
                "large, or the model has diverged"
            )
        return Anchors(x, c, confidence)

    def aggregate(self, s: Weights, replies: Sequence[Reply], round: Round) -> Weights:
        return Weights(average(replies))

    def deployed(self, s: Weights) -> Vector:
        """The weights, with the deployed head in the place of A."""
        w = s.w.clone()
        for part in ("weight", "bias"):
            psi_a, psi_l = w[f"heads.A.{part}"], w[f"heads.L.{part}"]
            # The mean of two linear heads' logits is the linear head of their mean.
            psi_a.copy_({"A": psi_a, "L": psi_l, "mean": (psi_a + psi_l) / 2}[self.deploy])
        return w

    # client: dual-branch collaborative training (DBCT)

    def batches(
        self, f: Model, sent: Sent, data: Shard, plan: LocalPlan, rng: Stream
    ) -> Iterator[Dual]:
        """Each local batch beside a class-balanced one of the same size."""
        anchors = sent.anchors._replace(x=f.domain.from_bytes(sent.anchors.x))
        if self.anchors_for == "missing":
            missing = data.counts[anchors.c] == 0
            anchors = Anchors(*(part[missing] for part in anchors))
        generator = rng.at("balanced").generator()
        sizes = plan.sizes(len(data))
        balance = balanced(data.labels.cpu(), anchors.c.cpu(), sizes, generator)
        for (rows, copies), local in zip(balance, plan.batches(data, rng), strict=True):
            real = data.batch(rows.to(data.rows.device), generator)
            yield Dual(self.mix(f, real, anchors, copies.to(data.rows.device)), local)

    def mix(self, f: Model, real: Batch, anchors: Anchors, copies: Tensor) -> Mixed:
        """Real rows, and so many copies of each anchor."""
        if f.batch_statistics:  # every copy shifts them, so each is a row of its own
            which = torch.arange(len(copies), device=copies.device).repeat_interleave(copies)
            weight = real.x.new_ones(len(which))
        else:  # equal rows have equal gradients: one does, with their weight
            which = torch.nonzero(copies).flatten()
            weight = copies[which].to(real.x.dtype)
        size = len(real.y) + copies.sum()
        if self.anchor_weight == "confidence":
            weight = weight * anchors.confidence[which]
        x = torch.cat([real.x, anchors.x[which]])
        y = torch.cat([real.y, anchors.c[which]])
        weight = torch.cat([real.x.new_ones(len(real.y)), weight]) / size
        return Mixed(x, y, weight, torch.arange(len(y), device=y.device) >= len(real.y))

    def loss(self, f: Model, w: Vector, batch: Dual, ctx: Context[Sent]) -> Tensor:
        x, y, weight, _ = batch.mixed
        agb = weight @ F.cross_entropy(f(w, x, "A").logits, y, reduction="none")  # Eq. (6)
        if not self.calibrate:
            return agb
        lcb = F.cross_entropy(f(w, batch.local.x, "L").logits, batch.local.y)  # Eq. (7)
        return agb + self.local_weight(ctx) * lcb  # Eq. (8)

    def local_weight(self, ctx: Context[Sent]) -> Tensor:
        """β_k(r) = r^(γ_k τ_t), with r = t/T."""
        if self.beta is not None:
            return ctx.sent.tau.new_tensor(self.beta)
        r = ctx.round.t / ctx.round.total
        return r ** (missing_rate(ctx.counts) * ctx.sent.tau)

    def measure(self, f: Model, batch: Dual, ctx: Context[Sent]) -> dict[str, Tensor]:
        """What the round's record shows: τ, γ, β, and the anchors as this client sees them."""
        x, y, _, anchor = batch.mixed
        seen = f(ctx.sent.w, x, "A").logits.softmax(1).gather(1, y[:, None])[:, 0]
        return {
            "tau": ctx.sent.tau,
            "gamma": missing_rate(ctx.counts),
            "beta": self.local_weight(ctx) if self.calibrate else torch.zeros(()),
            "anchor_confidence": seen[anchor].mean(),
        }

    def keeps(self, round: Round) -> bool:
        if self.keep_anchors == "auto":
            T = round.total
            return self.generate and round.t in {1, max(1, T // 20), max(1, T // 2), T}
        return round.t in self.keep_anchors


def missing_rate(counts: Tensor) -> Tensor:
    """γ_k = 1 − |C_k| / |C|."""
    return (counts == 0).float().mean()
