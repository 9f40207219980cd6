"""Local steps of each method, and what the server does with the results."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

Tensors = dict[str, Tensor]
Forward = Callable[[Tensors, Tensor], tuple[Tensor, Tensor]]  # (w, x) → features, logits
Batch = tuple[Tensor, Tensor]


@dataclass
class Client:
    """What a client knows in a round."""

    forward: Forward
    received: Tensors
    counts: list[int]
    memory: Tensors = field(default_factory=dict)


def gradients(loss: Callable[[Tensors], Tensor], w: Tensors) -> Tensors:
    at = {name: tensor.detach().clone().requires_grad_() for name, tensor in w.items()}
    found = torch.autograd.grad(loss(at), list(at.values()))
    return dict(zip(at, found, strict=True))


def norm(v: Tensors) -> float:
    return math.sqrt(sum(float((t * t).sum()) for t in v.values()))


def cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    total = torch.zeros((), dtype=z.dtype)
    for row, label in zip(z, y, strict=True):
        total = total - (row[label] - row.exp().sum().log())
    return total / len(y)


def kl_over(
    z: Tensor, teacher: Tensor, of_student: list[int], of_teacher: list[int], tau: float
) -> Tensor:
    """KL between the teacher's softmax over some classes and the student's over others."""
    s = {c: (z[c] / tau).exp() for c in of_student}
    q = {c: (teacher[c] / tau).exp() for c in of_teacher}
    s_sum, q_sum = sum(s.values()), sum(q.values())
    total = torch.zeros((), dtype=z.dtype)
    for c in of_teacher:
        total = total + q[c] / q_sum * ((q[c] / q_sum).log() - (s[c] / s_sum).log())
    return total


def fedavg(client: Client, w: Tensors, batch: Batch) -> Tensors:
    x, y = batch
    return gradients(lambda v: cross_entropy(client.forward(v, x)[1], y), w)


def fedprox(client: Client, w: Tensors, batch: Batch, mu: float) -> Tensors:
    g = fedavg(client, w, batch)
    return {n: g[n] + mu * (w[n] - client.received[n]) for n in w}


def fedacg(client: Client, w: Tensors, batch: Batch, beta: float) -> Tensors:
    return fedprox(client, w, batch, 2 * beta)


def feddyn(client: Client, w: Tensors, batch: Batch, alpha: float) -> Tensors:
    g = fedprox(client, w, batch, alpha)
    return {n: g[n] - client.memory[n] for n in w}


def scaffold(client: Client, w: Tensors, batch: Batch, control: Tensors) -> Tensors:
    g = fedavg(client, w, batch)
    return {n: g[n] + control[n] - client.memory[n] for n in w}


def scaffold_memory(
    client: Client, w: Tensors, control: Tensors, lr: float, momentum: float, steps: int
) -> Tensors:
    """Option II, divided by the weight that the steps give to a constant gradient."""
    velocity, a = 0.0, 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1
        a += velocity
    return {n: client.memory[n] - control[n] + (client.received[n] - w[n]) / (a * lr) for n in w}


def moon(client: Client, w: Tensors, batch: Batch, mu: float, tau: float) -> Tensors:
    x, y = batch
    z_global = client.forward(client.received, x)[0].detach()
    z_previous = client.forward(client.memory, x)[0].detach()

    def cosine(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum() / ((a * a).sum().sqrt() * (b * b).sum().sqrt())

    def loss(v: Tensors) -> Tensor:
        h, z = client.forward(v, x)
        total = torch.zeros((), dtype=z.dtype)
        for row, positive, negative in zip(h, z_global, z_previous, strict=True):
            same, other = ((cosine(row, b) / tau).exp() for b in (positive, negative))
            total = total - (same / (same + other)).log()
        return cross_entropy(z, y) + mu * total / len(y)

    return gradients(loss, w)


def fedcurv(
    client: Client, w: Tensors, batch: Batch, lam: float, others: list[tuple[Tensors, Tensors]]
) -> Tensors:
    """`others` are the Fisher diagonals and the weights of the other clients."""
    g = fedavg(client, w, batch)
    for fisher_j, w_j in others:
        g = {n: g[n] + 2 * lam * fisher_j[n] * (w[n] - w_j[n]) for n in w}
    return g


def fisher(client: Client, w: Tensors, batches: list[Batch]) -> Tensors:
    """The mean over batches of the squared gradient."""
    total = {n: torch.zeros_like(t) for n, t in w.items()}
    for batch in batches:
        g = fedavg(client, w, batch)
        total = {n: total[n] + g[n] ** 2 for n in w}
    return {n: t / len(batches) for n, t in total.items()}


def weight_of_steps(steps: int, momentum: float) -> float:
    """The weight that SGD's steps give to a constant gradient."""
    velocity, a = 0.0, 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1
        a += velocity
    return a


