"""The accuracy of each class over rounds, as a heat map."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from fedadb.analysis.inputs import Numbers, Options, Results, rounds_of
from fedadb.analysis.panels import class_ticks, side_by_side
from fedadb.experiment.stored import StoredRun
from fedadb.report.drawing import round_axis


def require(run: StoredRun, options: Options) -> None:
    rounds_of(run)


def measure(run: StoredRun, options: Options) -> Numbers:
    return {"class_accuracy": [record["class_accuracy"] for record in rounds_of(run)]}


def draw(results: Results, classes: Sequence[str]) -> Figure:
    figure, panels = side_by_side(len(results))
    for axes, (title, numbers) in zip(panels, results.items(), strict=True):
        # A class that was not tested in a round is None in the record, and a gap in the picture.
        by_class = np.array(numbers["class_accuracy"], dtype=float).T
        frame = (0.5, by_class.shape[1] + 0.5, by_class.shape[0] - 0.5, -0.5)
        image = axes.imshow(
            by_class, aspect="auto", interpolation="none", vmin=0, vmax=1, extent=frame
        )
        axes.set_title(title)
        round_axis(axes)
        axes.set_yticks(*class_ticks(classes))
    figure.colorbar(image, ax=panels, label="test accuracy of the class")
    return figure
