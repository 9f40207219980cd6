"""What a round costs beyond its training when sites are processes behind TLS and keys.

    python benchmarks/federation_overhead.py [--rounds 8] [--sites 2]

The same experiment, one client after the other in one process, is what it is compared with; with
the sites side by side on fewer cores than there are sites, the difference is an upper bound.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

from fedadb.deploy import keys
from fedadb.deploy.processes import free_port
from fedadb.deploy.server import server
from fedadb.experiment.build import build
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--sites", type=int, default=2)
    given = options.parse_args()
    e = Experiment.read(
        {
            "rounds": given.rounds,
            "algorithm": "fedavg",
            "local": {"epochs": 1},
            "federation": {"clients": given.sites, "participation": 1.0, "partition": "iid"},
            "engine": {"workers": 1},
        }
    )
    with tempfile.TemporaryDirectory() as made:
        place, port = Path(made), free_port()
        here = [r["seconds"] for r in run(e, place / "here").rounds]
        there = federated(e, place, port)
    one, other = median(here[1:]), median(there[1:])
    print(f"LeNet, FedAvg, {given.sites} sites, {given.rounds} rounds; medians but for the first")
    print(f"in one process       {one:6.2f} s a round")
    print(f"sites behind TLS     {other:6.2f} s a round ({min(there):.2f} to {max(there):.2f})")
    print(f"overhead             {other - one:6.2f} s a round")


def federated(e: Experiment, place: Path, port: int) -> list[float]:
    keys.make_server_keys(place / "server", ["localhost"], days=1)
    (place / "e.toml").write_text(e.toml())
    sites = []
    for k, shard in enumerate(build(e).shards):
        site = place / f"site-{k}"
        keys.make_site_keys(site)
        (place / "server" / "sites" / f"site-{k}.pub").write_bytes((site / "site.pub").read_bytes())
        (site / "ca.crt").write_bytes((place / "server" / "ca.crt").read_bytes())
        x, y = shard.examples.x[shard.rows].permute(0, 2, 3, 1).numpy(), shard.labels.numpy()
        np.savez(site / "data.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
        words = ["deploy", "site", str(site), str(place / "e.toml")]
        words += ["--server", f"localhost:{port}", "--data", f"npz:{site / 'data.npz'}"]
        with (place / f"site-{k}.log").open("wb") as log:
            sites.append(
                subprocess.Popen([sys.executable, "-m", "fedadb", *words], stdout=log, stderr=log)
            )
    try:
        with server(place / "server", "127.0.0.1", port) as running:
            number = running.submit(e, place / "there")
            rounds = running.rounds(number, place / "there", e.rounds, 0, print)
            return [record["seconds"] for record in rounds]
    finally:
        for process in sites:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