def fednova(
    received: Tensors, results: list[Tensors], sizes: list[int], steps: list[int], momentum: float
) -> Tensors:
    """(1 − Σ r_k) w + Σ r_k w_k with r_k = p_k τ_eff / a_k, as the reference code writes it."""
    p = [n / sum(sizes) for n in sizes]
    a = [weight_of_steps(s, momentum) for s in steps]
    tau_eff = sum(p_k * a_k for p_k, a_k in zip(p, a, strict=True))
    r = [p_k * tau_eff / a_k for p_k, a_k in zip(p, a, strict=True)]
    w = {n: (1 - sum(r)) * t for n, t in received.items()}
    for r_k, result in zip(r, results, strict=True):
        w = {n: w[n] + r_k * result[n] for n in w}
    return w


def distilled(
    client: Client, w: Tensors, batch: Batch, beta: float, tau: float, hidden: list[int]
) -> Tensors:
    x, y = batch
    teacher = client.forward(client.received, x)[1].detach()

    def loss(v: Tensors) -> Tensor:
        z = client.forward(v, x)[1]
        total = torch.zeros((), dtype=z.dtype)
        for i, label in enumerate(y.tolist()):
            others = [c for c in range(z.shape[1]) if c != label]
            shown = [c for c in others if c not in hidden]
            if shown:
                total = total + tau**2 * kl_over(z[i], teacher[i], others, shown, tau)
        return cross_entropy(z, y) + beta * total / len(y)

    return gradients(loss, w)


def fedntd(client: Client, w: Tensors, batch: Batch, beta: float, tau: float) -> Tensors:
    return distilled(client, w, batch, beta, tau, hidden=[])


def fedlmd(client: Client, w: Tensors, batch: Batch, beta: float, tau: float) -> Tensors:
    mean = sum(client.counts) / len(client.counts)
    hidden = [c for c, n in enumerate(client.counts) if n > mean]
    return distilled(client, w, batch, beta, tau, hidden)


def fedvls(client: Client, w: Tensors, batch: Batch, lam: float, beta: float) -> Tensors:
    x, y = batch
    teacher = client.forward(client.received, x)[1].detach()
    classes = len(client.counts)
    pi = [n / sum(client.counts) for n in client.counts]
    vacant = [c for c, n in enumerate(client.counts) if n == 0]

    def loss(v: Tensors) -> Tensor:
        z = client.forward(v, x)[1]
        shift = torch.tensor([math.log(p + 1e-9) for p in pi], dtype=z.dtype)
        total = cross_entropy(z + shift, y)
        for i in range(len(y)):
            if vacant:
                total = total + lam * kl_over(z[i], teacher[i], vacant, vacant, 1.0) / len(y)
        for c in range(classes):
            log_ratio = math.log(1 / classes + 1e-9) - math.log(pi[c] + 1e-9)
            terms = [(z[i, c] + log_ratio).exp() if y[i] != c else 1.0 for i in range(len(y))]
            total = total + beta * pi[c] * torch.as_tensor(sum(terms) / len(y)).log()
        return total

    return gradients(loss, w)


