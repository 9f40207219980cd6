"""FedADB's class anchors on the page: the ones that a run kept, as small pictures."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors import SafetensorError, safe_open

from fedadb.core.errors import Fault
from fedadb.storage.run_directory import kept_files

MAX_PIXELS = 64  # per side of a picture


def kept_anchors(directory: Path) -> list[dict[str, Any]]:
    """The anchors of each round whose broadcast the run kept; none if it is not FedADB's."""
    rounds = []
    for t, path in kept_files(directory).items():
        if pictures := _pictures(path):
            rounds.append({"round": t, "pictures": pictures})
    return rounds


def _pictures(path: Path) -> list[dict[str, Any]]:
    """Each anchor in the file as an image, with its class and confidence."""
    try:
        with safe_open(path, framework="np") as file:
            if "anchors/x" not in file.keys():  # noqa: SIM118  # not a mapping
                return []
            x, c, confidence = (file.get_tensor(f"anchors/{n}") for n in ("x", "c", "confidence"))
            if x.ndim != 4 or x.shape[1] not in (1, 3):  # not images
                return []
            low, high = (file.get_tensor(name)[:, None, None] for name in ("low", "high"))
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise Fault(
            f"{path} is damaged ({error}); delete it to show the page without it"
        ) from error
    if x.dtype != np.uint8:  # transmitted as uint8, they are pixels already
        x = (255 * (x - low) / (high - low)).clip(0, 255).astype(np.uint8)
    return [
        {"class": int(k), "confidence": float(f"{p:.4g}"), "image": _data_url(image)}
        for image, k, p in zip(x, c, confidence, strict=True)
    ]


def _data_url(image: np.ndarray) -> str:
    """The image (channels × height × width) as a URL that contains it."""
    picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
    picture.thumbnail((MAX_PIXELS, MAX_PIXELS))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
