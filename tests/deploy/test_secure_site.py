"""A site's keys and masked answers: what it refuses, and that no mask covers two vectors."""

import hashlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedadb.core.errors import BadInput
from fedadb.deploy import keys, masked_answers
from fedadb.deploy.doctor import Finding, findings, site_checks
from fedadb.deploy.masked_answers import KEPT, MaskedAnswers
from fedadb.deploy.messages import tensors_from_bytes
from fedadb.deploy.refusals import MASK_USED, NOT_ALLOWED, Refusal
from fedadb.deploy.roster import ROSTER, read_roster
from fedadb.deploy.secure_site import SecureSite
from fedadb.deploy.site import run_site
from fedadb.experiment.config import Experiment
from fedadb.secagg.keys import make_private_key, public_key, sign_key
from fedadb.secagg.masks import EVALUATE, Exchange
from tests.command_line import invoke
from tests.deploy.secure_federation import NAMES, copy_roster, experiment, make_sites

RUN = "00112233445566778899aabbccddeeff"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sites(tmp_path_factory.mktemp("sites"))


@pytest.fixture
def sites(made: Path, tmp_path: Path) -> dict[str, SecureSite]:
    return {name: site(made, tmp_path, name) for name in NAMES}


def site(made: Path, state: Path, name: str, run: str = RUN) -> SecureSite:
    return SecureSite(run, "settings", read_roster(made / name), state / name)


def offers(sites: dict[str, SecureSite]) -> dict[str, Any]:
    return {name: one.offer().model_dump() for name, one in sites.items()}


def word(data: bytes) -> int:
    return int(tensors_from_bytes(data)["masked"].view(torch.int32))


def test_sites_agree_and_their_rows_are_summed(sites: dict[str, SecureSite]) -> None:
    given = offers(sites)
    answers = [one.agree(given, 10 + k, 5) for k, one in enumerate(sites.values())]
    assert len({digest for digest, _ in answers}) == 1
    assert sum(word(data) for _, data in answers) % 2**32 == 33
    again = [one.agree(offers(sites), 10 + k, 5) for k, one in enumerate(sites.values())]
    assert again == answers


def forged(given: dict[str, Any], sites: dict[str, SecureSite]) -> None:
    """A server that puts its own key in a site's place."""
    given["north"]["key"] = "11" * 32


def foreign(given: dict[str, Any], sites: dict[str, SecureSite]) -> None:
    """A key that another site signed."""
    given["north"] = given["west"]


def of_another_run(given: dict[str, Any], sites: dict[str, SecureSite]) -> None:
    north = sites["north"]
    other = SecureSite("ff" * 16, north.settings, north.roster, north.state)
    given["north"] = other.offer().model_dump()


def of_other_settings(given: dict[str, Any], sites: dict[str, SecureSite]) -> None:
    north = sites["north"]
    other = SecureSite(RUN, "other settings", north.roster, north.state / "other")
    given["north"] = other.offer().model_dump()


def copied(given: dict[str, Any], sites: dict[str, SecureSite]) -> None:
    """A site that signs the key of another: their masks would be the same."""
    north, key = sites["north"], given["west"]["key"]
    signature = sign_key(north.roster.own_key, RUN, "north", bytes.fromhex(key), north.settings)
    given["north"] = {"key": key, "signature": signature.hex()}


def old_one_of_its_own(given: dict[str, Any], sites: dict[str, SecureSite]) -> None:
    """A key that the asked site signed once, and whose secret it has lost."""
    east, key = sites["east"], public_key(make_private_key())
    signature = sign_key(east.roster.own_key, RUN, "east", key, east.settings)
    given["east"] = {"key": key.hex(), "signature": signature.hex()}


def missing(given: dict[str, Any], sites: dict[str, SecureSite]) -> None:
    del given["north"]


def unknown(given: dict[str, Any], sites: dict[str, SecureSite]) -> None:
    given["south"] = given["north"]


def not_hexadecimal(given: dict[str, Any], sites: dict[str, SecureSite]) -> None:
    given["north"]["signature"] = "a signature"


