import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedadb.core.balance import BalancedRows, balanced, cycle


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def counts_of(
    picks: BalancedRows, labels: torch.Tensor, anchors: torch.Tensor, total: int
) -> torch.Tensor:
    of_rows = torch.bincount(labels[picks.rows], minlength=total)
    return of_rows + torch.zeros(total, dtype=torch.long).scatter_add(0, anchors, picks.copies)


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=40),
    per_class=st.integers(0, 3),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    seed=st.integers(0, 3),
)
def test_counts_differ_by_at_most_one_over_the_classes_there_are(
    labels: list[int], per_class: int, sizes: list[int], seed: int
) -> None:
    y = torch.tensor(labels)
    anchors = torch.arange(6).repeat_interleave(per_class)
    there = torch.arange(6) if per_class else torch.tensor(sorted(set(labels)))
    batches = list(balanced(y, anchors, sizes, generator(seed)))
    assert len(batches) == len(sizes)
    for size, picks in zip(sizes, batches, strict=True):
        counts = counts_of(picks, y, anchors, 6)
        assert counts.sum() == size
        assert counts[there].max() - counts[there].min() <= 1
        assert len(picks.copies) == len(anchors)


def test_no_row_comes_again_before_all_of_its_class_have_come() -> None:
    y = torch.tensor([0] * 7 + [1] * 2)
    seen: dict[int, int] = dict.fromkeys(range(9), 0)
    for picks in balanced(y, torch.tensor([2]), [6] * 20, generator()):
        for row in picks.rows.tolist():
            seen[row] += 1
        for rows in (range(7), range(7, 9)):
            counts = [seen[row] for row in rows]
            assert max(counts) - min(counts) <= 1
    assert sum(seen.values()) == 80


def test_a_missing_class_is_filled_by_its_anchors_alone() -> None:
    y, anchors = torch.zeros(50, dtype=torch.long), torch.tensor([1, 1, 2])
    (picks,) = balanced(y, anchors, [30], generator())
    assert len(picks.rows) == 10
    assert picks.copies.tolist() == [5, 5, 10]


def test_an_anchor_of_a_present_class_is_one_more_member_of_it() -> None:
    y, anchors = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1])
    (picks,) = balanced(y, anchors, [8], generator())
    assert sorted(picks.rows.tolist()) == list(range(6))
    assert picks.copies.tolist() == [1, 1]


def test_which_classes_get_one_more_changes() -> None:
    y = torch.arange(4)
    more = {
        tuple(counts_of(p, y, torch.zeros(0, dtype=torch.long), 4).tolist())
        for p in balanced(y, torch.zeros(0, dtype=torch.long), [2] * 50, generator())
    }
    assert len(more) == 6  # every pair of the four classes


def test_a_queue_of_nothing_is_empty() -> None:
    assert len(cycle(torch.arange(3), 0, generator())) == 0
