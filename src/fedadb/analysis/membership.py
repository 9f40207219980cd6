"""The analyses: each turns a run into numbers, and keeps what its picture needs."""

import functools
from statistics import fmean
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from fedadb.analysis import embedding, privacy
from fedadb.analysis import hessian as curvature
from fedadb.analysis import landscape as surroundings
from fedadb.analysis.subject import Subject, batches, features, stratified
from fedadb.engine.evaluate import evaluate
from fedadb.report.statistics import forgetting as final_forgetting

PER_CLASS = 200  # real images of each class, where features are compared
Numbers = dict[str, Any]


def heatmap(subject: Subject) -> Numbers:
    """Class accuracy over rounds."""
    return {"class_accuracy": [r["class_accuracy"] for r in subject.rounds]}


def forgetting(subject: Subject) -> Numbers:
    """F up to each round, of each class in the end, and what clients know before the mean."""
    rounds = subject.rounds
    known = [r["class_accuracy"] for r in rounds]
    over_time = [None] + [final_forgetting(known[: t + 1]) for t in range(1, len(known))]
    by_class = [
        None if now is None or len(known) < 2 else max(row[c] for row in known[:-1]) - now
        for c, now in enumerate(known[-1])
    ]
    found = {"forgetting": over_time[-1], "over_time": over_time, "by_class": by_class}
    for key in ("in_local", "out_local"):
        if key in rounds[0]:
            found[key] = [r[key] for r in rounds]
    return found


@functools.cache  # the landscape needs it again
def hessian(subject: Subject) -> Numbers:
    """λ₁ to λ₅ of the training loss, and the accuracy on the same images."""
    f, w = subject.world.f, subject.w
    given = batches(subject, subject.train, subject.looked_at)
    n = int(curvature.used(f, w).sum())
    with subject.progress("Hessian products", 60, "products") as advance:
        plain = curvature.hessian(f, w, given)

        def product(v: np.ndarray) -> np.ndarray:
            advance(1)
            return plain(v)

        top = curvature.lanczos(product, n)
        check = curvature.power_iteration(product, n, k=1)
    examples = subject.train.rows(subject.looked_at)
    scores = evaluate(f, w, examples, subject.world.transform, subject.experiment.local.batch_size)
    return {
        "eigenvalues": top.values.tolist(),
        "lambda1": float(top.values[0]),
        "anisotropy": top.anisotropy,
        "lambda1_by_power_iteration": float(check.values[0]),
        "training_accuracy": scores.accuracy,
        "images": len(subject.looked_at),
        "vectors": top.vectors[:, :2],
    }


def landscape(subject: Subject) -> Numbers:
    """The loss around the weights, along the first two eigenvectors."""
    f, w = subject.world.f, subject.w
    given, steps = batches(subject, subject.train, subject.looked_at), surroundings.axis()
    directions = hessian(subject)["vectors"]
    with subject.progress("loss landscape", len(steps) ** 2, "points") as advance:
        losses = surroundings.landscape(f, w, given, directions, steps, advance)
    return {
        "steps": steps.tolist(),
        "loss": losses.tolist(),
        "centre": curvature.mean_loss(f, w, given),
    }


