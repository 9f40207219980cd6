"""Analyses of finished runs: forgetting, curvature, embeddings, privacy.

Each analysis is a module of this package, named as in `ANALYSES`, with three functions:
`require` raises BadInput if a run lacks what the analysis needs, `measure` computes its numbers,
and `draw` draws them.
"""

from typing import NamedTuple


class Analysis(NamedTuple):
    """An analysis as the command line presents it; nothing here imports torch."""

    summary: str
    of_anchors: bool = False  # whether it is about FedADB's anchors


ANALYSES: dict[str, Analysis] = {
    "heatmap": Analysis("the accuracy of each class over rounds"),
    "forgetting": Analysis("how far classes fall below their best accuracy"),
    "hessian": Analysis("the largest eigenvalues of the training loss's Hessian"),
    "landscape": Analysis("the training loss around the model"),
    "tsne": Analysis("anchors among real features, in a plane", of_anchors=True),
    "pca": Analysis("correlation of anchors with the centres of classes", of_anchors=True),
    "psnr": Analysis("similarity of anchors to single training images", of_anchors=True),
    "membership": Analysis("whether anchors reveal which images were trained on", of_anchors=True),
}
"""The only list of analyses, in the order in which they are computed."""
