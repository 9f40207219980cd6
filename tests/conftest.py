import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from fedadb.core.data import DataSpec, Examples, Shard
from fedadb.core.model import Domain, Model, assemble
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.kernels import library
from fedadb.kernels.notice import warn_of_torch

# Grey images of the size that LeNet is made for.
GREY_IMAGES = DataSpec(("a", "b", "c"), (1, 28, 28), Transform((0.5,), (0.5,)))

# No test depends on how fast the machine is.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tests run side by side; threads inside them would only be in each other's way."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def compiled_kernels() -> Path | None:
    """The kernels in the user's own cache, compiled once for all tests; None: torch's are used."""
    with suppress(library.KernelsUnavailable):
        return library.build()
    return None


@pytest.fixture(autouse=True)
def _own_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled_kernels: Path | None
) -> None:
    """What is decoded is kept in the test's own directory; the kernels are those of all tests."""
    cache = tmp_path.with_name(f"{tmp_path.name}-cache")
    (cache / "fedadb").mkdir(parents=True, mode=0o700)
    if compiled_kernels:
        (cache / "fedadb" / "kernels").symlink_to(compiled_kernels.parent)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.fixture(autouse=True)
def _real_data(request: pytest.FixtureRequest) -> None:
    """Skip tests that need real data where there are none."""
    if request.node.get_closest_marker("data"):
        given = os.environ.get("FEDADB_DATA")
        if given is None or not (Path(given) / "medmnist").is_dir():
            pytest.skip("FEDADB_DATA contains no real data")


@pytest.fixture
def needs_kernels(compiled_kernels: Path | None) -> None:
    """Skip the test where the kernels cannot be compiled."""
    if compiled_kernels is None:
        pytest.skip("the kernels cannot be compiled here")


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without a C++ compiler."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    forget_compiler()
    yield
    forget_compiler()


def forget_compiler() -> None:
    """Forget the compiler and the library that this process has found."""
    library.compiler.cache_clear()
    library.options.cache_clear()
    library.name.cache_clear()
    library.library.cache_clear()
    warn_of_torch.cache_clear()


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory."""
    place = tmp_path / "data"
    place.mkdir()
    monkeypatch.setenv("FEDADB_DATA", str(place))
    return place


def toy_shard(rows: int = 24, classes: int = 3, seed: int = 0) -> Shard:
    """Separable 4×4 images: the class decides which column is bright."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % classes
    x = torch.randint(60, (rows, 1, 4, 4), generator=rng, dtype=torch.uint8)
    x[torch.arange(rows), 0, :, y] += 150
    return Shard(Examples(x, y), torch.arange(rows), classes, Transform(mean=(0.5,), std=(0.5,)))


def toy_model(classes: int = 3, seed: int = 0) -> Model:
    """A two-layer network on 4×4 images."""
    from fedadb.algorithms.fedavg import FedAvg

    rng = Stream(seed)
    with rng.at("body").seeded():
        body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 8), torch.nn.ReLU())
    domain = Domain((1, 4, 4), torch.tensor(-1.0), torch.tensor(1.0))
    return assemble(body, FedAvg().heads, domain, classes, rng)
