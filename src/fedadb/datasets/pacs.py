"""PACS: Li et al., "Deeper, Broader and Artier Domain Generalization", ICCV 2017. Seven classes of
photographs, art paintings, cartoons and sketches: DOMAIN/CLASS/*.jpg.
"""

from pathlib import Path

import torch

from fedadb.core.data import DomainLabels, Splits
from fedadb.core.transform import Transform
from fedadb.datasets.arrays import stratified_split
from fedadb.datasets.folders import ImageFiles, decode_parts, image_files
from fedadb.datasets.images import ImageFormat
from fedadb.datasets.source import Download, Source
from fedadb.progress import Progress

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
NAMES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
SIDE = 224


def read_pacs(folder: Path, progress: Progress) -> Splits:
    """A fixed fifth of each class of each domain is for testing."""
    by_domain = [image_files(folder / domain, NAMES) for domain in DOMAINS]
    domains = torch.cat([torch.full_like(y, d) for d, (_, y) in enumerate(by_domain)])
    files = [path for files, _ in by_domain for path in files]
    images = ImageFiles(files, torch.cat([y for _, y in by_domain]))
    # Each class of each domain is split separately.
    strata = domains * len(NAMES) + images.y
    rows = train_rows, test_rows = stratified_split(strata, len(DOMAINS) * len(NAMES))
    format = ImageFormat(SIDE, SIDE, "RGB")
    train, test = decode_parts(folder, [images.rows(r) for r in rows], format, progress)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's
    return Splits(
        train,
        test,
        NAMES,
        Transform(mean, std, zoom=0.7, flip=True),
        DomainLabels(DOMAINS, domains[train_rows], domains[test_rows]),
    )


PACS = Source(
    classes=len(NAMES),
    shape=(3, SIDE, SIDE),
    rows=(7_993, 1_998),
    licence="unstated",
    path="PACS",
    downloads=(
        Download(
            "PACS.zip",
            (
                "https://drive.usercontent.google.com/download"
                "?id=1JFr8f805nMUelQWWmfnJR3y4_SYoN5Pd&export=download&confirm=t",
            ),
            md5=None,  # its authors publish none; `fetch_dataset` counts the images
            size=174_000_000,
        ),
    ),
    read=read_pacs,
    marker="photo",
    unpacked=1_000_000_000,
)
