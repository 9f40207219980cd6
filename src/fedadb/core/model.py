"""f(w, x): models as pure functions of weights and inputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import UninitializedParameter

from fedadb.core.errors import BadInput
from fedadb.core.stream import Stream
from fedadb.core.vector import Layout, Vector, stacking


class Domain(NamedTuple):
    """X: the shape of one input, and the bounds of its values after normalisation.

    `low` and `high` broadcast against an input: scalars, one value per channel, or one per value.
    """

    shape: tuple[int, ...]
    low: Tensor
    high: Tensor

    def project(self, x: Tensor) -> Tensor:
        """Π_X: the nearest valid input."""
        return torch.clamp(x, self.low.to(x.device), self.high.to(x.device))

    def quantise(self, x: Tensor) -> Tensor:
        """Each value as one byte: the nearest of 256 levels between low and high."""
        low, high = self.low.to(x.device), self.high.to(x.device)
        levels = 255 * (x - low) / (high - low)
        # A constant has one level; without this, it would be 0 / 0.
        return torch.where(high > low, levels, 0).round().to(torch.uint8)

    def dequantise(self, x: Tensor) -> Tensor:
        """Undo `quantise`; an input that is not uint8 is returned unchanged."""
        if x.dtype != torch.uint8:
            return x
        low, high = self.low.to(x.device), self.high.to(x.device)
        return low + x.float() / 255 * (high - low)

    @staticmethod
    def unbounded(shape: tuple[int, ...]) -> "Domain":
        """Inputs of that shape with any values."""
        return Domain(shape, torch.tensor(-torch.inf), torch.tensor(torch.inf))


class Output(NamedTuple):
    """The features φ(x), and the logits of one head on them."""

    features: Tensor
    logits: Tensor


class Classifier(nn.Module):
    """A body φ that computes features, and one or more heads ψ on top of them."""

    def __init__(self, body: nn.Module, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.body = body
        self.heads: nn.ModuleDict = nn.ModuleDict(dict(heads))

    def forward(self, x: Tensor, head: str) -> Output:
        features = self.body(x)
        return Output(features, self.heads[head](features))


class FastBody(Protocol):
    """A body as a function of its weights, in one vector, and of a batch of images."""

    @property
    def size(self) -> int:
        """The number of its weights."""
        ...

    def __call__(self, weights: Tensor, x: Tensor) -> Tensor:
        """The features of the images, one row each."""
        ...


@dataclass(frozen=True)
class Model:
    """A classifier as a function `f(w, x)` of its weights and inputs.

    Equal weights and inputs must give equal outputs, so the module may hold no running statistics
    and draw no random numbers. Parameters that do not require gradients are constants of f.
    `fedadb.assemble` makes a Model of a body and an algorithm's heads.

    ```python
    output = f(f.weights(), x)  # x is a batch of inputs
    output.features, output.logits
    ```

    A `fast_body` computes the same features as the module's body, except for rounding. It is used
    for float32 inputs of the domain's shape on a CPU; torch computes everything else: bfloat16,
    other devices, `torch.vmap`, `torch.func`, forward-mode derivatives, and modules with shared
    weights. A fast body has first derivatives only. For second ones, set
    `engine.kernels = "torch"`, as analyses do, or take `replace(f, fast_body=None)`.
    The same rules hold for convolutions of many channels, which a run replaces in the body itself.
    """

    module: Classifier
    domain: Domain
    classes: int
    # bfloat16: convolutions and products in bfloat16, weights and sums in float32.
    precision: Literal["float32", "bfloat16"] = "float32"
    fast_body: FastBody | None = None

    def __post_init__(self) -> None:
        for name, part in self.module.named_modules():
            if getattr(part, "running_mean", None) is not None:
                raise BadInput(
                    f"{name} keeps running statistics, which cannot be averaged between clients: "
                    "use track_running_stats=False, or GroupNorm"
                )
            if isinstance(part, _DropoutNd) and part.p > 0:
                raise BadInput(f"{name} is dropout, whose output is random: remove it")
        if not self._trainable():
            raise BadInput("the model has no weights to train")

    def _trainable(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self._trainable())

    @cached_property
    def head(self) -> str:
        """The default head: the first one."""
        return next(iter(self.module.heads))

    @cached_property
    def batch_statistics(self) -> bool:
        """Whether an example's output depends on the others in its batch."""
        return any(isinstance(part, _BatchNorm) for part in self.module.modules())

    def weights(self) -> Vector:
        """The weights it was initialised with."""
        return Vector.of(self._trainable())

    def constants(self) -> dict[str, Tensor]:
        """Buffers and frozen parameters by name."""
        everything = [*self.module.named_parameters(), *self.module.named_buffers()]
        return {name: t.detach() for name, t in everything if not t.requires_grad}

    @cached_property
    def _fast_layout(self) -> Layout:
        """The weights of the body as one part, which is the first, and those of the heads."""
        assert self.fast_body is not None
        slots = self.layout.slots.items()
        heads = {name: shape for name, (_, _, shape) in slots if name.startswith("heads.")}
        return Layout(("body", *heads), ((self.fast_body.size,), *heads.values()))

    def __call__(self, w: Vector, x: Tensor, head: str | None = None) -> Output:
        if self.fast_body and self._suits_fast_body(w, x):
            return self._compute_fast(self.fast_body, w, [x], [head or self.head])[0]
        if x.ndim == 4 and not stacking():
            # Convolution and pooling are fastest in this layout.
            x = x.to(memory_format=torch.channels_last)
        if self.precision == "float32":
            output: Output = functional_call(self.module, w.views(), (x, head or self.head))
            return output
        with torch.autocast(x.device.type, torch.bfloat16):
            low: Output = functional_call(self.module, w.views(), (x, head or self.head))
        return Output(low.features.float(), low.logits.float())

    def branches(self, w: Vector, *inputs: tuple[Tensor, str]) -> list[Output]:
        """The outputs of several batches, each with the head of that name.

        The fast body computes all batches in one pass.
        """
        batches, heads = [x for x, _ in inputs], [head for _, head in inputs]
        if self.fast_body and all(self._suits_fast_body(w, x) for x in batches):
            return self._compute_fast(self.fast_body, w, batches, heads)
        return [self(w, x, head) for x, head in inputs]

    def _suits_fast_body(self, w: Vector, x: Tensor) -> bool:
        return (
            self.precision == "float32"
            and x.dtype == w.flat.dtype == torch.float32
            and x.device.type == w.flat.device.type == "cpu"
            and x.shape[1:] == self.domain.shape
            and not stacking()
            and forward_ad._current_level < 0
            and not self._shares_weights
        )

    @cached_property
    def _shares_weights(self) -> bool:
        """Whether a parameter has several names, of which the layout has one."""
        named = self.module.named_parameters
        return len(list(named())) < len(list(named(remove_duplicate=False)))

    def _compute_fast(
        self, fast_body: FastBody, w: Vector, batches: list[Tensor], heads: list[str]
    ) -> list[Output]:
        views = Vector(w.flat, self._fast_layout).views()
        x = torch.cat(batches) if len(batches) > 1 else batches[0]
        features = fast_body(views.pop("body"), x)
        parts = torch.split(features, [len(batch) for batch in batches])
        return [
            Output(part, functional_call(self.module.heads[head], _within(head, views), (part,)))
            for part, head in zip(parts, heads, strict=True)
        ]


