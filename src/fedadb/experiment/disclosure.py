"""Who learns what, in words: shown before a federation starts, beside its results and in reports.

It follows from the settings alone, so that every party can read it in its own copy of the
experiment before it takes part.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fedadb.experiment.settings import Federation, replies_needed
from fedadb.experiment.toml_tables import flatten

TITLE = "Who learns what, with these settings"
SIMULATION = "This is about a federation of sites. A simulation has all data on one machine."


class Disclosure(NamedTuple):
    """What one party learns of the clients' data, and what it does not learn."""

    party: str
    learns: list[str]
    does_not_learn: list[str]


def disclosures(experiment: Mapping[str, Any]) -> list[Disclosure]:
    """What each party learns in a federation with the experiment's table of settings.

    The table may be of a version that had fewer settings.
    """
    settings = flatten(experiment)
    secure = bool(settings.get("deployment.secure_aggregation", False))
    private = any(one["name"] == "dp" for one in experiment.get("filter", ()))
    site_tests = settings.get("deployment.evaluate", "server") != "server"
    fewest = settings["federation.clients"] if secure else _fewest_replies(settings)
    return [
        _server(secure, private, site_tests),
        _other_sites(secure, private, fewest),
        Disclosure(
            "A stranger on the network",
            ["which machines talk to each other, when, and how many bytes they send"],
            ["what they send: all messages are encrypted"],
        ),
        _users(private),
    ]


def _fewest_replies(settings: Mapping[str, Any]) -> int:
    """The number of sites whose replies alone may make a round's model."""
    if settings.get("federation.sampling") == "poisson":
        return 1
    clients, participation = (settings[f"federation.{k}"] for k in ("clients", "participation"))
    least = settings.get("deployment.min_replies")  # a number, or "none"
    asked = Federation(clients, participation).sampled
    return replies_needed(asked, least if isinstance(least, int) else None)


def _server(secure: bool, private: bool, site_tests: bool) -> Disclosure:
    always = ["which sites take part, and when they answer"]
    never = ["the rows themselves, beyond what this reveals, and the names of files"]
    if not secure:
        learns = [
            *always,
            "each site's number of rows",
            "each site's update in every round, which can reveal rows of its data",
            "what the algorithm measures at each site, such as the share of classes it lacks",
        ]
        if site_tests:
            learns.append("for each site, how many test images of each class are right")
        if private:
            learns.append("all of this before the noise, which protects from others only")
        return Disclosure("The server", learns, never)
    learns = [
        *always,
        "the sum of all updates in every round, and the number of all rows",
        "means over the sites of what the algorithm measures",
    ]
    if site_tests:
        learns.append("over all sites, how many test images of each class are right")
    if private:
        learns.append("that sum before the noise, which protects from others only")
    hidden = "a single site's update, rows or measurements, unless all other sites help it"
    return Disclosure("The server", learns, [*never, hidden])


def _other_sites(secure: bool, private: bool, fewest: int) -> Disclosure:
    learns = ["the model of every round in which they take part, and what it reveals (last row)"]
    if secure:
        learns.append("the names and public keys of all sites")
    if private:
        hidden = "more about a single site than the ε and δ of the last record allow"
        return Disclosure("The other sites", learns, [hidden])
    learns.append("the number of all rows")
    hidden = "a single site's update, unless all other sites of the round put theirs together"
    if fewest == 1:
        learns.append("a site's update, if no other site's reply was used in the round")
    if fewest <= 2:
        learns.append("the other site's update, if two sites' replies were used in the round")
        hidden = "a single site's update in a larger round, unless all others put theirs together"
    return Disclosure("The other sites", learns, [hidden])


def _users(private: bool) -> Disclosure:
    if private:
        learns = ["what all clients have in common"]
        hidden = ["whether a certain client took part, within the ε and δ of the last record"]
        return Disclosure("Whoever has the model", learns, hidden)
    learns = [
        "what all clients have in common",
        "by an attack on the model, possibly whether a certain row was trained on",
    ]
    return Disclosure("Whoever has the model", learns, ["nothing is promised: there is no noise"])


def markdown(experiment: Mapping[str, Any]) -> str:
    """The disclosures as a table in Markdown."""
    lines = [f"# {TITLE}", "", "| who | learns | does not learn |", "| --- | --- | --- |"]
    for party, learns, hidden in disclosures(experiment):
        lines.append(f"| {party} | {'; '.join(learns)} | {'; '.join(hidden)} |")
    return "\n".join([*lines, "", SIMULATION, ""])
