"""The critical-difference diagram: methods on an axis of average ranks (Demšar, 2006, figure 1).

A bar joins methods whose ranks are less than the critical difference apart.
"""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedadb.report.drawing import literal
from fedadb.report.ranks import Ranks

# In inches, from the top of the figure downwards.
AXIS_WIDTH = 4.5
CRITICAL, AXIS, FIRST_BAR = 0.4, 0.95, 1.15
BAR_STEP, LABEL_STEP = 0.14, 0.26
LONGEST_LABEL = 30  # characters


def draw_ranks(ranks: Ranks, colours: Mapping[str, str]) -> Figure:
    """The better half of the methods is labelled on the left, the others on the right."""
    labels = {
        method: f"{literal(method, LONGEST_LABEL)}  {average:.2f}"
        for method, average in ranks.averages.items()
    }
    margin = 0.35 + 0.085 * max(map(len, labels.values()))
    top_label = FIRST_BAR + BAR_STEP * len(ranks.groups) + 0.15
    left = (len(labels) + 1) // 2
    width, height = AXIS_WIDTH + 2 * margin, top_label + LABEL_STEP * (left - 1) + 0.25
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")

    def position(rank: float) -> float:
        return margin + AXIS_WIDTH * (rank - 1) / (len(labels) - 1)

    _draw_axis(axes, ranks, position(1), position(len(labels)))
    for i, group in enumerate(ranks.groups):
        y = FIRST_BAR + BAR_STEP * i
        ends = [position(ranks.averages[group[end]]) for end in (0, -1)]
        bar = [ends[0] - 0.04, ends[1] + 0.04]
        axes.plot(bar, [y, y], color="0.25", linewidth=4, solid_capstyle="butt")
    methods = list(labels)
    # The outermost method is the highest label of its side, so that no line crosses another.
    for side, names in (("right", methods[:left]), ("left", methods[: left - 1 : -1])):
        end = margin - 0.1 if side == "right" else width - margin + 0.1
        for i, method in enumerate(names):
            x, y = position(ranks.averages[method]), top_label + LABEL_STEP * i
            axes.plot([x, x, end], [AXIS, y, y], color=colours[method], linewidth=1.3)
            beyond = end - 0.08 if side == "right" else end + 0.08
            axes.text(beyond, y, labels[method], ha=side, va="center", fontsize=10)
    return figure


def _draw_axis(axes: Axes, ranks: Ranks, start: float, end: float) -> None:
    """The axis of ranks, and the critical difference above it."""
    axes.plot([start, end], [AXIS, AXIS], color="black", linewidth=1.3)
    axes.text(start - 0.15, AXIS, "average rank", ha="right", va="center", fontsize=10)
    k = len(ranks.ranks)
    for rank in range(1, k + 1):
        x = start + (end - start) * (rank - 1) / (k - 1)
        axes.plot([x, x], [AXIS - 0.07, AXIS], color="black", linewidth=1.3)
        axes.text(x, AXIS - 0.11, str(rank), ha="center", va="bottom", fontsize=10)
    length = (end - start) * ranks.critical / (k - 1)
    low = start if length <= end - start else (start + end - length) / 2
    for x in (low, low + length):
        axes.plot([x, x], [CRITICAL - 0.05, CRITICAL + 0.05], color="black", linewidth=1.3)
    axes.plot([low, low + length], [CRITICAL, CRITICAL], color="black", linewidth=1.3)
    text = f"critical difference {ranks.critical:.2f}"
    axes.text(low + length / 2, CRITICAL - 0.09, text, ha="center", va="bottom", fontsize=10)
