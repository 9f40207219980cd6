"""A deployed model as an ONNX file: the whole computation, for any runtime."""

import hashlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedadb.core.errors import BadInput, Fault
from fedadb.storage.files import write_atomically
from fedadb.core.stream import Stream
from fedadb.export.card import Card, read_card
from fedadb.export.deployed import Deployed

INPUT, OUTPUT = "images", "probabilities"
OPSET = 18  # of 2022: old enough for any runtime in use
TOLERANCE = 1e-5
BATCHES = (1, 2, 7)  # sizes that the file is checked with; it is traced with another


def require(*packages: str) -> None:
    """Tell now, and not after the data are loaded, if something is not installed."""
    for package in packages:
        try:
            __import__(package)
        except ImportError as error:
            raise BadInput(f"ONNX files need `pip install {' '.join(packages)}`") from error


def write(path: Path, model: Deployed, card: Card) -> None:
    content = _traced(model, card)
    _check(content, model, card, path)
    write_atomically(path, content + _seal(content))


class Onnx:
    """The model of a file, computed by onnxruntime."""

    def __init__(self, path: Path) -> None:
        require("onnxruntime")
        whole = path.read_bytes()
        try:
            self._session = _session(whole)
        except Exception as error:  # onnxruntime has a class for each way to fail
            raise Fault(f"{path} is damaged, or no ONNX file; export it anew") from error
        strings = self._session.get_modelmeta().custom_metadata_map
        if "sha256" in strings and not whole.endswith(_seal(whole[: -len(_seal(b""))])):
            raise Fault(f"{path} was changed since its export, or is damaged; export it anew")
        self.card = read_card(strings, path)

    def probabilities(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        return _run(self._session, images)


def _traced(model: Deployed, card: Card) -> bytes:
    import onnx

    images = torch.zeros(3, *card.shape)
    with _quiet():
        program = torch.onnx.export(
            model,
            (images,),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            input_names=[INPUT],
            output_names=[OUTPUT],
            opset_version=OPSET,
            verbose=False,
        )
    assert program is not None
    proto: Any = program.model_proto
    graph = proto.graph
    parts = (graph.node, graph.input, graph.output, graph.value_info, graph.initializer)
    # Where in whose source code each part comes from is nobody's business.
    for part in [graph, *(part for several in parts for part in several)]:
        del part.metadata_props[:]
    proto.doc_string = "Images in [0, 1], N × C × H × W, to the probabilities of their classes."
    onnx.helper.set_model_props(proto, card.strings())
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says to its developers, and about packages it does not need."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _check(content: bytes, model: Deployed, card: Card, path: Path) -> None:
    """What onnxruntime computes from it is what torch computes."""
    session = _session(content)
    for size in BATCHES:
        rng = Stream(0).at("export", size).generator()
        images = torch.rand(size, *card.shape, generator=rng)
        with torch.inference_mode():
            expected = model(images).numpy()
        apart = float(np.abs(_run(session, images.numpy()) - expected).max())
        if not apart <= TOLERANCE:
            raise Fault(
                f"{path} is not written: its probabilities for {size} random images are up to "
                f"{apart:.1g} from those of the run's model; export to .safetensors"
            )


def _session(content: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong is raised as well
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _run(session: Any, images: NDArray[np.float32]) -> NDArray[np.float32]:
    (found,) = session.run([OUTPUT], {INPUT: images})
    probabilities: NDArray[np.float32] = found
    return probabilities


def _seal(content: bytes) -> bytes:
    """One more entry of metadata, to be put after the content: its SHA-256.

    In protobuf, two messages one after the other are one that has the fields of both.
    """
    digest = hashlib.sha256(content).hexdigest().encode()
    entry = b"\x0a\x06sha256" + b"\x12\x40" + digest  # key: 6 bytes; value: 64
    return b"\x72" + bytes([len(entry)]) + entry  # field 14: metadata_props
