"""The user's own data in files: an .npz file of arrays, a folder of images, at a site also a table.

A simulation and a site of a real federation read them by the same rules, except for this: in a
simulation the data determine the classes and the inputs' shape, but at a site the federation does.
So a site may lack classes, but it may not have others.
"""

from pathlib import Path

from fedadb.core.columns import Columns
from fedadb.core.data import DataSpec, Examples, Splits
from fedadb.core.errors import BadInput
from fedadb.datasets.arrays import check_examples, is_image_shape, noun, read_npz, to_examples
from fedadb.datasets.folders import class_names, decode_parts, image_files
from fedadb.datasets.images import common_format, format_for
from fedadb.datasets.site_tables import load_site_csv, summarise_table
from fedadb.datasets.splits import check_names, complete_splits, divide, labels_in, to_splits
from fedadb.progress import Progress, no_progress


def load_npz(path: Path, progress: Progress = no_progress) -> Splits:
    """Read arrays x_train, y_train, x_test and y_test, or x and y, as data for a simulation.

    The array names of MedMNIST (train_images, train_labels, …) work too; validation images are
    ignored. An optional array `classes` names the classes.
    """
    return to_splits(path, *_read_arrays(path))


def load_folder(path: Path, progress: Progress = no_progress) -> Splits:
    """Read one subfolder per class, or train/ and test/ with such subfolders, for a simulation."""
    roots = _roots(path)
    names = class_names(roots[0])
    check_names(path, names, at_least=2)
    for root in roots[1:]:
        if differing := set(class_names(root)) ^ set(names):
            raise BadInput(f"{path}: class {min(differing)!r} is in only one of train and test")
    train, test = divide([image_files(root, names) for root in roots], len(names))
    return complete_splits(path, names, *decode_parts(path, [train, test], None, progress))


def load_own(
    data: str,
    spec: DataSpec,
    columns: Columns | None = None,
    progress: Progress = no_progress,
) -> tuple[Examples, Examples]:
    """A site's examples to train on and to test on; a small site may have none to test on.

    Args:
        data: `npz:PATH`, `folder:PATH` or `csv:PATH`, as for a simulation.
        spec: The federation's classes and input shape. Classes are matched by name, or by number
            if an .npz file names none. Image files are converted to the shape.
        columns: What each column of a table becomes.
        progress: Reports the decoding of image files.
    """
    kind, path = _own_path(data, columns)
    if kind == "npz":
        return _load_site_npz(path, spec)
    if columns and kind == "csv":
        return load_site_csv(path, spec, columns)
    return _load_site_folder(path, spec, progress)


def inspect_own(
    data: str, columns: Columns | None = None, progress: Progress = no_progress
) -> None:
    """Raise BadInput unless a site's data can be read, whatever the federation's classes are."""
    kind, path = _own_path(data, columns)
    if kind == "npz":
        parts, names = _read_arrays(path)
        if names is not None:
            check_names(path, names, at_least=1)
            check_examples(path, parts, len(names))
        return
    if kind == "csv":
        summarise_table(path)
        return
    for root in _roots(path):
        names = class_names(root)
        check_names(root, names, at_least=1)
        files, _ = image_files(root, names)
        common_format(files, progress)


def _own_path(data: str, columns: Columns | None) -> tuple[str, Path]:
    kind, _, path = data.partition(":")
    if kind not in ("npz", "folder", "csv") or not path:
        raise BadInput(f"data = {data!r}: must be npz:PATH, folder:PATH or csv:PATH")
    if kind == "csv" and not columns:
        raise BadInput(
            f"data = {data!r}: no site has all rows, so the experiment must say what each column "
            "becomes: deployment.columns, which `fedadb deploy combine` writes"
        )
    return kind, Path(path).expanduser()


def _load_site_npz(path: Path, spec: DataSpec) -> tuple[Examples, Examples]:
    parts, names = _read_arrays(path)
    if names is None:
        names = spec.classes
    check_names(path, names, at_least=1)
    check_examples(path, parts, len(names))
    if (shape := tuple(parts[0].x.shape[1:])) != spec.shape:
        raise BadInput(
            f"{path} has {noun(parts[0].x)} of shape {shape}; the federation's are {spec.shape}"
            + (" (channels, height, width)" if is_image_shape(spec.shape) else "")
        )
    labels = labels_in(spec, path, names)
    return divide([part._replace(y=labels[part.y]) for part in parts], len(spec.classes))


def _load_site_folder(path: Path, spec: DataSpec, progress: Progress) -> tuple[Examples, Examples]:
    if not is_image_shape(spec.shape):
        raise BadInput(f"{path} has images, and the federation's inputs are none; use npz:PATH")
    parts = []
    for root in _roots(path):
        names = class_names(root)
        check_names(root, names, at_least=1)
        part = image_files(root, names)
        parts.append(part._replace(y=labels_in(spec, root, names)[part.y]))
    # As in a simulation, the highest value among the images decides how 16-bit grey is scaled.
    format = format_for(spec.shape, shift=None)
    train, test = decode_parts(path, divide(parts, len(spec.classes)), format, progress)
    return train, test


def _read_arrays(path: Path) -> tuple[list[Examples], tuple[str, ...] | None]:
    """The training and the test examples, or one undivided part; and the class names, if given."""
    stored = read_npz(path)
    if "x" in stored:
        pairs = [("x", "y")]
    elif "train_images" in stored:
        pairs = [(f"{part}_images", f"{part}_labels") for part in ("train", "test")]
    else:
        pairs = [(f"x_{part}", f"y_{part}") for part in ("train", "test")]
    parts = [to_examples(path, stored, x, y) for x, y in pairs]
    if "classes" not in stored:
        return parts, None
    return parts, tuple(str(name) for name in stored["classes"].reshape(-1))


def _roots(path: Path) -> list[Path]:
    """The folders that contain one subfolder per class: train/ and test/, or the folder itself."""
    if not path.is_dir():
        raise BadInput(f"{path} is not a folder" if path.exists() else f"{path} does not exist")
    if not (path / "train").is_dir():
        return [path]
    if not (path / "test").is_dir():
        raise BadInput(f"{path} has train/ but no test/")
    return [path / "train", path / "test"]
