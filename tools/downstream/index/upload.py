"""Giving wheels to an index that the team already runs (pypiserver, devpi, …), with twine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from downstream.errors import NetworkError, PublishError
from downstream.index import offering
from downstream.index.offering import Candidate
from downstream.index.publish import Outcome, Published
from downstream.progress import SILENT, Progress
from downstream.trees import pipconf

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # twine paints whether or not it is read by a person

PATIENCE = 30.0  # seconds until an uploaded wheel must be offered


def upload(
    wheels: Sequence[Path],
    repository: str,
    *,
    index: str,
    report: Callable[[str], None] = lambda line: None,
    progress: Progress = SILENT,
) -> tuple[Published, ...]:
    """Upload *wheels* to *repository* and see that *index*, its reading side, offers these very bytes.

    What the index has already is left alone; other bytes under one of the names
    raise PublishError before anything is sent. Credentials come from the URL, else
    from TWINE_USERNAME and TWINE_PASSWORD; without any, nobody's are sent.
    """
    candidates = [offering.read(path) for path in wheels]
    with _reader(index) as offered:
        missing = [candidate for candidate in candidates if not _is_there(candidate, offered(candidate.project), index)]
        with progress.task("uploading", sum(candidate.offer.size for candidate in missing), "bytes") as task:
            for candidate in missing:
                _twine(candidate, repository, report)
                task.advance(candidate.offer.size, candidate.offer.filename)
        for candidate in missing:
            _await(candidate, offered, index)
    return tuple(
        Published(
            project=candidate.project,
            filename=candidate.offer.filename,
            sha256=candidate.offer.sha256,
            outcome=Outcome.PUBLISHED if candidate in missing else Outcome.UNCHANGED,
        )
        for candidate in candidates
    )


Reader = Callable[[str], dict[str, str | None]]  # project -> {file name: sha256, where the index says it}


@contextmanager
def _reader(index: str) -> Iterator[Reader]:
    import requests
    from pypi_simple import NoSuchProjectError, PyPISimple

    settings = pipconf.configuration()
    with requests.Session() as session:
        session.headers["Cache-Control"] = "no-cache"
        session.auth = pipconf.credentials(index)
        if settings.certificates:
            session.verify = settings.certificates
        client = PyPISimple(index.rstrip("/") + "/", session=session)

        def offered(project: str) -> dict[str, str | None]:
            try:
                page = client.get_project_page(project, timeout=settings.timeout or 30.0)
            except NoSuchProjectError:
                return {}
            except requests.RequestException as exc:
                problem = f"did not say what it offers ({type(exc).__name__})"
                raise NetworkError(pipconf.redact(index), problem, "check the URL with a browser") from exc
            return {package.filename: package.digests.get("sha256") for package in page.packages}

        yield offered


def _is_there(candidate: Candidate, offered: dict[str, str | None], index: str) -> bool:
    if candidate.offer.filename not in offered:
        return False
    digest = offered[candidate.offer.filename]
    if digest is None:
        problem = f"{pipconf.redact(index)} offers this name without a sha256, so its bytes cannot be compared"
        raise PublishError(candidate.offer.filename, problem, "remove it there by hand, or publish the next revision")
    if digest != candidate.offer.sha256:
        problem = f"{pipconf.redact(index)} holds other bytes under this name (sha256 {digest})"
        raise PublishError(candidate.offer.filename, problem, "raise 'revision' in VERSIONS.toml, build, upload again")
    return True


def _twine(candidate: Candidate, repository: str, report: Callable[[str], None]) -> None:
    command = [sys.executable, "-m", "twine", "upload", "--non-interactive", "--disable-progress-bar"]
    # In the environment, not on the command line, which every user of the machine can read.
    sealed = {"TWINE_USERNAME": "", "TWINE_PASSWORD": ""} | os.environ | {"COLUMNS": "200"}
    user = pipconf.credentials(repository)
    if user is not None:
        sealed |= {"TWINE_USERNAME": user[0], "TWINE_PASSWORD": user[1]}
    url = pipconf.redact(repository)
    done = subprocess.run(
        [*command, "--repository-url", url, str(candidate.path)],
        env=sealed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    said = [line.strip() for line in _COLOUR.sub("", done.stdout).splitlines() if line.strip()]
    for line in said:
        report(line)
    if done.returncode:
        step = "set TWINE_USERNAME and TWINE_PASSWORD if it asks for them; -v shows all that twine said"
        raise NetworkError(url, f"did not take {candidate.path.name}: {said[-1] if said else 'no answer'}", step)


def _await(candidate: Candidate, offered: Reader, index: str) -> None:
    until = time.monotonic() + PATIENCE
    while not _is_there(candidate, offered(candidate.project), index):
        if time.monotonic() > until:
            problem = f"took {candidate.offer.filename}, but does not offer it after {PATIENCE:.0f} seconds"
            raise NetworkError(pipconf.redact(index), problem, "check that --index-url belongs to --repository-url")
        time.sleep(0.5)
