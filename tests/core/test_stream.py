import numpy as np
import torch

from fedadb.core.stream import Stream


def test_an_address_gives_the_same_numbers_each_time() -> None:
    rng = Stream(3).at("client", 5, 17)
    first = torch.rand(4, generator=rng.generator())
    assert torch.equal(first, torch.rand(4, generator=Stream(3).at("client", 5, 17).generator()))
    assert rng.numpy().random() == rng.numpy().random()


def test_addresses_that_read_alike_differ() -> None:
    near = [Stream(1).at(11), Stream(11).at(1), Stream(1).at("11"), Stream(1).at(1, 1)]
    draws = {float(torch.rand(1, generator=rng.generator())) for rng in near}
    assert len(draws) == len(near)


def test_seeding_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    with Stream(0).seeded():
        a = torch.rand(1)
    with Stream(0).seeded():
        assert torch.equal(a, torch.rand(1))
    assert torch.equal(before, torch.get_rng_state())


def test_numbers_of_numpy_are_numbers() -> None:
    assert Stream(0).at("client", int(np.int64(3))) == Stream(0).at("client", 3)
    assert Stream(0).at(np.int64(3)) == Stream(0).at(3)  # type: ignore[arg-type]