def fedrod(client: Client, w: Tensors, batch: Batch, gamma: float) -> Tensors:
    """Two gradients: of the model by the generic loss, of the personal head by the other."""
    x, y = batch
    own = [c for c, n in enumerate(client.counts) if n > 0]
    label = torch.tensor([own.index(int(c)) for c in y])
    shift = torch.tensor([gamma * math.log(client.counts[c]) for c in own], dtype=x.dtype)
    model = {n: t for n, t in w.items() if not n.startswith("personal")}
    head = {n: t for n, t in w.items() if n.startswith("personal")}
    h, z = (t.detach() for t in client.forward(model, x))

    def generic(v: Tensors) -> Tensor:
        return cross_entropy(client.forward(v, x)[1][:, own] + shift, label)

    def personal(v: Tensors) -> Tensor:
        return cross_entropy(z + h @ v["personal.weight"].T + v["personal.bias"], y)

    return gradients(generic, model) | gradients(personal, head)


def fedcog_inputs(
    client: Client, x: Tensor, classes: list[int], steps: int, lr: float, lam: float
) -> Tensor:
    """Adam on the inputs x; the client's memory is its previous model."""

    def loss(v: Tensors) -> Tensor:
        z = client.forward(client.received, v["x"])[1]
        other = client.forward(client.memory, v["x"])[1]
        j = torch.zeros((), dtype=z.dtype)
        for row, its in zip(z.softmax(1), other.softmax(1), strict=True):
            for a, b in zip(row, its, strict=True):
                p, q, m = a.clamp(0.01, 0.99), b.clamp(0.01, 0.99), ((a + b) / 2).clamp(0.01, 0.99)
                j = j + m * ((m / p).log() + (m / q).log()) / 2 / len(z)
        return cross_entropy(z, torch.tensor(classes)) + lam * (1 - j.clamp(0, 1))

    first, second = torch.zeros_like(x), torch.zeros_like(x)
    for t in range(1, steps + 1):
        g = gradients(loss, {"x": x})["x"]
        first, second = 0.5 * first + 0.5 * g, 0.9 * second + 0.1 * g * g
        x = x - lr * (first / (1 - 0.5**t)) / ((second / (1 - 0.9**t)).sqrt() + 1e-8)
    return x


def fedcog(
    client: Client, w: Tensors, batch: Batch, generated: Batch, real: float, tau: float
) -> Tensors:
    """`generated` are inputs and the global model's logits; `real` is the weight of real rows."""
    (x, y), (inputs, logits) = batch, generated

    def loss(v: Tensors) -> Tensor:
        z = client.forward(v, inputs)[1]
        every = list(range(z.shape[1]))
        rows = [kl_over(z[i], logits[i], every, every, tau) for i in range(len(z))]
        taught = tau**2 * torch.stack(rows).sum() / len(rows)
        return real * cross_entropy(client.forward(v, x)[1], y) + (1 - real) * taught

    return gradients(loss, w)


def fedlc(client: Client, w: Tensors, batch: Batch, tau: float, missing: str) -> Tensors:
    x, y = batch

    def loss(v: Tensors) -> Tensor:
        z = client.forward(v, x)[1]
        seen = [c for c, n in enumerate(client.counts) if n > 0 or missing == "one"]
        margin = [tau / max(n, 1) ** 0.25 for n in client.counts]
        shifted = torch.stack([z[:, c] - margin[c] for c in seen], dim=1)
        return cross_entropy(shifted, torch.tensor([seen.index(label) for label in y.tolist()]))

    return gradients(loss, w)


def fedrs(client: Client, w: Tensors, batch: Batch, alpha: float, variant: str) -> Tensors:
    x, y = batch
    scale = []
    for n in client.counts:
        soft = alpha + (1 - alpha) * n / max(client.counts)
        scale.append(soft if variant == "soft" else 1.0 if n > 0 else alpha)

    def loss(v: Tensors) -> Tensor:
        z = client.forward(v, x)[1]
        return cross_entropy(torch.stack([s * z[:, c] for c, s in enumerate(scale)], dim=1), y)

    return gradients(loss, w)


