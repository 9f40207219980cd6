"""PACS: Li et al., "Deeper, Broader and Artier Domain Generalization", ICCV 2017. Seven classes of
photographs, art paintings, cartoons and sketches: DOMAIN/CLASS/*.jpg.
"""

from pathlib import Path

import torch

from fedadb.core.data import DomainLabels, Splits
from fedadb.progress import Progress
from fedadb.core.transform import Transform
from fedadb.datasets.decode import Look
from fedadb.datasets.folders import Labelled, decoded, labelled
from fedadb.datasets.source import Download, Source
from fedadb.datasets.split import stratified

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
NAMES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
SIDE = 224


def read(folder: Path, progress: Progress) -> Splits:
    """A fixed fifth of each class of each domain is held out to test."""
    held = [labelled(folder / domain, NAMES) for domain in DOMAINS]
    domains = torch.cat([torch.full_like(y, d) for d, (_, y) in enumerate(held)])
    whole = Labelled([path for files, _ in held for path in files], torch.cat([y for _, y in held]))
    # A class of a domain is a stratum of its own.
    parts = stratified(domains * len(NAMES) + whole.y, len(DOMAINS) * len(NAMES))
    look = Look(SIDE, SIDE, "RGB")
    train, test = decoded(folder, [whole.rows(rows) for rows in parts], look, progress)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's
    of_train, of_test = (domains[rows] for rows in parts)
    return Splits(
        train,
        test,
        NAMES,
        Transform(mean, std, zoom=0.7, flip=True),
        DomainLabels(DOMAINS, of_train, of_test),
    )


SOURCE = Source(
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
            md5=None,  # its authors publish none: the number of images decides
            size=174_000_000,
        ),
    ),
    read=read,
    marker="photo",
    unpacked=1_000_000_000,
)