def _compared(subject: Subject, t: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Real features and labels, anchors' features and classes, by the model sent in round t."""
    sent, test = subject.sent[t], subject.world.test
    n = min(PER_CLASS * subject.world.f.classes, len(test.y))
    rows = stratified(test.y, n, range(subject.world.f.classes), "test")
    real = features(subject, sent.w, batches(subject, test, rows))
    with torch.no_grad():
        anchors = subject.world.f(sent.w, sent.anchors.x).features  # one batch of anchors
    return real.numpy(), test.y[rows].numpy(), anchors.numpy(), sent.anchors.c.numpy()


def tsne(subject: Subject) -> Numbers:
    """Anchors and real features in a plane, early and late."""
    found = {}
    for when, t in zip(("early", "late"), subject.early_and_late(), strict=True):
        real, labels, anchors, of = _compared(subject, t)
        points, stars = embedding.tsne(real, anchors)
        found[when] = {
            "round": t,
            "real": np.round(points, 2).tolist(),
            "class": labels.tolist(),
            "anchors": np.round(stars, 2).tolist(),
            "anchor_class": of.tolist(),
        }
    return found


def pca(subject: Subject) -> Numbers:
    """How anchors go with the centres of real classes, in three dimensions and in all."""
    found, classes = {}, subject.world.f.classes
    for when, t in zip(("early", "late"), subject.early_and_late(), strict=True):
        real, labels, anchors, of = _compared(subject, t)
        centres3, anchors3 = embedding.components(real, labels, anchors, classes)
        three = embedding.align(anchors3, of, centres3)
        every = embedding.align(anchors, of, embedding.centres(real, labels, classes))
        found[when] = {
            "round": t,
            "centres": centres3.tolist(),
            "anchors": anchors3.tolist(),
            **{f"{name}_3": value for name, value in _plain(three).items()},
            **_plain(every),
        }
    return found


def psnr(subject: Subject) -> Numbers:
    """How like the last anchors are to single images, and whether they tell who was trained on."""
    sent = subject.sent[max(subject.sent)]
    plain, rng = subject.world.transform.normalise, np.random.default_rng(0)
    anchors = subject.pixels(sent.anchors.x).numpy()
    likeness, pictures = [], []
    for anchor, c in zip(anchors, sent.anchors.c.tolist(), strict=True):
        rows = torch.nonzero(subject.train.y == c).flatten()
        real = subject.pixels(plain(subject.train.x[rows])).numpy()
        likeness.append(privacy.likeness(anchor, real, rng))
        nearest = real[privacy.mean_square(anchor[None], real)[0].argmin()]
        pictures.append((anchor, nearest))
    means = {
        name: fmean(getattr(one, name) for one in likeness) for name in privacy.Likeness._fields
    }
    return {
        "round": max(subject.sent),
        **means,
        "by_anchor": [one._asdict() for one in likeness],
        "anchor_class": sent.anchors.c.tolist(),
        "pictures": pictures,
    }


def membership(subject: Subject) -> Numbers:
    """Whether training images are nearer to their class's anchor than no_progress ones; AUC 0.5: no."""
    sent = subject.sent[max(subject.sent)]
    f, test = subject.world.f, subject.world.test
    train = subject.train.rows(subject.members())
    counts = torch.stack([torch.bincount(y, minlength=f.classes) for y in (train.y, test.y)])
    fewest = counts.min(0).values
    both = fewest.nonzero().flatten().tolist()  # who took part may lack a class
    n = min(PER_CLASS, int(fewest[both].min())) * len(both)
    scores: dict[str, list[np.ndarray]] = {"pixels": [], "features": [], "loss": []}
    with torch.no_grad():
        of_anchor = f(sent.w, sent.anchors.x).features
    for examples, what in ((train, "training"), (test, "test")):
        given = batches(subject, examples, stratified(examples.y, n, both, what))
        x, y = torch.cat([b.x for b in given]), torch.cat([b.y for b in given])
        other = y[:, None] != sent.anchors.c  # each image beside the nearest anchor of its class
        with torch.no_grad():
            outputs = [(f(subject.w, batch.x).logits, batch.y) for batch in given]
        losses = [F.cross_entropy(a, b, reduction="none") for a, b in outputs]
        for name, points, anchors in (
            ("pixels", x.flatten(1), sent.anchors.x.flatten(1)),
            ("features", features(subject, sent.w, given), of_anchor),
        ):
            far = torch.cdist(points, anchors).masked_fill(other, torch.inf)
            scores[name].append(-far.min(1).values.numpy())
        scores["loss"].append(-torch.cat(losses).numpy())
    return {"images": n} | {
        name: privacy.auc(members, strangers)._asdict()
        for name, (members, strangers) in scores.items()
    }


def _plain(alignment: embedding.Alignment) -> Numbers:
    return {**alignment._asdict(), "pearson": alignment.pearson.round(4).tolist()}
