"""Compiles network.cpp for this machine, once, and loads it.

The library lies in the user's cache under a name that follows from the source, the compiler and the
processor. It has a plain C interface, because torch's C++ headers alone take most of a minute.
"""

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import filelock

from fedadb.core.errors import Fault
from fedadb.progress import Progress, no_progress
from fedadb.storage.cache import cache_directory, make_directory
from fedadb.storage.files import write_atomically

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "network.cpp"  # which includes the headers
COMPILERS = ("c++", "g++", "clang++")
OPTIONS = ("-O3", "-march=native", "-ffp-contract=fast", "-std=c++17", "-shared", "-fPIC")
# For some processors, GCC fuses the multiply-adds of some loops and not those of others, and equal
# sums are rounded differently. This option ends that; other compilers refuse or ignore it.
ALWAYS_FUSE = "--param=avoid-fma-max-bits=0"
MACROS = ("-dM", "-E", "-x", "c++", os.devnull)  # prints what the compiler defines
MAKE_PRIVATE = "forbid that (chmod go-w), or set XDG_CACHE_HOME to a directory of your own"
WORK = tuple(  # functions that return a size
    f"fedadb_{name}_work" for name in ("forward", "backward", "convolve", "weight_gradient")
)
BUILD_SECONDS = 300  # for a compiler, or for another process that compiles


class KernelsUnavailable(Fault):
    """The kernels cannot be built or loaded on this machine; the message says why."""


@cache
def compiler() -> tuple[str, ...]:
    """The command of the C++ compiler: that of the variable CXX, or the first that is installed."""
    if sys.platform == "win32":
        raise KernelsUnavailable("the kernels are not built on Windows")
    asked = os.environ.get("CXX", "")
    try:
        words = shlex.split(asked)
    except ValueError as error:
        raise KernelsUnavailable(f"the variable CXX = {asked!r} is no command: {error}") from error
    for name in words[:1] or COMPILERS:
        if found := shutil.which(name):
            return found, *words[1:]
    if words:
        raise KernelsUnavailable(f"the compiler that the variable CXX names, {asked!r}, is missing")
    raise KernelsUnavailable("no C++ compiler is installed")


@cache
def options() -> tuple[str, ...]:
    """The options with which the library is compiled."""
    always_fused = (*OPTIONS, ALWAYS_FUSE)
    try:
        _run(*always_fused, *MACROS)
    except KernelsUnavailable:
        return OPTIONS
    return always_fused


@cache
def name() -> str:
    """The library's name: libraries of equal names compute bit-identical results.

    The macros that the compiler defines state its version, and all that it knows of the processor.
    """
    # The first word is the compiler's own name, and one compiler may have several.
    version = _run("--version").partition("\n")[0].partition(" ")[2]
    macros = _run(*options(), *MACROS)
    sources = [file.read_text(encoding="utf-8") for file in (SOURCE, *sorted(FOLDER.glob("*.h")))]
    parts = [*sources, " ".join([*compiler()[1:], *options()]), version, macros]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def library_path() -> Path:
    """The file of the library, whether it has been built or not."""
    return cache_directory() / "kernels" / f"{name()}.so"


def build(progress: Progress = no_progress) -> Path:
    """The compiled library; it is compiled if this has not happened before, or if it is damaged."""
    path = library_path()
    with _explained(path):
        make_directory(cache_directory())
        path.parent.mkdir(exist_ok=True, mode=0o700)
        if not is_built():
            # Another process may be compiling it: wait for that.
            with filelock.FileLock(path.with_suffix(".lock"), timeout=BUILD_SECONDS):
                if not is_built():
                    _compile(path, progress)
    return path


def is_built() -> bool:
    """Whether the compiled library exists, undamaged; nobody else may be able to write to it."""
    path, again = library_path(), "delete it, and the kernels are compiled again"
    with _explained(path):
        for directory, remedy in ((path.parent, again), (cache_directory(), MAKE_PRIVATE)):
            if directory.exists():
                _require_own(directory, remedy)
        if not path.exists():
            return False
        _require_own(path, again)
        digest = path.with_suffix(".sha256")
        return digest.exists() and digest.read_bytes() == _digest(path).encode()


@cache
def library() -> ctypes.CDLL:
    """The loaded library."""
    path = build()
    try:
        loaded = ctypes.CDLL(str(path))
        for function in WORK:
            getattr(loaded, function).restype = ctypes.c_size_t
    except (OSError, AttributeError) as error:
        raise KernelsUnavailable(f"the compiled kernels cannot be loaded: {error}") from error
    return loaded


def _compile(path: Path, progress: Progress) -> None:
    """Compile the library to a temporary file, and move it to its place in one step."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        with progress("compiling kernels", 1, "library") as advance:
            _run(*options(), str(SOURCE), "-o", str(partial))
            advance(1)
        partial.chmod(0o700)  # whatever the user's umask is
        digest = _digest(partial)
        partial.replace(path)
        # The digest comes last: a library without its own is compiled again.
        write_atomically(path.with_suffix(".sha256"), digest.encode())
    finally:
        partial.unlink(missing_ok=True)


def _run(*words: str) -> str:
    """The output of the compiler."""
    try:
        done = subprocess.run(
            [*compiler(), *words],
            check=True,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=BUILD_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        first = (error.stderr.strip().splitlines() or ["no reason given"])[0]
        raise KernelsUnavailable(f"{compiler()[0]} cannot compile the kernels: {first}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelsUnavailable(f"{compiler()[0]} cannot be used: {error}") from error
    return done.stdout


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _require_own(path: Path, remedy: str) -> None:
    """Raise KernelsUnavailable if others could have written it: what is loaded can do anything."""
    status = path.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise KernelsUnavailable(
            f"{path} belongs to another user, or others can write to it; {remedy}"
        )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn errors of the file system into KernelsUnavailable."""
    try:
        yield
    except filelock.Timeout as error:
        raise KernelsUnavailable(
            f"another process has been compiling {path} for {BUILD_SECONDS} seconds"
        ) from error
    except OSError as error:
        raise KernelsUnavailable(
            f"{error.filename or path.parent} cannot be used ({error.strerror or error})"
        ) from error
