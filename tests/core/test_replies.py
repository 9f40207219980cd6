"""What a server sums and averages of a round's replies."""

import pytest
import torch
from torch import Tensor

from fedadb.core.replies import Mean, Replies, Reply, Sum, average, expected_rows
from fedadb.core.vector import Vector, Weights
from tests.algorithms.scalar import close, reply, vector

ROUND = [reply(1, 0, 8), reply(3, 4, 0)]  # weighted mean (3, 2), uniform mean (2, 4)


def stream(replies: list[Reply], rows: list[int] | None = None) -> Replies[Reply]:
    """The replies as `aggregate` receives them; `rows` if more clients were expected to reply."""
    return Replies(iter(replies), rows or [int(one.examples) for one in replies])


# sums


def test_a_sum_weighs_its_terms_in_order() -> None:
    total: Sum[Vector] = Sum()
    total.add(0.25, vector(0, 0, 0))
    total.add(0.75, vector(4, 4, 4))
    assert total.total.flat.tolist() == [3, 3, 3]


def test_a_sum_of_tensors() -> None:
    total: Sum[Tensor] = Sum()
    for a, value in ((2.0, 3.0), (-1.0, 4.0), (0.5, 1.0)):
        total.add(a, torch.tensor(value))
    assert total.total.item() == 2.5


def test_a_sum_adds_as_a_loop_would_to_the_bit() -> None:
    rng = torch.Generator().manual_seed(0)
    terms = [(k / 7, torch.randn(50, generator=rng)) for k in range(1, 6)]
    vectors: Sum[Vector] = Sum()
    tensors: Sum[Tensor] = Sum()
    expected = terms[0][0] * terms[0][1]
    for a, values in terms:
        vectors.add(a, vector(*values.tolist()))
        tensors.add(a, values)
    for a, values in terms[1:]:
        expected = expected + a * values
    assert torch.equal(tensors.total, expected)
    torch.testing.assert_close(vectors.total.flat, expected)


def test_a_sum_changes_no_term() -> None:
    first, second = vector(1, 2), vector(3, 4)
    total: Sum[Vector] = Sum()
    total.add(1.0, first)
    total.add(1.0, second)
    assert total.total.flat.tolist() == [4, 6]
    assert first.flat.tolist() == [1, 2]
    assert second.flat.tolist() == [3, 4]


def test_a_sum_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="the sum has no terms"):
        _ = Sum[Vector]().total


# means


@pytest.mark.parametrize(("weighted", "expected"), [(True, (3, 2)), (False, (2, 4))])
def test_the_average_of_a_list_and_of_a_stream(
    weighted: bool, expected: tuple[float, float]
) -> None:
    for replies in (ROUND, tuple(ROUND), stream(ROUND)):
        close(average(replies, weighted).flat, *expected)


def test_a_list_and_a_stream_have_the_same_average_to_the_bit() -> None:
    rng = torch.Generator().manual_seed(0)
    replies = [reply(n, *torch.randn(50, generator=rng).tolist()) for n in (3, 5, 9)]
    assert torch.equal(average(replies).flat, average(stream(replies)).flat)


def test_several_means_in_one_pass() -> None:
    replies = stream(ROUND)
    weights, lengths = Mean[Vector](replies), Mean[Tensor](replies, weighted=False)
    for one in replies:
        weights.add(one, one.w)
        lengths.add(one, one.w.norm())
    close(weights.value.flat, 3, 2)
    assert lengths.value.item() == 6


@pytest.mark.parametrize(("weighted", "expected"), [(True, (3, 2)), (False, (2, 4))])
def test_replies_that_are_dropped_on_the_way_do_not_count(
    weighted: bool, expected: tuple[float, float]
) -> None:
    """A client with 6 rows was expected too; p_k = n_k / 4, not n_k / 10."""
    close(average(stream(ROUND, rows=[1, 6, 3]), weighted).flat, *expected)


def test_a_mean_without_any_reply_is_refused() -> None:
    with pytest.raises(ValueError, match="the sum has no terms"):
        average(stream([], rows=[4, 2]))


# streams


def test_a_stream_says_which_rows_to_expect_before_it_is_read() -> None:
    replies = stream(ROUND, rows=[1, 6, 3])
    assert list(expected_rows(replies)) == [1, 6, 3]
    assert list(replies) == ROUND
    assert list(expected_rows(ROUND)) == [1, 3]


def test_a_stream_can_be_read_once() -> None:
    replies = stream(ROUND)
    average(replies)
    with pytest.raises(TypeError, match=r"can be read once; list\(replies\) keeps them"):
        average(replies)


def test_a_stream_that_was_read_in_part_is_not_read_from_its_middle() -> None:
    replies = stream(ROUND)
    next(iter(replies))
    with pytest.raises(TypeError, match="can be read once"):
        list(replies)


def test_a_plain_generator_is_refused() -> None:
    """It does not say how many rows to expect."""
    with pytest.raises(TypeError, match="needs the replies that `aggregate` receives, or a list"):
        average(one for one in ROUND)


def test_a_reply_is_released_when_the_next_one_is_read() -> None:
    alive = 0

    class Counted(Vector):
        __slots__ = ()

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    highest = 0

    def arrive() -> Reply:
        nonlocal alive, highest
        alive += 1
        highest = max(highest, alive)
        w = vector(1, 2)
        return Reply(Weights(Counted(w.flat, w.layout)), torch.tensor(1))

    average(Replies((arrive() for _ in range(10)), [1] * 10))
    assert highest <= 2


# one reply


def test_a_reply_has_the_weights_of_its_upload() -> None:
    before = reply(3, 1, 2)
    after = before.with_weights(vector(5, 6))
    assert after.w.flat.tolist() == [5, 6]
    assert after.upload.w is after.w
    assert int(after.examples) == 3
    assert before.w.flat.tolist() == [1, 2]