def feddisco(
    results: list[Tensors], counts: list[list[int]], a: float, b: float
) -> tuple[Tensors, list[float]]:
    """The mean of the results, and their weights in it."""
    sizes = [sum(one) for one in counts]
    far = [
        sum(n / size * math.log(n / size * len(one)) for n in one if n > 0)
        for one, size in zip(counts, sizes, strict=True)
    ]
    raw = []
    for size, one in zip(sizes, far, strict=True):
        raw.append(max(size / sum(sizes) - a * one / sum(far) + b, 0))
    weights = [one / sum(raw) for one in raw]
    parts = zip(results, weights, strict=True)
    scaled = [{n: weight * t for n, t in r.items()} for r, weight in parts]
    return {n: torch.stack([r[n] for r in scaled]).sum(0) for n in results[0]}, weights


def feddecorr(client: Client, w: Tensors, batch: Batch, lam: float) -> Tensors:
    x, y = batch

    def loss(v: Tensors) -> Tensor:
        h, z = client.forward(v, x)
        b, d = h.shape
        columns = []
        for i in range(d):
            centred = h[:, i] - h[:, i].sum() / b
            variance = (centred * centred).sum() / (b - 1)
            columns.append(centred / (variance + 1e-8).sqrt())
        total = torch.zeros((), dtype=h.dtype)
        for i in range(d):
            for j in range(d):
                if i != j:
                    total = total + (columns[i] * columns[j]).sum() ** 2
        return cross_entropy(z, y) + lam * total / (d * (d - 1)) / b

    return gradients(loss, w)


def fedasam(
    client: Client, w: Tensors, batch: Batch, rho: float, eta: float, scope: str
) -> Tensors:
    g = fedavg(client, w, batch)
    scale = {
        n: t.abs() + eta if scope == "all" or "weight" in n else torch.ones_like(t)
        for n, t in w.items()
    }
    length = norm({n: scale[n] * g[n] for n in w})
    there = {n: w[n] + rho * scale[n] ** 2 * g[n] / length for n in w}
    return fedavg(client, there, batch)


def fedsol(client: Client, w: Tensors, batch: Batch, rho: float, adaptive: bool) -> Tensors:
    x, _ = batch
    teacher = client.forward(client.received, x)[1].detach()

    def proximal(v: Tensors) -> Tensor:
        z = client.forward(v, x)[1]
        every = list(range(z.shape[1]))
        rows = [kl_over(z[i], teacher[i], every, every, 3.0) for i in range(len(z))]
        return torch.stack(rows).sum() / len(rows)

    g = gradients(proximal, w)
    length = norm(g)
    there = {}
    for n in w:
        drift = (w[n] - client.received[n]).abs()
        if adaptive:
            of_columns = (drift * drift).sum(0, keepdim=True).sqrt()
            scale = torch.where(of_columns > 1e-12, drift / of_columns.clamp(min=1e-30), 0 * drift)
        else:
            scale = torch.ones_like(drift) if length >= 1e-7 else torch.zeros_like(drift)
        there[n] = w[n] + rho * scale * g[n] / (length + 1e-12)
    return fedavg(client, there, batch)


def train(
    client: Client,
    gradient: Callable[[Client, Tensors, Batch], Tensors],
    batches: list[Batch],
    lr: float,
    momentum: float,
    weight_decay: float,
) -> Tensors:
    """SGD from the weights received."""
    w = {n: t.clone() for n, t in client.received.items()}
    v = {n: torch.zeros_like(t) for n, t in w.items()}
    for batch in batches:
        g = gradient(client, w, batch)
        for n in w:
            v[n] = momentum * v[n] + g[n] + weight_decay * w[n]
            w[n] = w[n] - lr * v[n]
    return w


def average(results: list[Tensors], sizes: list[int]) -> Tensors:
    return {
        n: sum((size * r[n] for r, size in zip(results, sizes, strict=True)), 0 * results[0][n])
        / sum(sizes)
        for n in results[0]
    }
