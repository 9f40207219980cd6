"""The commands `fedadb export` and `fedadb predict`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len, set_cell_size

from fedadb.cli.terminal import (
    CodeOption,
    allow_imports_from,
    show_error,
    show_message,
    show_progress,
)
from fedadb.core.errors import Fault


def export(
    run: Annotated[Path, typer.Argument(help="The directory of a finished run.")],
    to: Annotated[
        Path,
        typer.Option(
            help="The file to write: .safetensors for fedadb and torch, .onnx for any ONNX runtime."
        ),
    ],
    freeze_statistics: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="Freeze the mean and variance of batch normalisation, computed from N training "
            "images. Required for models with batch normalisation, and only for them.",
        ),
    ] = None,
    code: CodeOption = None,
) -> None:
    """Write the classifier of a run to one self-contained file.

    RUN is the directory of a finished run. The file also contains the class names, the shape and
    normalisation of the images, and the experiment.
    """
    from fedadb.export.export_run import export_run

    if code:
        allow_imports_from(code)
    frozen = export_run(run, to, freeze_statistics, show_progress)
    if frozen:
        show_message(
            f"Accuracy on the test images: {frozen.before:.4f} with batch statistics, "
            f"{frozen.after:.4f} with statistics frozen from {freeze_statistics} training images"
        )
    show_message(f"Model: {to} ({to.stat().st_size / 1e6:.1f} MB)")


def predict(
    model: Annotated[Path, typer.Argument(help="A file that `fedadb export` wrote.")],
    images: Annotated[list[Path], typer.Argument(help="Image files, and folders of images.")],
    top: Annotated[
        int, typer.Option(min=1, metavar="K", help="Show the K most likely classes.")
    ] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per image, one per line.")
    ] = False,
) -> None:
    """Classify images with an exported model.

    MODEL is a file of `fedadb export`; IMAGES are files, and folders with images. Images are
    resized and converted to grey or colour as the model requires. An image that cannot be read is
    reported and skipped; the exit code is then 1.
    """
    from fedadb.export.predict import find_images, predict_images, read_model

    exported = read_model(model)
    files = find_images(images)
    columns = (["file", *map(str, files)], ["class", *exported.card.classes])
    widths = [max(cell_len(_printable(name)) for name in column) for column in columns]
    done = 0
    for file, likeliest in predict_images(exported, files, top, show_error):
        if as_json:
            classes = [{"class": name, "confidence": p} for name, p in likeliest]
            print(json.dumps({"file": str(file), "top": classes}))
        else:
            if not done:
                _print_row(widths, "file", "class", "confidence")
            for i, (name, p) in enumerate(likeliest):
                _print_row(widths, "" if i else str(file), name, f"{p:.4f}")
        done += 1
    if done < len(files):
        raise Fault(f"{len(files) - done} of {len(files)} images could not be read")


def _print_row(widths: Sequence[int], *cells: str) -> None:
    """Print a row at once and without wrapping, because other programs may read the lines."""
    *padded, last = (_printable(cell) for cell in cells)
    columns = [set_cell_size(cell, width) for cell, width in zip(padded, widths, strict=True)]
    print(*columns, last, sep="  ")


def _printable(name: str) -> str:
    """The name with control characters escaped, which a terminal would interpret."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