def too_short(given: dict[str, Any], sites: dict[str, SecureSite]) -> None:
    given["north"]["key"] = "11"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (forged, "the key of north is not signed by north's public key in this site's roster"),
        (foreign, "the key of north is not signed"),
        (of_another_run, "the key of north is not signed"),
        (of_other_settings, "the key of north is not signed"),
        (copied, "the key of west is also that of another site"),
        (old_one_of_its_own, "the server sent another key than this site's own"),
        (missing, "the server's sites are east, west, and those of this site's roster are east, n"),
        (unknown, "the server's sites are east, north, south, west, and"),
        (not_hexadecimal, "the key of north cannot be read"),
        (too_short, "the key of north cannot be read"),
    ],
)
def test_keys_that_are_not_those_of_the_roster_are_refused(
    change: Callable[..., None], sentence: str, sites: dict[str, SecureSite]
) -> None:
    given = offers(sites)
    change(given, sites)
    with pytest.raises(Refusal, match=sentence):
        sites["east"].agree(given, 10, 5)


def test_a_second_key_of_a_site_is_refused(
    sites: dict[str, SecureSite], made: Path, tmp_path: Path
) -> None:
    sites["east"].agree(offers(sites), 10, 5)
    again = sites | {"north": site(made, tmp_path / "lost", "north")}  # its state was deleted
    with pytest.raises(Refusal, match="north has another key than when the run began"):
        sites["east"].agree(offers(again), 10, 5)


def test_nothing_is_masked_before_keys_and_after_the_end(sites: dict[str, SecureSite]) -> None:
    east, exchange = sites["east"], Exchange(RUN, NAMES, 1, 0, "00", 16, 2)
    words = lambda: np.zeros(2, dtype=np.uint32)  # noqa: E731
    with pytest.raises(Refusal, match="have not exchanged keys in this run"):
        east.agreed()
    given = offers(sites)
    digest = east.agree(given, 10, 5)
    first = east.masked(exchange, words)
    east.end()
    assert east.masked(exchange, words) == first
    assert east.agree(given, 10, 5) == digest  # a restarted server asks again
    with pytest.raises(Refusal, match="has deleted its key of the run") as refused:
        east.masked(exchange._replace(t=2), words)
    assert refused.value.code == NOT_ALLOWED


def test_a_fingerprint_is_the_same_at_all_sites_and_known_by_hand(made: Path) -> None:
    lines = {n: (made / n / keys.SITE_PUBLIC).read_text().strip() for n in NAMES}
    text = json.dumps(lines, sort_keys=True, separators=(",", ":"))
    digits = hashlib.sha256(text.encode()).hexdigest()
    shown = {read_roster(made / name).fingerprint for name in NAMES}
    assert {one.replace(" ", "") for one in shown} == {digits}
    assert [len(group) for group in next(iter(shown)).split()] == [4] * 16
    code, out, err = invoke("deploy", "fingerprint", made / "west")
    printed = "".join((out + err).split())
    assert (code, digits in printed) == (0, True)
    assert "westofthesiteseast,north,west" in printed


def test_a_roster_must_be_complete(tmp_path: Path) -> None:
    made = make_sites(tmp_path / "sites")
    roster = made / "east" / ROSTER
    (roster / "west.pub").unlink()
    with pytest.raises(BadInput, match=r"the public keys of 2 sites, but .* is for 3 to 50"):
        read_roster(made / "east")
    copy_roster(made, "east")
    (roster / "west.pub").write_bytes((roster / "north.pub").read_bytes())
    with pytest.raises(BadInput, match="one public key under two names"):
        read_roster(made / "east")
    keys.make_site_keys(made / "south")
    copy_roster(made, "east")
    (roster / "east.pub").write_bytes((made / "south" / keys.SITE_PUBLIC).read_bytes())
    with pytest.raises(BadInput, match=r"does not have this site's own site\.pub"):
        read_roster(made / "east")
    (roster / "east.pub").write_text("no key")
    with pytest.raises(BadInput, match=r"east\.pub is not a site's public key"):
        read_roster(made / "east")