def _within(head: str, views: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of one head, by their names in it."""
    prefix = f"heads.{head}."
    return {k.removeprefix(prefix): v for k, v in views.items() if k.startswith(prefix)}


def assemble(
    body: nn.Module,
    heads: Callable[[int, int], Mapping[str, nn.Module]],
    domain: Domain,
    classes: int,
    rng: Stream,
) -> Model:
    """Make a model of a body and an algorithm's heads.

    Args:
        body: Maps a batch of inputs to a batch of feature vectors.
        heads: The algorithm's `heads`; called with the number of features and of classes.
        domain: Shape and bounds of the inputs.
        classes: The number of classes.
        rng: Draws the heads' initial weights.

    ```python
    body = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
    domain = fedadb.Domain.unbounded((10,))
    f = fedadb.assemble(body, fedadb.FedAvg().heads, domain, classes=4, rng=fedadb.Stream(0))
    ```
    """
    require_sizes(body)
    features = _features(body, domain.shape)
    with rng.at("heads").seeded():
        f = Model(Classifier(body, heads(features, classes)), domain, classes)
    _require_function(body, domain)
    return f


def require_sizes(module: nn.Module) -> None:
    """Raise BadInput if a layer takes its size, and its initial weights, from the first batch."""
    for name, parameter in module.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            raise BadInput(
                f"{name} of the model has no size yet: state it in place of a lazy layer"
            )


def _features(body: nn.Module, shape: tuple[int, ...]) -> int:
    """The number of features that the body computes for an input of that shape."""
    try:
        with torch.no_grad():
            features = body(torch.zeros(2, *shape))
    except Exception as error:  # a body of the user's own may raise anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise BadInput(f"the body does not take inputs of shape {shape}: {reason}") from error
    if not isinstance(features, Tensor):
        kind = type(features).__name__
        raise BadInput(f"the body's output is a {kind}; it must be a tensor of one row per input")
    if features.ndim != 2 or len(features) != 2:
        raise BadInput(
            f"the body's output has shape {tuple(features.shape)} for a batch of 2; "
            "it must be one row per input: flatten them"
        )
    return features.shape[1]


def _require_function(body: nn.Module, domain: Domain) -> None:
    """Raise BadInput if the body's output depends on more than its input and its weights."""
    x = domain.project(torch.rand(2, *domain.shape, generator=Stream(0).generator()))
    outputs = []
    for seed in range(2):
        with torch.no_grad(), Stream(seed).seeded():
            outputs.append(body(x).nan_to_num())
    if not torch.equal(*outputs):
        raise BadInput(
            "the body's output is random: two passes over equal inputs differ; remove dropout, and "
            "whatever else is random"
        )
