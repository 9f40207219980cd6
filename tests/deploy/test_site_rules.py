"""A site enforces its own copy of the experiment, whatever the server asks for."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedadb.deploy import refusals, site_rules
from fedadb.deploy.client_app import app
from fedadb.deploy.messages import tensors_in
from fedadb.deploy.refusals import BAD_DATA, BAD_REQUEST, NOT_ALLOWED, OTHER_EXPERIMENT
from tests.deploy.asked_site import RUN, AskedSite, experiment, refused

pytestmark = pytest.mark.integration


@pytest.fixture
def site(tmp_path: Path) -> AskedSite:
    return AskedSite(tmp_path / "site")


def test_an_honest_server_gets_replies(site: AskedSite) -> None:
    for kind in ("query", "train", "evaluate"):
        assert not site.ask(kind).has_error()
    assert not site.ask("query", run="").has_error()  # before the run has an identity


def test_names_of_files_do_not_leave_a_site(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    site = AskedSite(Path("relative patients"))
    folder = Path("relative patients/images/0")
    folder.mkdir(parents=True)
    Image.new("L", (28, 28)).save(folder / "Jane Doe 1961.png")
    (folder / "Jane Doe 1961.png").write_bytes(b"no image")
    context = site.context
    context.node_config["data"] = f"folder:{folder.parent}"
    reply = app(site.message("query", json.dumps(site.table("query"))), context)
    assert refused(reply) == (BAD_DATA, refusals.SENTENCES[BAD_DATA])
    for word in ("Jane", "1961", "relative", "images/"):
        assert word not in str(reply.error.reason)
    assert "Jane Doe 1961.png is damaged" in caplog.text  # the operator of the site reads it here


def test_the_sentence_of_a_bug_does_not_leave_a_site(
    site: AskedSite, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("row 7 of /srv/Jane Doe is [1, 2]")

    monkeypatch.setattr("fedadb.deploy.client_app.train_client", fail)
    assert site.refusal("train") == ("failed", "the site failed; its log says why (RuntimeError)")
    assert "Jane Doe" in caplog.text


def test_a_site_tests_only_if_its_own_experiment_says_so(tmp_path: Path) -> None:
    site = AskedSite(tmp_path / "site", experiment(evaluate="server"))
    code, sentence = site.refusal("evaluate")
    assert (code, "deployment.evaluate is 'server' here" in sentence) == (NOT_ALLOWED, True)
    settings = {**site.table("query")["settings"], "deployment.evaluate": "both"}
    code, sentence = site.refusal("query", settings=settings)
    assert code == OTHER_EXPERIMENT
    assert "deployment.evaluate is 'both' there and 'server' here" in sentence


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"round": [4, 3, 2, 80, 1.0]}, "round 4 of 3: this site trains 1 to 3"),
        ({"round": [0, 3, 2, 80, 1.0]}, "round 0 of 3"),
        ({"round": [4, 9, 2, 80, 1.0]}, "round 4 of 9: this site trains 1 to 3"),
        ({"client": 2}, "client 2: the request says that there are 2"),
        ({"client": -1}, "client -1"),
        ({"last_used": 1}, "round 1 cannot follow round 1"),
    ],
)
def test_rounds_and_clients_outside_of_the_experiment_are_refused(
    site: AskedSite, changes: dict[str, Any], reason: str
) -> None:
    code, sentence = site.refusal("train", **changes)
    assert (code, reason in sentence) == (NOT_ALLOWED, True), sentence


@pytest.mark.parametrize(
    "changes",
    [
        {"last_used": "../../x"},
        {"last_used": 1.5},
        {"last_used": -1},
        {"last_used": 10**400},
        {"last_used": True},
        {"client": [0]},
        {"client": None},
        {"run": "../../etc"},
        {"run": "0" * 65},
        {"run": 7},
        {"run": ""},
        {"round": []},
        {"round": [1, 3, 2, 80, 1.0, 0]},
        {"round": [1, 3, 10**9, 80, 1.0]},
        {"round": [1, 3, 2, 80, "1"]},
        {"round": {"t": 1}},
        {"settings": 7},
        {"data": []},
        {"data": {}},
        {"more": 1},
    ],
)
def test_invalid_requests_are_answered_in_words(site: AskedSite, changes: dict[str, Any]) -> None:
    assert site.refusal("train", **changes).code == BAD_REQUEST
    assert not (site.directory / "state").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"classes": []},
        {"classes": ["0"] * 10},
        {"classes": ["a", "\x1b[2J"]},
        {"classes": [1, 2]},
        {"shape": [28, 28]},
        {"shape": [1, 10**6, 10**6]},
        {"shape": [-1, 28, 28]},
        {"shape": [1, 28.5, 28]},
        {"transform": {"mean": [0.5], "std": [0.0]}},
        {"transform": {"mean": [0.5, 0.5], "std": [0.5]}},
        {"transform": {"mean": [0.5], "std": [0.5], "pad": 10**9}},
        {"transform": {"mean": [0.5], "std": [0.5], "code": "x"}},
        {"transform": None},
        {"more": 1},
    ],
)
def test_an_invalid_form_of_the_data_is_refused(site: AskedSite, change: dict[str, Any]) -> None:
    data = {**json.loads(json.dumps(site.table("train")["data"])), **change}
    assert site.refusal("train", data=data).code == BAD_REQUEST


@pytest.mark.parametrize(
    "text", ["", "7", "[" * 100_000, '{"version": Infinity}', '{"a": ' * 50_000, "\ud800".strip()]
)
def test_a_message_that_is_no_request_is_answered(site: AskedSite, text: str) -> None:
    assert refused(app(site.message("train", text), site.context)).code in (BAD_REQUEST, "failed")


def test_a_message_of_an_unknown_type_is_answered(site: AskedSite) -> None:
    for kind in ("train.other", "query.x", "system"):
        reply = app(site.message(kind, json.dumps(site.table("train"))), site.context)
        assert refused(reply).code == BAD_REQUEST


def test_a_message_without_content_is_answered(site: AskedSite) -> None:
    message = site.message("train", "{}")
    message.content.clear()
    assert refused(app(message, site.context)).code == BAD_REQUEST


@pytest.mark.parametrize("kind", ["train", "evaluate"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_weights_that_are_not_finite_are_refused(site: AskedSite, kind: str, value: float) -> None:
    tensors = site.tensors()
    last = list(tensors)[-1]
    tensors[last] = tensors[last].clone()
    tensors[last].view(-1)[-1] = value
    code, sentence = site.refusal(kind, tensors)
    assert (code, f"{last} is not finite" in sentence) == (BAD_REQUEST, True)


@pytest.mark.parametrize(
    "change", [lambda t: t.double(), lambda t: t.reshape(-1), lambda t: t.int(), lambda t: t[:0]]
)
def test_weights_of_another_model_are_refused(site: AskedSite, change: Any) -> None:
    tensors = {name: change(tensor) for name, tensor in site.tensors().items()}
    assert site.refusal("train", tensors).code == BAD_REQUEST


def test_classes_and_shape_that_the_experiment_states_are_enforced(tmp_path: Path) -> None:
    classes = [str(c) for c in range(10)]
    site = AskedSite(tmp_path / "site", experiment(classes=classes, shape=[1, 28, 28]))
    assert not site.ask("query").has_error()
    data = json.loads(json.dumps(site.table("query")["data"]))
    for key, other in {"classes": [*classes[:9], "spy"], "shape": [1, 32, 32]}.items():
        code, sentence = site.refusal("query", data={**data, key: other})
        assert (code, f"deployment.{key} is" in sentence) == (OTHER_EXPERIMENT, True)


def test_a_run_keeps_its_classes_and_its_client(site: AskedSite) -> None:
    assert not site.ask("train").has_error()
    data = json.loads(json.dumps(site.table("train")["data"]))
    for kind in ("train", "evaluate"):
        code, sentence = site.refusal(kind, data={**data, "classes": data["classes"][::-1]})
        assert (code, "changed within a run" in sentence) == (NOT_ALLOWED, True)
    code, sentence = site.refusal("train", client=1)
    assert (code, "was client 0 of the run, not 1" in sentence) == (NOT_ALLOWED, True)


def test_a_round_is_repeated_a_bounded_number_of_times(
    site: AskedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_rules, "MAX_TIMES", 2)
    assert not site.ask("train").has_error()
    assert not site.ask("train").has_error()
    code, sentence = site.refusal("train")
    assert (code, "asked for round 1 2 times" in sentence) == (NOT_ALLOWED, True)
    assert not site.ask("train", t=2, last_used=1).has_error()
    for _ in range(6):
        assert not site.ask("evaluate").has_error()
    assert site.refusal("evaluate").code == NOT_ALLOWED


def test_a_site_takes_part_in_a_bounded_number_of_runs(tmp_path: Path) -> None:
    site = AskedSite(tmp_path / "site", max_runs=2)
    runs = [digit * 32 for digit in "abc"]
    assert not site.ask("train", run=runs[0]).has_error()
    assert not site.ask("evaluate", run=runs[1]).has_error()
    for kind in ("train", "evaluate"):
        code, sentence = site.refusal(kind, run=runs[2])
        assert (code, "a higher --max-runs at the site" in sentence) == (NOT_ALLOWED, True)
    assert not (site.directory / "state" / runs[2]).exists()
    assert not site.ask("train", run=runs[1]).has_error()  # runs that have begun continue
    assert not AskedSite(site.directory, max_runs=3).ask("train", run=runs[2]).has_error()


def test_the_server_learns_which_version_differs(
    site: AskedSite, caplog: pytest.LogCaptureFixture
) -> None:
    code, sentence = site.refusal("query", version="99.0", fields_of_a_later_version=1)
    assert code == "other-version"
    assert f"version '99.0' of fedadb, and this site {site.table('query')['version']!r}" in sentence
    assert sentence in caplog.text
    older = site.table("query")
    del older["version"]
    reply = app(site.message("query", json.dumps(older)), site.context)
    assert refused(reply).code == "other-version"


def test_a_difference_of_settings_is_short(site: AskedSite) -> None:
    settings = {**site.table("query")["settings"], "seed": "\x1b[2J" * 100_000}
    code, sentence = site.refusal("query", settings=settings)
    assert (code, len(sentence) < 400, sentence.isprintable()) == (OTHER_EXPERIMENT, True, True)


def test_a_restarted_site_trains_the_round_again_with_the_same_result(tmp_path: Path) -> None:
    """The first process ends after it has stored its memory, but before it has sent its reply."""
    before, restarted = AskedSite(tmp_path / "site"), AskedSite(tmp_path / "site")
    before.ask("train")
    lost = tensors_in(before.ask("train", t=2, last_used=1).content)
    again = tensors_in(restarted.ask("train", t=2, last_used=1).content)
    assert all(torch.equal(lost[name], again[name]) for name in lost)
    stored = sorted(path.name for path in (tmp_path / "site" / "state" / RUN).glob("*.safetensors"))
    assert stored == ["000001.safetensors", "000002.safetensors"]


def test_a_site_without_rows_says_so_without_its_path(tmp_path: Path) -> None:
    site = AskedSite(tmp_path / "site")
    empty = np.zeros((0, 28, 28), np.uint8)
    np.savez(site.data, x=empty, y=np.zeros(0, np.int64))
    assert site.refusal("query").code in refusals.FINAL
