"""The figures: what their axes show, and that unusual runs do not break them."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from fedadb.report.comparison import Comparison, arrange
from fedadb.report.drawing import line_styles, save_figure
from fedadb.report.plots import draw_convergence, draw_curves, draw_heatmap, draw_partition
from fedadb.report.recorded_runs import collect_runs
from fedadb.report.sweeps import draw_sweep, find_sweeps
from tests.report.synthetic_runs import make_run


def compare(directory: Path) -> Comparison:
    return arrange(collect_runs([directory]).runs)


def tick_labels(figure: Figure) -> list[str]:
    figure.canvas.draw()
    return [label.get_text() for label in figure.axes[0].get_xticklabels()]


def test_accuracy_is_in_per_cent_and_rounds_are_whole(tmp_path: Path) -> None:
    make_run(tmp_path, [0.25, 0.5], algorithm="fedavg")
    figure = draw_curves(compare(tmp_path))
    assert figure.axes[0].get_ylim() == (0, 100)
    assert np.allclose(np.asarray(figure.axes[0].lines[0].get_ydata()), [25, 30])  # smoothed
    assert all(float(label.replace("−", "-")).is_integer() for label in tick_labels(figure))
    heatmap = draw_heatmap("t", compare(tmp_path).by_method("digits"))
    assert heatmap.axes[0].images[0].get_clim() == (0, 100)
    assert all(float(label.replace("−", "-")).is_integer() for label in tick_labels(heatmap))


def test_a_sweep_is_in_per_cent(tmp_path: Path) -> None:
    for lr in (0.1, 0.2):
        make_run(tmp_path, [lr], local={"lr": lr})
    lines = find_sweeps(compare(tmp_path))["local.lr"]
    figure = draw_sweep("local.lr", lines, {"FedADB": "red"})
    assert np.allclose(np.asarray(figure.axes[0].lines[0].get_ydata()), [10, 20])


def test_a_sweep_has_a_panel_per_dataset_with_one_line_per_method(tmp_path: Path) -> None:
    for dataset in ("svhn", "digits"):
        for name in ("fedavg", "fedadb"):
            for lr in (0.1, 0.2):
                make_run(tmp_path, [lr], dataset=dataset, algorithm=name, local={"lr": lr})
    figure = draw_sweep("local.lr", find_sweeps(compare(tmp_path))["local.lr"], {})
    shown = {a.get_title(): sorted(a.get_legend_handles_labels()[1]) for a in figure.axes}
    assert shown == {"SVHN": ["FedADB", "FedAvg"], "digits": ["FedADB", "FedAvg"]}


def test_equal_curves_do_not_hide_each_other(tmp_path: Path) -> None:
    """The second of two equal curves is dashed; one that differs is not."""
    for name, accuracy in (("fedavg", 0.5), ("fedntd", 0.5), ("fedadb", 0.7)):
        make_run(tmp_path, [accuracy] * 3, algorithm=name)
    styles = [line.get_linestyle() for line in draw_curves(compare(tmp_path)).axes[0].lines]
    assert styles == ["-", "--", "-"]
    assert len(set(map(str, line_styles([[1.0], [1.0], [1.0], [2.0]])))) == 3


def test_classes_that_were_never_measured_are_blank(tmp_path: Path) -> None:
    """No class at all in the last round, and one class in no round."""
    make_run(tmp_path, [0.5, 0.5, 0.5], [[0.5, None], [0.7, None], [None, None]])
    figure = draw_heatmap("t", compare(tmp_path).by_method("digits"))
    drawn = figure.axes[0].images[0].get_array()
    assert drawn is not None
    blank = np.isnan(np.ma.filled(drawn, np.nan))
    assert blank.tolist() == [[False, False, True], [True, True, True]]
    save_figure(figure, tmp_path / "heatmap")
    assert (tmp_path / "heatmap.png").exists()


def test_a_setting_without_targets_has_an_empty_panel(tmp_path: Path) -> None:
    make_run(tmp_path, [0.1, 0.1], classes=10)
    axes = draw_convergence(compare(tmp_path)).axes[0]
    assert [text.get_text() for text in axes.texts] == ["no target is above chance accuracy"]


def test_names_are_drawn_literally(tmp_path: Path) -> None:
    path = tmp_path / "partition.png"
    draw_partition([[0, 3], [1, 0]], ["a$b$", "動物"], "own $data$", path)
    with Image.open(path) as image:
        assert min(image.size) > 200
