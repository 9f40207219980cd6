"""Exported classifiers as ONNX files: the whole computation, for any ONNX runtime."""

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
from fedadb.core.stream import Stream
from fedadb.export.classifier import ImageClassifier, ModelCard, card_from_strings
from fedadb.storage.files import write_atomically

INPUT, OUTPUT = "images", "probabilities"
OPSET = 18  # from 2022, so that any runtime in use supports it
TOLERANCE = 1e-5
CHECKED_SIZES = (1, 2, 7)  # of batches; the model is traced with another size


def require_packages(*packages: str) -> None:
    """Raise BadInput if one of the packages is not installed."""
    for package in packages:
        try:
            __import__(package)
        except ImportError as error:
            raise BadInput(f"ONNX files need `pip install {' '.join(packages)}`") from error


def write_onnx(path: Path, model: ImageClassifier, card: ModelCard) -> None:
    """Write the file, after checking that it computes what the model computes."""
    content = _trace(model, card)
    _check(content, model, card, path)
    write_atomically(path, content + _checksum_entry(content))


class OnnxModel:
    """The model of an ONNX file, computed by onnxruntime."""

    def __init__(self, path: Path) -> None:
        require_packages("onnxruntime")
        content = path.read_bytes()
        try:
            self._session = _session(content)
        except Exception as error:  # onnxruntime raises many kinds for a damaged file
            raise Fault(f"{path} is damaged or not an ONNX file; export it again") from error
        metadata = self._session.get_modelmeta().custom_metadata_map
        original = content[: -len(_checksum_entry(b""))]
        if "sha256" in metadata and not content.endswith(_checksum_entry(original)):
            raise Fault(f"{path} is damaged or was changed after its export; export it again")
        self.card = card_from_strings(metadata, path)

    def probabilities(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        return _run(self._session, images)


def _trace(model: ImageClassifier, card: ModelCard) -> bytes:
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
    # The exporter records paths of source files on this machine: remove them.
    for part in [graph, *(part for several in parts for part in several)]:
        del part.metadata_props[:]
    proto.doc_string = "Images in [0, 1], N × C × H × W, to the probabilities of their classes."
    onnx.helper.set_model_props(proto, card.to_strings())
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's messages, which are for its developers."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _check(content: bytes, model: ImageClassifier, card: ModelCard, path: Path) -> None:
    """Raise a Fault unless onnxruntime computes what torch computes."""
    session = _session(content)
    for size in CHECKED_SIZES:
        rng = Stream(0).at("export", size).generator()
        images = torch.rand(size, *card.shape, generator=rng)
        with torch.inference_mode():
            expected = model(images).numpy()
        error = float(np.abs(_run(session, images.numpy()) - expected).max())
        if not error <= TOLERANCE:  # also if it is nan
            raise Fault(
                f"{path} is not written: its probabilities for {size} random images differ by up "
                f"to {error:.1g} from those of the run's model; export to .safetensors"
            )


def _session(content: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised as exceptions as well
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _run(session: Any, images: NDArray[np.float32]) -> NDArray[np.float32]:
    (output,) = session.run([OUTPUT], {INPUT: images})
    probabilities: NDArray[np.float32] = output
    return probabilities


def _checksum_entry(content: bytes) -> bytes:
    """A metadata entry with the SHA-256 of the content, to be appended to it.

    Two protobuf messages one after the other are a message with the fields of both.
    """
    digest = hashlib.sha256(content).hexdigest().encode()
    entry = b"\x0a\x06sha256" + b"\x12\x40" + digest  # key: 6 bytes; value: 64
    return b"\x72" + bytes([len(entry)]) + entry  # field 14: metadata_props
