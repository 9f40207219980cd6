"""The kernels are compiled once, and nothing is loaded that somebody else could have written."""

import ctypes
import multiprocessing
import os
import stat
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

import pytest

from fedadb.kernels import __main__ as ahead
from fedadb.kernels import library
from fedadb.kernels.library import KernelsUnavailable, build, is_built, library_path, name
from fedadb.kernels.selection import expected_kernels, kernels_here
from fedadb.storage.cache import cache_directory
from tests.conftest import forget_compiler

COMPILER = """#!/bin/sh
echo "$*" >> "{commands}"
case "$*" in
    *"$FAKE_REFUSED"*) exit 1;;
    *--version*) echo "$FAKE_VERSION";;
    *-dM*) echo "$FAKE_MACROS";;
    *)
        echo compiled >> "{calls}"
        sleep "$FAKE_SECONDS"
        if test -n "$FAKE_ERROR"; then echo "$FAKE_ERROR" >&2; echo more >&2; exit 1; fi
        for last; do :; done
        umask 000
        echo library > "$last";;
esac
"""


class FakeCompiler:
    """A compiler that writes one word, and counts its calls."""

    def __init__(self, directory: Path) -> None:
        self.calls = directory / "calls"
        self.commands = directory / "commands"
        self.path = directory / "fake-c++"
        self.path.write_text(COMPILER.format(calls=self.calls, commands=self.commands))
        self.path.chmod(0o700)

    @property
    def compilations(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCompiler]:
    """A fake compiler, and an empty cache."""
    made = FakeCompiler(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", str(made.path))
    settings = {"VERSION": "fake 1", "MACROS": "#define AVX2", "SECONDS": "0", "ERROR": ""}
    for key, value in (settings | {"REFUSED": "no such option"}).items():
        monkeypatch.setenv(f"FAKE_{key}", value)
    forget_compiler()
    yield made
    forget_compiler()


def test_the_library_is_compiled_once_with_a_progress_line(compiler: FakeCompiler) -> None:
    lines: list[str] = []

    @contextmanager
    def progress(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        lines.append(what)
        yield lambda done: lines.append(str(done))

    assert not is_built()
    path = build(progress)
    assert is_built()
    assert build(progress) == path == library_path()
    assert compiler.compilations == 1
    assert lines == ["compiling kernels", "1"]
    assert {p.suffix for p in path.parent.iterdir()} == {".so", ".sha256", ".lock"}
    for private in (path, path.parent, cache_directory()):  # whatever the umask is
        assert stat.S_IMODE(private.stat().st_mode) == 0o700


@pytest.mark.parametrize(("key", "value"), [("VERSION", "fake 2"), ("MACROS", "another")])
def test_another_compiler_or_processor_has_a_library_of_its_own(
    compiler: FakeCompiler, monkeypatch: pytest.MonkeyPatch, key: str, value: str
) -> None:
    first = build()
    monkeypatch.setenv(f"FAKE_{key}", value)
    forget_compiler()
    assert build() != first
    assert first.exists()


def test_another_source_or_option_has_a_library_of_its_own(
    compiler: FakeCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [name()]
    source = tmp_path / "network.cpp"
    source.write_text("another")
    monkeypatch.setattr(library, "SOURCE", source)
    forget_compiler()
    names.append(name())
    monkeypatch.setattr(library, "OPTIONS", ("-O2",))
    forget_compiler()
    names.append(name())
    assert len(set(names)) == 3


def test_a_compiler_of_two_names_has_one_library(
    compiler: FakeCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = name()
    monkeypatch.setenv("FAKE_VERSION", "other 1")  # compilers print their name first
    forget_compiler()
    assert name() == first


def test_the_variable_cxx_may_have_options(
    compiler: FakeCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = name()
    monkeypatch.setenv("CXX", f"{compiler.path} -m64 '-DNAME=two words'")
    forget_compiler()
    build()
    last = compiler.commands.read_text().splitlines()[-1]
    assert last.startswith("-m64 -DNAME=two words -O3 ")
    assert name() != first


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-c++ -O2", r"that the variable CXX names, 'no-such-c\+\+ -O2', is missing"),
        ("'g++", r"the variable CXX = .* is no command: No closing quotation"),
    ],
)
def test_a_variable_cxx_that_names_no_compiler_is_refused(
    compiler: FakeCompiler, monkeypatch: pytest.MonkeyPatch, command: str, reason: str
) -> None:
    monkeypatch.setenv("CXX", command)
    forget_compiler()
    with pytest.raises(KernelsUnavailable, match=reason):
        build()


def test_an_option_of_gcc_alone_is_left_out_elsewhere(
    compiler: FakeCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert library.options() == (*library.OPTIONS, library.ALWAYS_FUSE)
    monkeypatch.setenv("FAKE_REFUSED", "avoid-fma")
    forget_compiler()
    assert library.options() == library.OPTIONS
    build()
    assert "avoid-fma" not in compiler.commands.read_text().splitlines()[-1]


CHAIN = """
typedef float v8 __attribute__((vector_size(32)));
void dot(const v8 *x, const v8 *w, v8 *sum, long n) {
    v8 s = {};
    for (long i = 0; i < n; i++) s += x[i] * w[i];
    *sum = s;
}
"""


@pytest.mark.usefixtures("needs_kernels")
def test_every_multiply_add_is_fused_whatever_the_processor(tmp_path: Path) -> None:
    (tmp_path / "chain.cpp").write_text(CHAIN)
    words = [*library.compiler(), *library.options(), "-march=znver3", "-S", "-o", "-"]
    done = subprocess.run([*words, tmp_path / "chain.cpp"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("the compiler does not know that processor")
    assert "vfmadd" in done.stdout
    assert "vmulps" not in done.stdout


@pytest.mark.parametrize("damage", ["flipped", "truncated", "no digest", "no library"])
def test_a_damaged_library_is_compiled_again(compiler: FakeCompiler, damage: str) -> None:
    path = build()
    intact = path.read_bytes()
    if damage == "no digest":
        path.with_suffix(".sha256").unlink()
    elif damage == "no library":
        path.unlink()
    else:
        path.write_bytes(intact[:-1] if damage == "truncated" else b"x" + intact[1:])
    assert not is_built()
    build()
    assert path.read_bytes() == intact
    assert compiler.compilations == 2


def test_processes_that_start_together_compile_once(
    compiler: FakeCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "0.3")
    name()
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=build) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert is_built()
    assert compiler.compilations == 1


def test_what_another_user_owns_is_not_loaded(
    compiler: FakeCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    build()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(KernelsUnavailable, match=r"kernels belongs to another user, .*; delete it"):
        build()
    assert compiler.compilations == 1


@pytest.mark.parametrize("mode", [0o770, 0o702])
@pytest.mark.parametrize("planted", ["directory", "library"])
def test_what_others_can_write_is_not_loaded(
    compiler: FakeCompiler, mode: int, planted: str
) -> None:
    path = build()
    (path if planted == "library" else path.parent).chmod(mode)
    with pytest.raises(
        KernelsUnavailable, match="or others can write to it; delete it, and the kernels"
    ):
        build()
    assert compiler.compilations == 1


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_cache_that_others_can_write_is_not_used(compiler: FakeCompiler, mode: int) -> None:
    """They could put a directory of their own in the place of the kernels'."""
    build()
    cache_directory().chmod(mode)
    with pytest.raises(KernelsUnavailable, match=r"fedadb belongs .* it; forbid that \(chmod go-w"):
        build()
    cache_directory().chmod(0o755)
    build()
    assert compiler.compilations == 1


def test_a_cache_that_others_can_write_is_not_compiled_into(compiler: FakeCompiler) -> None:
    cache_directory().mkdir(parents=True)
    cache_directory().chmod(0o777)
    with pytest.raises(KernelsUnavailable, match="forbid that"):
        build()
    assert compiler.compilations == 0


def test_a_cache_that_cannot_be_written_is_named(compiler: FakeCompiler, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(KernelsUnavailable, match=r"cache/fedadb.* cannot be used \("):
        build()


def test_the_first_line_of_a_compilers_errors_is_the_reason(
    compiler: FakeCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ERROR", "network.cpp:1: no vectors")
    with pytest.raises(
        KernelsUnavailable, match=r"cannot compile the kernels: network.cpp:1: no vectors$"
    ):
        build()
    assert not is_built()
    assert [p.suffix for p in library_path().parent.iterdir()] == [".lock"]


def test_a_library_that_cannot_be_loaded_is_named(compiler: FakeCompiler) -> None:
    with pytest.raises(KernelsUnavailable, match="the compiled kernels cannot be loaded: "):
        library.library()


@pytest.mark.usefixtures("no_compiler")
def test_a_machine_without_a_compiler_is_named() -> None:
    with pytest.raises(KernelsUnavailable, match=r"no C\+\+ compiler is installed"):
        build()


def test_windows_has_no_kernels(compiler: FakeCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(KernelsUnavailable, match="not built on Windows"):
        build()


def test_setup_compiles_ahead_and_says_so(
    compiler: FakeCompiler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ahead, "library", lambda: None)  # as if it could be loaded
    ahead.main()
    assert capsys.readouterr().out == f"compiling kernels …\nkernels: fedadb {name()}\n"
    ahead.main()
    assert capsys.readouterr().out == f"kernels: fedadb {name()}\n"


def test_setup_notices_a_library_that_cannot_be_loaded(
    compiler: FakeCompiler, capsys: pytest.CaptureFixture[str]
) -> None:
    """As from a cache that is mounted noexec."""
    ahead.main()
    _, said = capsys.readouterr().out.splitlines()
    assert said.startswith("kernels: torch (the compiled kernels cannot be loaded: ")


def test_what_is_compiled_is_known_without_loading_it(compiler: FakeCompiler) -> None:
    assert kernels_here() == f"fedadb {name()} (compiled on first use)"
    build()
    assert kernels_here() == f"fedadb {name()} (compiled)"
    assert expected_kernels() == f"fedadb {name()}"
    library_path().chmod(0o777)
    assert kernels_here().startswith(f"torch ({library_path()} belongs to another user, or others")
    assert expected_kernels() == "torch"


@pytest.mark.usefixtures("no_compiler")
def test_setup_needs_no_compiler(capsys: pytest.CaptureFixture[str]) -> None:
    ahead.main()
    assert capsys.readouterr().out == "kernels: torch (no C++ compiler is installed)\n"


@pytest.mark.usefixtures("needs_kernels")
def test_the_compiled_library_loads() -> None:
    assert isinstance(library.library(), ctypes.CDLL)


def test_files_that_are_no_python_are_part_of_the_wheel() -> None:
    root = Path(__file__).parents[2]
    setuptools = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = setuptools["package-data"]["fedadb"]
    package = root / "src" / "fedadb"
    others = [p for p in package.rglob("*") if p.is_file() and p.suffix not in {".py", ".pyi"}]
    files = [str(p.relative_to(package)) for p in others if p.parent.name != "__pycache__"]
    assert {"kernels/network.cpp", "kernels/lanes.h"} <= set(files)
    assert [f for f in files if not any(fnmatch(f, pattern) for pattern in patterns)] == []
