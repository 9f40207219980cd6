"""A short version of `python -m storm hostile`."""

from pathlib import Path

import pytest

from storm.hostile import Hostile
from storm.outcome import Outcome
from storm.tricks import TRICKS

pytestmark = pytest.mark.integration
IN_REAL_TIME = {"half of a reply"}  # the server waits for it, whatever the simulated clock says


def test_a_hostile_site_is_as_if_it_were_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in IN_REAL_TIME:
        monkeypatch.delitem(TRICKS, name)
    outcome = Outcome("hostile", 0, "")
    hostile = Hostile(outcome, tmp_path)
    for _ in range(3):
        hostile.federation("fedavg")
    assert outcome.violations == []
    assert outcome.counts["tricks"] == 9
    assert outcome.counts["ends compared with the absent site's"] > 0
