"""`fedadb explain`, and what the shell completes."""

import re

import pytest

from fedadb.cli.completion import COMPLETE, KEY
from tests.command_line import invoke


def explained(topic: str) -> str:
    ended = invoke("explain", topic)
    assert ended.code == 0, ended.err
    return re.sub(r"\s+", " ", ended.out)


@pytest.mark.parametrize(
    ("topic", "parts"),
    [
        (
            "local.lr",
            [
                "local.lr: learning rate of the clients",
                "default 0.01 0.003 to 0.1, by method for digits, organamnist",
                "values a number above 0",
                "searched from 0.003 to 0.1",
                "read by server and clients",
            ],
        ),
        ("rounds", ["default 1000", "300 for organamnist, pacs", "40 for digits"]),
        ("algorithm.mu", ["algorithm.mu of fedprox: μ", "algorithm.mu of moon: μ"]),
        ("fedprox", ['algorithm = "fedprox": FedAvg whose clients', "algorithm.mu 0.01"]),
        ("sgd", ['local.optimizer = "sgd"', 'server.optimizer = "sgd"']),
        ("local", ["how a client trains", "local.epochs 5"]),
        ("attack", ['default "none"', "sign_flip", "read by simulations"]),
        ("engine.workers", ["read by the process that trains", "changes no result"]),
        ("deployment.wait", ["the server of real sites; simulations ignore it"]),
        ("federation.partition.path", ["default none: it must be given"]),
    ],
)
def test_explain(topic: str, parts: list[str]) -> None:
    text = explained(topic)
    for part in parts:
        assert part in text


def test_explain_without_a_key_lists_every_setting() -> None:
    text = invoke("explain").out
    for key in ("dataset", "federation.clients", "local.clip", "deployment.rows"):
        assert re.search(rf"^{re.escape(key)}\b", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("topic", "near"),
    [
        ("lr", "did you mean local.lr"),
        ("local.batchsize", "did you mean local.batch_size"),
        ("epochz", "did you mean local.epochs"),
        ("fedproxx", "did you mean fedprox"),
        ("xyzzy", "`fedadb explain` lists all settings"),
    ],
)
def test_a_wrong_topic_suggests_the_near_ones(topic: str, near: str) -> None:
    ended = invoke("explain", topic)
    assert ended.code == 2
    assert near in ended.err


def completed(monkeypatch: pytest.MonkeyPatch, *words: str, shell: str = "bash") -> list[str]:
    """What the shell is offered for the last word."""
    monkeypatch.setenv(COMPLETE, f"complete_{shell}")
    monkeypatch.setenv(KEY, "")  # so that it is restored
    if shell == "bash":
        split = [part for word in words for part in re.split(r"(=)", word) if part or not word]
        monkeypatch.setenv("COMP_WORDS", "\n".join(["fedadb", *split]))
        monkeypatch.setenv("COMP_CWORD", str(len(split)))
    else:
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", " ".join(["fedadb", *words]))
    return invoke().out.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["run", "--set", "local.l"], ["local.lr="]),
        (["run", "--set", "algorithm=fedpr"], ["fedprox"]),
        (["run", "--set", "algorithm.name=fedpr"], ["fedprox"]),
        (["run", "--set", "dataset=organa"], ["organamnist"]),
        (["run", "--set", "engine.precision="], ["float32", "bfloat16"]),
        (["run", "--set", "engine.overlap=t"], ["true"]),
        (["run", "--set", "rounds="], []),
        (["run", "--set", "seed=1", "--set", "roun"], ["rounds="]),
        (["compare", "--algorithms", "fedavg,fedpr"], ["fedavg,fedprox"]),
        (["tune", "--algorithms", "fednt"], ["fedntd"]),
        (["data", "fetch", "cifar10"], ["cifar10", "cifar100"]),
        (["explain", "local.ep"], ["local.epochs"]),
        (["reproduce", "table"], ["table1"]),
    ],
)
def test_bash_completes(
    monkeypatch: pytest.MonkeyPatch, words: list[str], offered: list[str]
) -> None:
    assert completed(monkeypatch, *words) == offered


def test_fish_completes_values_with_their_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    offered = completed(monkeypatch, "run", "--set", "algorithm=fedpr", shell="fish")
    assert offered == ["algorithm=fedprox"]
