"""Sessions; what follows ``--`` goes to the tool of the session."""

from __future__ import annotations

import nox

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["tests", "lint", "check_series"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True

CHECKED = ("tools", "tests", "bench", "noxfile.py")


@nox.session
def tests(session: nox.Session) -> None:
    """The default tests: offline, under a minute."""
    session.install("-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, its formatter, and mypy --strict. ``-- --fix`` repairs what can be."""
    session.install("-e", ".[test]")
    session.run("ruff", "check", *session.posargs, *CHECKED)
    session.run("ruff", "format", *(() if "--fix" in session.posargs else ("--check",)), *CHECKED)
    session.run("mypy", "tools", "tests", "noxfile.py")


@nox.session
def check_series(session: nox.Session) -> None:
    """Every series against its pin: headers complete, zero offset, no orphans."""
    session.install("-e", ".")
    session.run("python", "tools/pq.py", "check", *session.posargs)


@nox.session
def network_tests(session: nox.Session) -> None:
    """The tests that need the configured package index."""
    session.install("-e", ".[test]")
    session.run("pytest", "-m", "network and not nvcc and not gpu", *session.posargs)
