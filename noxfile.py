"""Sessions; what follows ``--`` goes to the tool of the session."""

from __future__ import annotations

import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["tests", "lint", "check_series"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True

CHECKED = ("tools", "tests", "bench", "noxfile.py")


@nox.session
def tests(session: nox.Session) -> None:
    """The default tests: offline, a process per core, under a minute on two. ``-- -n 0`` keeps them in one."""
    session.install("-e", ".[test]")
    session.run("pytest", "-n", "auto", "--dist", "worksteal", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, its formatter, and mypy --strict. ``-- --fix`` repairs what can be."""
    session.install("-e", ".[test]")
    session.run("ruff", "check", *session.posargs, *CHECKED)
    session.run("ruff", "format", *(() if "--fix" in session.posargs else ("--check",)), *CHECKED)
    session.run("mypy", "tools", "tests", "noxfile.py")


@nox.session
def check_series(session: nox.Session) -> None:
    """Every series of every line against its pin: headers complete, zero offset, no orphans."""
    session.install("-e", ".")
    for line in tomllib.loads(Path("VERSIONS.toml").read_text(encoding="utf-8"))["lines"]:
        session.run("python", "tools/pq.py", "check", "--line", line, *session.posargs)


@nox.session
def network_tests(session: nox.Session) -> None:
    """The tests that need the configured package index; ``-- -m "network and slow"`` for those of gigabytes."""
    session.install("-e", ".[test]")
    words = ("-m", "network and not slow and not nvcc and not gpu")
    session.run("pytest", "-n", "auto", "--dist", "worksteal", *words, *session.posargs)


@nox.session
def index_tests(session: nox.Session) -> None:
    """The requirement table in full, nginx, and uploads: real clients and servers on this machine. Needs nginx."""
    session.install("-e", ".[test]")
    session.run("pytest", "-m", "slow and not network and not nvcc and not gpu", "tests/index", *session.posargs)


@nox.session
def publish_index(session: nox.Session) -> None:
    """Wheels into an index: ``-- WHEELS INDEX``, by default dist/stable and dist/index."""
    session.install("-e", ".[index]")
    session.run("python", "tools/index.py", "publish", *(session.posargs or ("dist/stable", "dist/index")))


@nox.session
def serve_index(session: nox.Session) -> None:
    """One index URL on this machine, until ^C: ``-- INDEX [OPTIONS]``, by default dist/index."""
    session.install("-e", ".[index]")
    session.run("python", "tools/index.py", "serve", *(session.posargs or ("dist/index",)))


@nox.session
def prove_kernels(session: nox.Session) -> None:
    """The proof in machine code. ``-- --fast`` compares preprocessed text instead: seconds, no compiler."""
    session.install("-e", ".")
    session.run("python", "tools/kernels.py", "prove", *session.posargs)


@nox.session(venv_backend="none")
def gpu_tests(session: nox.Session) -> None:
    """The tests on a GPU, with the Python that has torch for it: what runs nox, or ``python3`` on PATH."""
    where = () if any(word.startswith("tests/") for word in session.posargs) else ("tests/gpu",)
    session.run("python3", "-m", "pytest", "-m", "gpu", *where, *session.posargs, external=True)


@nox.session
def nvcc_tests(session: nox.Session) -> None:
    """The tests that need the CUDA compiler, fetched into the cache once. ``-- -m nvcc`` adds the slow ones."""
    session.install("-e", ".[test]")
    session.run("pytest", "-m", "nvcc and not slow and not gpu", *session.posargs)


@nox.session
def build_wheels(session: nox.Session) -> None:
    """The wheels of a line. After ``--aot`` stands what tools/kernels.py build is told: its modules are built, too."""
    words = list(session.posargs)
    at = words.index("--aot") if "--aot" in words else len(words)
    session.install("-e", ".[wheels,kernels]")
    session.run("python", "tools/wheels.py", "build", *words[:at])
    if at < len(words):
        session.run("python", "tools/kernels.py", "build", *words[at + 1 :])


@nox.session
def watch(session: nox.Session) -> None:
    """The morning after: newest release of each upstream against every line; one report (docs/automation runs it)."""
    session.install("-e", ".[audit]")
    session.run("python", "tools/watch.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The README's picture from the real releases. Exit code 1 of the matrix is an answer, too."""
    session.install("-e", ".")
    words = ("--line", "all", "--svg", "docs/matrix.svg", *session.posargs)
    session.run("python", "tools/matrix.py", *words, success_codes=[0, 1])


@nox.session
def browser_tests(session: nox.Session) -> None:
    """The matrix's page in a headless Chromium."""
    session.install("-e", ".[test,browser]")
    session.run("pytest", "-m", "browser", *session.posargs)
