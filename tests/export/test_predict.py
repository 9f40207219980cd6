"""What is made of image files before a model sees them, and how its answers are told."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fedadb import datasets
from fedadb.core.errors import BadInput
from fedadb.export.card import Card
from fedadb.export.predict import AT_ONCE, find_images, predict
from tests.export.conftest import Fedadb, Files


class Brightest:
    """A model of 2×3 images that says which pixel of the first channel is the brightest."""

    def __init__(self, channels: int) -> None:
        several = (0.5,) * channels
        self.card = Card("", tuple("abcdef"), (channels, 2, 3), several, several)
        self.seen: list[NDArray[np.float32]] = []

    def probabilities(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        self.seen.append(images)
        rows = images[:, 0].reshape(len(images), -1)
        found: NDArray[np.float32] = rows / rows.sum(1, keepdims=True)
        return found


GREY = np.array([[0, 10, 20], [250, 40, 50]], np.uint8)
COLOUR = np.stack([GREY, GREY // 2, 255 - GREY], axis=2)


def silent(message: str) -> None:
    raise AssertionError(message)


def test_pixels_reach_the_model_as_they_are(tmp_path: Path) -> None:
    Image.fromarray(GREY).save(tmp_path / "grey.png")
    Image.fromarray(COLOUR).save(tmp_path / "colour.bmp")
    files = [tmp_path / "grey.png", tmp_path / "colour.bmp"]
    one, three = Brightest(1), Brightest(3)
    first, _ = predict(one, files, 2, silent)
    assert len(list(predict(three, files, 2, silent))) == 2
    assert first.file == files[0]
    assert [name for name, _ in first.top] == ["d", "f"]
    assert first.top[0][1] == pytest.approx(250 / 370)
    (of_one,), (of_three,) = one.seen, three.seen
    assert of_one.dtype == np.float32
    assert of_one.shape == (2, 1, 2, 3)
    np.testing.assert_array_equal(of_one[0, 0], GREY / np.float32(255))
    np.testing.assert_array_equal(of_three[0], np.stack([GREY] * 3) / np.float32(255))
    np.testing.assert_array_equal(of_three[1], COLOUR.transpose(2, 0, 1) / np.float32(255))


def test_other_sizes_and_depths_are_told_once(tmp_path: Path) -> None:
    for name in "ab":
        Image.fromarray(GREY).resize((6, 4), Image.Resampling.NEAREST).save(
            tmp_path / f"{name}.png"
        )
        Image.fromarray(GREY.astype(np.uint16) * 256).save(tmp_path / f"{name}16.png")
    model, told = Brightest(1), list[str]()
    found = list(predict(model, find_images([tmp_path]), 1, told.append))
    assert [prediction.top[0][0] for prediction in found] == ["d"] * 4
    assert told == [
        f"{tmp_path / 'a.png'} is 6×4; what is not 3×2 is resized",
        f"{tmp_path / 'a16.png'} has 16 bits a pixel, of which the upper 8 are seen",
    ]
    np.testing.assert_array_equal(model.seen[0][1, 0], GREY / np.float32(255))


def test_many_images_go_in_batches_and_come_in_order(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.png" for i in range(2 * AT_ONCE + 5)]
    for i, file in enumerate(files):
        bright = np.zeros(6, np.uint8)
        bright[i % 6] = 255
        Image.fromarray(bright.reshape(2, 3)).save(file)
    model = Brightest(1)
    found = list(predict(model, files, 1, silent))
    assert [len(batch) for batch in model.seen] == [AT_ONCE, AT_ONCE, 5]
    assert [f.file for f in found] == files
    assert [f.top for f in found] == [[("abcdef"[i % 6], 1.0)] for i in range(len(files))]


def test_what_cannot_be_read_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    Image.fromarray(GREY).save(tmp_path / "b.png")
    Image.fromarray(GREY.astype(np.float32)).save(tmp_path / "c.tiff")
    whole = (tmp_path / "b.png").read_bytes()
    (tmp_path / "d.png").write_bytes(whole[:50])
    told: list[str] = []
    found = list(predict(Brightest(1), find_images([tmp_path]), 1, told.append))
    assert [f.file.name for f in found] == ["b.png"]
    assert [message.split(" ")[0] for message in told] == [
        str(tmp_path / name) for name in ("a.png", "c.tiff", "d.png")
    ]


def test_a_batch_without_any_readable_image(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    model = Brightest(1)
    assert list(predict(model, [tmp_path / "a.png"], 1, lambda message: None)) == []
    assert model.seen == []


def test_folders_are_walked(tmp_path: Path) -> None:
    for name in ("b/2.PNG", "b/1.jpg", "a.webp", "b/c/3.tif", ".hidden.png", "notes.txt", "z.pdf"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "odd").touch()
    found = find_images([tmp_path / "odd", tmp_path / "in"])  # what is named is looked at
    names = [str(path.relative_to(tmp_path)) for path in found]
    assert names == ["odd", "in/a.webp", "in/b/1.jpg", "in/b/2.PNG", "in/b/c/3.tif"]
    with pytest.raises(BadInput, match="nowhere does not exist"):
        find_images([tmp_path / "odd", tmp_path / "nowhere"])


def test_channels_that_no_image_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="the model takes 4 channels, and image files have 1 or 3"):
        list(predict(Brightest(4), [], 1, silent))


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Five test images of digits."""
    place = tmp_path / "scans"
    place.mkdir()
    for i, image in enumerate(datasets.load("digits").test.x[:5]):
        Image.fromarray(image[0].numpy()).save(place / f"{i}.png")
    return place


@pytest.mark.integration
def test_both_formats_tell_the_same_as_a_table_and_as_json(
    two_heads: Files, scans: Path, fedadb: Fedadb
) -> None:
    told = []
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
        told.append(
            {(o["file"], of["class"]): of["confidence"] for o in objects for of in o["top"]}
        )
    assert told[0] == pytest.approx(told[1], abs=1e-5)


@pytest.mark.integration
def test_the_program_in_the_docs(
    two_heads: Files,
    scans: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fedadb: Fedadb,
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
def test_names_are_shown_as_text_and_failures_end_in_exit_1(
    two_heads: Files, scans: Path, fedadb: Fedadb
) -> None:
    (scans / "0.png").rename(scans / "红\x1b[2J\udcff.png")
    (scans / "1.png").write_bytes(b"no image")
    code, out, err = fedadb("predict", two_heads.safetensors, scans, "--top", 2)
    assert code == 1
    complaint, end = err.splitlines()
    assert complaint == f"fedadb: {scans / '1.png'} is not an image, or damaged: move it away"
    assert end == "fedadb: 1 of 5 images could not be read"
    assert len(out.splitlines()) == 1 + 2 * 4
    assert str(scans / r"红\x1b[2J\udcff.png") in out
    assert "\x1b" not in out


@pytest.mark.integration
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["EMPTY"], "has no images in it, nor in its folders"),
        (["SCANS", "nowhere.png"], "nowhere.png does not exist"),
        (["SCANS", "--top", "11"], "--top 11: the model knows 10 classes"),
    ],
)
def test_wrong_predictions_are_one_sentence_and_exit_2(
    words: list[str],
    message: str,
    two_heads: Files,
    scans: Path,
    tmp_path: Path,
    fedadb: Fedadb,
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"EMPTY": tmp_path / "empty", "SCANS": scans}
    code, out, err = fedadb("predict", two_heads.safetensors, *(places.get(w, w) for w in words))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