def test_doctor_checks_the_roster(tmp_path: Path) -> None:
    made = make_sites(tmp_path / "sites")

    def found(e: Experiment) -> dict[str, Finding]:
        return {one.what: one for one in findings(site_checks(made / "east", e, None, None))}

    sentence, ok = found(experiment())["roster"][1:]
    assert ok
    assert sentence.startswith("this is east of east, north, west")
    assert sentence.endswith(read_roster(made / "west").fingerprint)
    (made / "east" / ROSTER / "west.pub").unlink()
    sentence, ok = found(experiment())["roster"][1:]
    assert not ok
    assert "put the site.pub of every site there" in sentence
    assert "roster" not in found(experiment(secure_aggregation=False))


ASKED = st.tuples(
    st.sampled_from([1, 2, 3]),  # round
    st.sampled_from([0, 1]),  # attempt
    st.sampled_from(["00", "01"]),  # what the server sent
    st.sampled_from(["train", EVALUATE]),
    st.booleans(),  # whether the site loses a file before
)


@settings(max_examples=40, deadline=None)
@given(st.lists(ASKED, max_size=12))
def test_in_any_order_of_messages_no_mask_covers_two_vectors(asked: list[Any]) -> None:
    """What a site trains differs whenever it trains again, as on a GPU."""
    trained, sent, rounds = itertools.count(), dict[str, set[bytes]](), dict[Any, set[str]]()
    codes: set[str] = set()
    with TemporaryDirectory() as directory, patch("os.fsync"):
        answers = MaskedAnswers(Path(directory))
        for t, attempt, received, kind, loses in asked:
            exchange = Exchange(RUN, NAMES, t, attempt, received, 16, 1, kind)
            if loses:
                for path in sorted(Path(directory).glob("*.safetensors"))[:1]:
                    path.unlink()
            try:
                answer = answers.answer(exchange, lambda: b"%d" % next(trained))
            except Refusal as refused:
                codes.add(refused.code)
                continue
            sent.setdefault(exchange.digest.hex(), set()).add(answer)
            if kind == "train":
                rounds.setdefault((t, attempt), set()).add(received)
        stored = list(Path(directory).glob("*.safetensors"))
    assert codes <= {MASK_USED}
    assert all(len(of_exchange) == 1 for of_exchange in sent.values())
    assert all(len(of_round) == 1 for of_round in rounds.values())
    assert len(stored) <= 2 * KEPT


def test_an_answer_that_was_not_noted_before_a_crash_still_counts(tmp_path: Path) -> None:
    answers, exchange = MaskedAnswers(tmp_path), Exchange(RUN, NAMES, 1, 0, "00", 16, 1)
    with patch.object(masked_answers, "DIGESTS") as digests:
        digests.dump_json.side_effect = KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt):
            answers.answer(exchange, lambda: b"first")
    assert not answers.answered_round(1)
    assert answers.answer(exchange, lambda: b"second") == b"first"
    assert answers.answered_round(1)
    with pytest.raises(Refusal, match="round 1 was asked for with something else before"):
        answers.answer(exchange._replace(sent="01"), lambda: b"third")


def test_a_site_shows_the_fingerprint_before_it_connects(tmp_path: Path) -> None:
    made, lines = make_sites(tmp_path / "sites"), list[str]()
    keys.make_server_keys(tmp_path / "server", ["localhost"], days=2)
    (made / "east" / keys.CA).write_bytes((tmp_path / "server" / keys.CA).read_bytes())
    e = experiment()
    with pytest.raises(BadInput, match="--server"):
        run_site(made / "east", e, "no address", "npz:data.npz", 1, lines.append)
    assert read_roster(made / "east").fingerprint in lines[-1]
    (made / "east" / ROSTER / "west.pub").unlink()
    with pytest.raises(BadInput, match="the public keys of 2 sites"):
        run_site(made / "east", e, "no address", "npz:data.npz", 1, lines.append)
