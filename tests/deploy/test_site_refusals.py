"""What the server learns when a site refuses a request."""

import pytest

from fedadb.core.errors import BadInput
from fedadb.deploy import refusals
from fedadb.deploy.refusals import Refusal, parse, to_reason


@pytest.mark.parametrize("code", sorted(refusals.SENTENCES))
def test_the_code_travels_and_the_sentence_stays(code: str) -> None:
    error = Refusal(code, "'Jane Doe 1961.png' is damaged")
    assert "Jane Doe" in str(error)
    assert parse(to_reason(error)) == (code, refusals.SENTENCES[code])


def test_a_sentence_without_data_travels() -> None:
    error = Refusal(refusals.OTHER_EXPERIMENT, "rounds is 3 there and 7 here", travels=True)
    assert parse(to_reason(error)) == (refusals.OTHER_EXPERIMENT, "rounds is 3 there and 7 here")


@pytest.mark.parametrize("kind", [BadInput, OSError, RuntimeError])
def test_of_any_other_error_only_the_class_travels(kind: type[Exception]) -> None:
    code, sentence = parse(to_reason(kind("images/Jane Doe 1961.png cannot be read")))
    assert code == refusals.FAILED
    assert sentence == f"the site failed; its log says why ({kind.__name__})"


@pytest.mark.parametrize("reason", ["", "boom", "fedadb:unheard-of: x", "fedadb:no-data", "x" * 9])
def test_any_other_reason_is_a_failure(reason: str) -> None:
    assert parse(reason) == (refusals.FAILED, reason)


def test_waiting_mends_a_failure_and_used_masks_only() -> None:
    mended = frozenset(refusals.SENTENCES) - refusals.FINAL
    assert mended == {refusals.FAILED, refusals.MASK_USED}
