"""Prediction: how image files become the model's inputs, and how results are printed."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fedadb import datasets
from fedadb.core.errors import BadInput
from fedadb.export.classifier import ModelCard
from fedadb.export.predict import BATCH_SIZE, find_images, predict_images
from tests.export.conftest import Command, ExportedFiles

# One worker makes the exported files for all tests.
pytestmark = pytest.mark.xdist_group("export")


class BrightestPixel:
    """A model of 2×3 images: the class is the brightest pixel of the first channel."""

    def __init__(self, channels: int) -> None:
        several = (0.5,) * channels
        self.card = ModelCard("", tuple("abcdef"), (channels, 2, 3), several, several)
        self.batches: list[NDArray[np.float32]] = []

    def probabilities(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        self.batches.append(images)
        rows = images[:, 0].reshape(len(images), -1)
        shares: NDArray[np.float32] = rows / rows.sum(1, keepdims=True)
        return shares


GREY = np.array([[0, 10, 20], [250, 40, 50]], np.uint8)
COLOUR = np.stack([GREY, GREY // 2, 255 - GREY], axis=2)


def no_warnings(message: str) -> None:
    raise AssertionError(message)


def test_the_model_receives_the_pixels_unchanged(tmp_path: Path) -> None:
    Image.fromarray(GREY).save(tmp_path / "grey.png")
    Image.fromarray(COLOUR).save(tmp_path / "colour.bmp")
    files = [tmp_path / "grey.png", tmp_path / "colour.bmp"]
    one, three = BrightestPixel(1), BrightestPixel(3)
    first, _ = predict_images(one, files, 2, no_warnings)
    assert len(list(predict_images(three, files, 2, no_warnings))) == 2
    assert first.file == files[0]
    assert [name for name, _ in first.top] == ["d", "f"]
    assert first.top[0][1] == pytest.approx(250 / 370)
    (of_one,), (of_three,) = one.batches, three.batches
    assert of_one.dtype == np.float32
    assert of_one.shape == (2, 1, 2, 3)
    np.testing.assert_array_equal(of_one[0, 0], GREY / np.float32(255))
    np.testing.assert_array_equal(of_three[0], np.stack([GREY] * 3) / np.float32(255))
    np.testing.assert_array_equal(of_three[1], COLOUR.transpose(2, 0, 1) / np.float32(255))


def test_conversions_are_warned_of_once(tmp_path: Path) -> None:
    for name in "ab":
        Image.fromarray(GREY).resize((6, 4), Image.Resampling.NEAREST).save(
            tmp_path / f"{name}.png"
        )
        Image.fromarray(GREY.astype(np.uint16) * 256).save(tmp_path / f"{name}16.png")
    model, warnings = BrightestPixel(1), list[str]()
    predictions = list(predict_images(model, find_images([tmp_path]), 1, warnings.append))
    assert [prediction.top[0][0] for prediction in predictions] == ["d"] * 4
    assert warnings == [
        f"{tmp_path / 'a.png'} is 6×4; images are resized to 3×2",
        f"{tmp_path / 'a16.png'} has 16 bits per pixel; only the upper 8 are used",
    ]
    np.testing.assert_array_equal(model.batches[0][1, 0], GREY / np.float32(255))


def test_many_images_are_predicted_in_batches_and_in_order(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.png" for i in range(2 * BATCH_SIZE + 5)]
    for i, file in enumerate(files):
        bright = np.zeros(6, np.uint8)
        bright[i % 6] = 255
        Image.fromarray(bright.reshape(2, 3)).save(file)
    model = BrightestPixel(1)
    predictions = list(predict_images(model, files, 1, no_warnings))
    assert [len(batch) for batch in model.batches] == [BATCH_SIZE, BATCH_SIZE, 5]
    assert [p.file for p in predictions] == files
    assert [p.top for p in predictions] == [[("abcdef"[i % 6], 1.0)] for i in range(len(files))]


def test_images_that_cannot_be_read_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    Image.fromarray(GREY).save(tmp_path / "b.png")
    Image.fromarray(GREY.astype(np.float32)).save(tmp_path / "c.tiff")
    content = (tmp_path / "b.png").read_bytes()
    (tmp_path / "d.png").write_bytes(content[:50])
    warnings: list[str] = []
    predictions = list(
        predict_images(BrightestPixel(1), find_images([tmp_path]), 1, warnings.append)
    )
    assert [p.file.name for p in predictions] == ["b.png"]
    assert [message.split(" ")[0] for message in warnings] == [
        str(tmp_path / name) for name in ("a.png", "c.tiff", "d.png")
    ]


def test_a_batch_may_have_no_readable_image(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    model = BrightestPixel(1)
    assert list(predict_images(model, [tmp_path / "a.png"], 1, lambda message: None)) == []
    assert model.batches == []


def test_folders_are_searched_recursively(tmp_path: Path) -> None:
    for name in ("b/2.PNG", "b/1.jpg", "a.webp", "b/c/3.tif", ".hidden.png", "notes.txt", "z.pdf"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "odd").touch()
    found = find_images([tmp_path / "odd", tmp_path / "in"])  # a named file needs no suffix
    names = [str(path.relative_to(tmp_path)) for path in found]
    assert names == ["odd", "in/a.webp", "in/b/1.jpg", "in/b/2.PNG", "in/b/c/3.tif"]
    with pytest.raises(BadInput, match="nowhere does not exist"):
        find_images([tmp_path / "odd", tmp_path / "nowhere"])


def test_a_model_with_four_channels_takes_no_image_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="the model takes 4 channels, but image files have 1 or 3"):
        list(predict_images(BrightestPixel(4), [], 1, no_warnings))


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Five test images of digits."""
    folder = tmp_path / "scans"
    folder.mkdir()
    for i, image in enumerate(datasets.load("digits").test.x[:5]):
        Image.fromarray(image[0].numpy()).save(folder / f"{i}.png")
    return folder


