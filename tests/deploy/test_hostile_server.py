"""A hostile server against secure aggregation: what it asks one site alone tells nothing."""

from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, Message

from fedadb.deploy.masked_answers import FAILED as FAILURES
from fedadb.deploy.masked_answers import MAX_FAILURES
from fedadb.deploy.messages import table_in, tensors_in
from fedadb.deploy.refusals import FAILED, NOT_ALLOWED
from fedadb.experiment.config import Experiment
from fedadb.experiment.stored import spec_to_table
from tests.deploy.asked_site import AskedSite, write_data
from tests.deploy.secure_federation import NAMES, config, experiment, make_sites

pytestmark = pytest.mark.integration
FEDAVG = experiment()


class SecureAskedSite(AskedSite):
    """A site with a roster, which its server asks alone."""

    @property
    def context(self) -> Context:
        made = super().context
        made.node_config |= config(self.directory.parent, self.directory.name)
        return made

    def table(self, kind: str, t: int = 1, **changes: Any) -> dict[str, Any]:
        round = {"round": [t, FEDAVG.rounds, 3, 45]} if kind == "train" else {}
        return super().table(kind, t, **round | changes)


@pytest.fixture
def sites(tmp_path: Path) -> dict[str, SecureAskedSite]:
    return ask_sites(make_sites(tmp_path / "sites"))


def ask_sites(directory: Path, e: Experiment = FEDAVG) -> dict[str, SecureAskedSite]:
    return {name: SecureAskedSite(directory / name, e) for name in NAMES}


def agree(sites: dict[str, SecureAskedSite], **changes: Any) -> dict[str, Message]:
    """The sites' answers to the keys of all."""
    keys = {n: table_in(one.ask("query.key", **changes).content) for n, one in sites.items()}
    return {n: one.ask("query.roster", keys=keys, **changes) for n, one in sites.items()}


def masked(reply: Message) -> torch.Tensor:
    return tensors_in(reply.content)["masked"].view(torch.int32)


def test_no_number_of_all_rows_tells_how_many_a_site_has(
    sites: dict[str, SecureAskedSite],
) -> None:
    """East has 10 rows, and masks its reply whether the server says that all have 5 or 50."""
    agree(sites)
    for attempt, rows in enumerate((5, 9, 10, 11, 50)):
        reply = sites["east"].ask("train", round=[1, 3, 3, rows], attempt=attempt)
        assert not reply.has_error()


def test_the_sum_is_right_whatever_the_server_says_about_the_rows(
    sites: dict[str, SecureAskedSite],
) -> None:
    agree(sites)
    for rows in (2, 45):
        round = [1, 3, 3, rows]
        replies = [
            masked(one.ask("train", round=round, attempt=rows, client=k))
            for k, one in enumerate(sites.values())
        ]
        assert int(torch.stack(replies).long().sum(0)[-1]) % 2**32 == 45


def test_replies_that_fail_are_few(sites: dict[str, SecureAskedSite]) -> None:
    """A server could tell from each failure whether one site's update is longer than something."""
    agree(sites)
    east = sites["east"]
    wild = {name: 1e18 * tensor for name, tensor in east.tensors().items()}
    codes = [east.refusal("train", wild, attempt=a).code for a in range(MAX_FAILURES + 2)]
    assert codes == [FAILED] * MAX_FAILURES + [NOT_ALLOWED] * 2
    assert east.refusal("train").code == NOT_ALLOWED
    (counted,) = east.directory.glob(f"state/*/secagg/{FAILURES}")
    counted.unlink()  # as the site's log says
    assert not east.ask("train").has_error()


def test_no_list_of_classes_tells_which_ones_a_site_has(
    sites: dict[str, SecureAskedSite],
) -> None:
    """East lacks the last class, and refuses all lists but the first one that it was told."""
    east = sites["east"]
    write_data(east.data, rows=30, classes=9)
    data = spec_to_table(east.spec)
    nine, eight = (data | {"classes": data["classes"][:n]} for n in (9, 8))
    assert not east.ask("query").has_error()
    said = [east.refusal("query", data=one) for one in (nine, eight)]
    assert said[0] == said[1]
    assert "the server stated another form of the data" in said[0].sentence
    assert not agree(sites)["east"].has_error()


def sum_of_all(
    sites: dict[str, SecureAskedSite], t: int, last_used: int, attempt: int
) -> tuple[int, torch.Tensor]:
    """The rows and the updates in the sum of what all sites answer to the same order."""
    total = sum(
        masked(one.ask("train", t=t, last_used=last_used, attempt=attempt, client=k)).long()
        for k, one in enumerate(sites.values())
    )
    assert isinstance(total, torch.Tensor)
    numbers = sum(tensor.numel() for tensor in sites["east"].tensors().values())
    return int(total[numbers]) % 2**32, total[:numbers]


def test_a_site_that_trains_a_round_alone_cannot_be_singled_out_by_its_memory(
    tmp_path: Path,
) -> None:
    """MOON remembers the last local model. East alone is asked for round 1 with another model."""
    sites = ask_sites(make_sites(tmp_path / "sites"), experiment("moon"))
    agree(sites)
    sum_of_all(sites, 1, 0, attempt=0)
    rows, before = sum_of_all(sites, 2, 1, attempt=0)
    assert rows == 45
    again, same = sum_of_all(sites, 2, 1, attempt=1)
    assert again == 45
    assert torch.equal(same % 2**32, before % 2**32)
    other = {name: 0.5 * tensor for name, tensor in sites["east"].tensors().items()}
    assert not sites["east"].ask("train", other, attempt=2).has_error()
    rows, _ = sum_of_all(sites, 2, 1, attempt=3)
    assert rows != 45  # masks do not cancel


def test_a_site_has_one_number_in_all_runs(sites: dict[str, SecureAskedSite]) -> None:
    """Another number would change the order of its rows, and nothing at the other sites."""
    first, second = "aa" * 8, "bb" * 8
    for run in (first, second):
        agree(sites, run=run)
    assert not sites["west"].ask("train", run=first, client=2).has_error()
    assert sites["west"].refusal("train", run=second, client=1).code == NOT_ALLOWED
