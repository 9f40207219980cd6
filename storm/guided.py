"""Fuzzing that is guided by coverage: Atheris prefers inputs that reach new lines of fedadb.

Each reader runs in a program of its own, because Atheris ends the program that it runs in:

python -m storm.guided "records" SEED INPUTS
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from storm.outcome import Outcome

ROOT = Path(__file__).parents[1]
CPU_SECONDS = 20  # of one input
MEMORY_MB = 4096


def storm_guided(outcome: Outcome, inputs: int, scratch: Path, only: str = "") -> None:
    """Give every reader its share of the inputs."""
    try:
        import atheris  # noqa: F401
    except ImportError:
        outcome.leave_out("Atheris is not installed: pip install 'fedadb[storm]'")
        return
    from storm.readers import READERS

    chosen = {name: reader for name, reader in READERS.items() if only in name}
    total = sum(reader.share for reader in chosen.values())
    for n, (name, reader) in enumerate(chosen.items()):
        corpus = scratch / f"corpus-{n}"
        corpus.mkdir()
        for i, seed in enumerate(reader.seeds):
            (corpus / str(i)).write_bytes(seed)
        runs = max(1, round(inputs * reader.share / total))
        words = [sys.executable, "-m", "storm.guided", name, str(outcome.seed), str(runs)]
        done = subprocess.run([*words, str(corpus)], cwd=ROOT, capture_output=True, text=True)
        outcome.count("inputs", runs)
        outcome.measured[name] = f"{runs} inputs, {len(list(corpus.iterdir()))} with new coverage"
        last = done.stderr.strip().splitlines()[-12:]
        outcome.require(done.returncode == 0, f"{name}: {' | '.join(last)}")


def main(name: str, seed: str, inputs: str, corpus: str) -> None:
    """Run one reader under Atheris, which exits with another code than 0 at a finding."""
    import atheris

    with atheris.instrument_imports(include=["fedadb"]):
        from storm.fuzz import finding
        from storm.readers import READERS

    reader = READERS[name]
    directory = Path(tempfile.mkdtemp(dir=Path(corpus).parent)) / "d"

    def read(data: bytes) -> None:
        if found := finding(reader, data, directory):
            raise RuntimeError(found)

    limits = [f"-timeout={CPU_SECONDS}", f"-rss_limit_mb={MEMORY_MB}", "-max_len=65536"]
    words = ["storm", f"-runs={inputs}", f"-seed={int(seed) + 1}", *limits]
    words += [f"-artifact_prefix={Path(corpus).parent}/", corpus]
    atheris.Setup(words, read)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