@pytest.mark.integration
def test_both_formats_predict_the_same_as_table_and_as_json(
    two_heads: ExportedFiles, scans: Path, fedadb: Command
) -> None:
    confidences = []
    for model in (two_heads.safetensors, two_heads.onnx):
        code, table, err = fedadb("predict", model, scans)
        assert (code, err) == (0, "")
        code, lines, err = fedadb("predict", model, scans, "--json", "--top", 10)
        assert (code, err) == (0, "")
        objects = [json.loads(line) for line in lines.splitlines()]
        assert [o["file"] for o in objects] == [str(scans / f"{i}.png") for i in range(5)]
        for o in objects:
            shares = [of["confidence"] for of in o["top"]]
            assert shares == sorted(shares, reverse=True)
            assert sum(shares) == pytest.approx(1)
        header, *rows = (line.split() for line in table.splitlines())
        assert header == ["file", "class", "confidence"]
        assert rows == [
            [o["file"], o["top"][0]["class"], f"{o['top'][0]['confidence']:.4f}"] for o in objects
        ]
        confidences.append(
            {(o["file"], of["class"]): of["confidence"] for o in objects for of in o["top"]}
        )
    assert confidences[0] == pytest.approx(confidences[1], abs=1e-5)


@pytest.mark.integration
def test_the_program_in_the_docs_runs(
    two_heads: ExportedFiles,
    scans: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fedadb: Command,
) -> None:
    page = Path(__file__).parents[2] / "docs" / "using-models.md"
    (program,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    monkeypatch.chdir(scans.parent)
    Path("digits.onnx").write_bytes(two_heads.onnx.read_bytes())
    Path("scans/0.png").rename("scans/000.png")
    exec(compile(program, page.name, "exec"), {})
    shown = capsys.readouterr().out.strip()
    _, out, _ = fedadb("predict", "digits.onnx", "scans/000.png")
    assert out.splitlines()[1].split()[1] == shown


@pytest.mark.integration
def test_names_are_escaped_and_skipped_images_give_exit_1(
    two_heads: ExportedFiles, scans: Path, fedadb: Command
) -> None:
    (scans / "0.png").rename(scans / "红\x1b[2J\udcff.png")
    (scans / "1.png").write_bytes(b"no image")
    code, out, err = fedadb("predict", two_heads.safetensors, scans, "--top", 2)
    assert code == 1
    warning, end = err.splitlines()
    assert warning == f"fedadb: {scans / '1.png'} is damaged or not an image; remove it"
    assert end == "fedadb: 1 of 5 images could not be read"
    assert len(out.splitlines()) == 1 + 2 * 4
    assert str(scans / r"红\x1b[2J\udcff.png") in out
    assert "\x1b" not in out


@pytest.mark.integration
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["EMPTY"], "and its subfolders contain no images"),
        (["SCANS", "nowhere.png"], "nowhere.png does not exist"),
        (["SCANS", "--top", "11"], "--top 11: the model has 10 classes"),
    ],
)
def test_wrong_arguments_of_predict_are_one_sentence_and_exit_2(
    arguments: list[str],
    message: str,
    two_heads: ExportedFiles,
    scans: Path,
    tmp_path: Path,
    fedadb: Command,
) -> None:
    (tmp_path / "empty").mkdir()
    paths = {"EMPTY": tmp_path / "empty", "SCANS": scans}
    code, out, err = fedadb("predict", two_heads.safetensors, *(paths.get(a, a) for a in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
