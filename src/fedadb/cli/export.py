"""The commands that take a model out of its run, and put it to use."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len, set_cell_size

from fedadb.cli.terminal import complain, look_beside, tell, show_progress
from fedadb.core.errors import Fault


def export(
    run: Annotated[Path, typer.Argument(help="The directory of a finished run.")],
    to: Annotated[
        Path,
        typer.Option(
            help="The file: .safetensors for fedadb and torch, .onnx for any runtime of ONNX."
        ),
    ],
    freeze_statistics: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="Fix what batch normalisation subtracts and divides by to the statistics of N "
            "training images. Needed for models with batch statistics, and only for those.",
        ),
    ] = None,
) -> None:
    """Write a run's classifier to one file that needs nothing else.

    RUN is the directory of a finished run. The file knows the classes' names, the images' shape
    and normalisation, and the experiment.
    """
    from fedadb.export.write import export as write

    look_beside(None)
    frozen = write(run, to, freeze_statistics, show_progress)
    if frozen:
        tell(
            f"Accuracy on the test images: {frozen.before:.4f} with batch statistics, "
            f"{frozen.after:.4f} frozen from {freeze_statistics} training images"
        )
    tell(f"Model: {to} ({to.stat().st_size / 1e6:.1f} MB)")


def predict(
    model: Annotated[Path, typer.Argument(help="A file that `fedadb export` wrote.")],
    images: Annotated[list[Path], typer.Argument(help="Image files, and folders of them.")],
    top: Annotated[int, typer.Option(min=1, metavar="K", help="Show the K likeliest classes.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line for each image.")
    ] = False,
) -> None:
    """Tell the classes of images, by a model that was exported.

    MODEL is a file of `fedadb export`, IMAGES are files and folders of them. They are resized and
    turned grey or coloured as the model needs them. Those that cannot be read are named and left
    out, and the exit code is then 1.
    """
    from fedadb.export.predict import find_images, read_model
    from fedadb.export.predict import predict as look_at

    known = read_model(model)
    files = find_images(images)
    columns = (["file", *map(str, files)], ["class", *known.card.classes])
    widths = [max(cell_len(_shown(name)) for name in column) for column in columns]
    done = 0
    for file, likeliest in look_at(known, files, top, complain):
        if as_json:
            told = [{"class": name, "confidence": p} for name, p in likeliest]
            print(json.dumps({"file": str(file), "top": told}))
        else:
            if not done:
                _show(widths, "file", "class", "confidence")
            for i, (name, p) in enumerate(likeliest):
                _show(widths, "" if i else str(file), name, f"{p:.4f}")
        done += 1
    if done < len(files):
        raise Fault(f"{len(files) - done} of {len(files)} images could not be read")


def _show(widths: Sequence[int], *cells: str) -> None:
    """A row, as soon as it is known, and never wrapped: others may read it line by line."""
    *padded, last = (_shown(cell) for cell in cells)
    columns = [set_cell_size(cell, width) for cell, width in zip(padded, widths, strict=True)]
    print(*columns, last, sep="  ")


def _shown(name: str) -> str:
    """A name without what a terminal would take for more than text."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
