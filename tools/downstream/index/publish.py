"""Putting wheels into an index, and taking them back without breaking anybody's lock file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from downstream.errors import PublishError, UsageError
from downstream.index import offering
from downstream.index.folder import METADATA_SUFFIX, IndexFolder, copy, existing, sha256_of, write
from downstream.index.offering import Candidate
from downstream.index.pages import Offer, Page, Status
from downstream.progress import SILENT, Progress

SUMS = "SHA256SUMS"


class Outcome(StrEnum):
    """What publishing did with a wheel."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"  # the index already had these bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One wheel, and what became of it."""

    project: str
    filename: str
    sha256: str
    outcome: Outcome


def wheels_in(folder: Path) -> tuple[Path, ...]:
    """Return the wheels that *folder* holds, sorted. Raises UsageError if there are none."""
    found = tuple(sorted(folder.glob("*.whl"))) if folder.is_dir() else ()
    if not found:
        raise UsageError(str(folder), "holds no wheels", "build some: nox -s build_wheels")
    return found


def publish(
    wheels: Sequence[Path], root: Path, *, uploaded: datetime | None = None, progress: Progress = SILENT
) -> tuple[Published, ...]:
    """Add *wheels* to the index at *root*: all are read and compared before anything is written.

    Wheels and metadata go first and pages last, each whole, so a reader never
    sees a page that names a file which is not there. Raises PublishError where
    the index has other bytes under one of the names.
    """
    folder = IndexFolder(root)
    _check_sums(wheels)
    candidates = [offering.read(path, uploaded=uploaded) for path in wheels]
    with folder.locked():
        outcomes = [_compare(folder, candidate) for candidate in candidates]
        total = sum(candidate.offer.size for candidate in candidates)
        with progress.task("publishing", total, "bytes") as task:
            for candidate in candidates:
                _put_files(folder, candidate)
                task.advance(candidate.offer.size, candidate.offer.filename)
        for project in sorted({candidate.project for candidate in candidates}):
            page = folder.page(project)
            ours = [candidate.offer for candidate in candidates if candidate.project == project]
            folder.write_page(page.with_offers(_as_offered(page, offer) for offer in ours))
        folder.write_root()
    return tuple(outcomes)


def _check_sums(wheels: Iterable[Path]) -> None:
    for folder in sorted({path.parent for path in wheels}):
        sums = folder / SUMS
        if not sums.is_file():
            continue
        lines = [line.split(maxsplit=1) for line in sums.read_text(encoding="utf-8").splitlines() if line.strip()]
        stated = {line[-1].removeprefix("*"): line[0] for line in lines}
        for path in (path for path in wheels if path.parent == folder):
            digest = stated.get(path.name)
            if digest is not None and digest != sha256_of(path):
                raise PublishError(str(path), f"is not what {SUMS} beside it says", "build the wheels again")


def _compare(folder: IndexFolder, candidate: Candidate) -> Published:
    offer, known = candidate.offer, folder.page(candidate.project).offer(candidate.offer.filename)
    on_disk = folder.file(candidate.project, offer.filename)
    held = known.sha256 if known else sha256_of(on_disk) if on_disk.exists() else None
    if held is not None and held != offer.sha256:
        problem = f"the index holds other bytes under this name (sha256 {held}, yours {offer.sha256})"
        step = (
            f"file names are immutable: raise 'revision' in VERSIONS.toml, build, and publish {_next_revision(offer)}"
        )
        raise PublishError(offer.filename, problem, step)
    return Published(
        project=candidate.project,
        filename=offer.filename,
        sha256=offer.sha256,
        outcome=Outcome.UNCHANGED if known else Outcome.PUBLISHED,
    )


def _next_revision(offer: Offer) -> str:
    public, local = offer.version.public, offer.version.local or ""
    label, _, number = local.rpartition(".")
    return f"{public}+{label}.{int(number) + 1}" if label and number.isdigit() else "the next revision"


def _as_offered(page: Page, offer: Offer) -> Offer:
    # What publishing decided once stays: the time, and whether it was yanked since.
    known = page.offer(offer.filename)
    return replace(offer, yanked=known.yanked, uploaded=known.uploaded) if known else offer


def _put_files(folder: IndexFolder, candidate: Candidate) -> None:
    path = folder.file(candidate.project, candidate.offer.filename)
    if not path.exists() or sha256_of(path) != candidate.offer.sha256:
        copy(candidate.path, path)
    write(path.with_name(path.name + METADATA_SUFFIX), candidate.metadata)


def yank(root: Path, project: str, version: str, *, reason: str | None, undo: bool = False) -> tuple[str, ...]:
    """Mark every wheel of *project* *version* as yanked (PEP 592), or no longer so; returns their file names.

    A yanked wheel stays where it is: exact pins and lock files still install it.
    """
    if reason is not None and (undo or not reason.strip()):
        raise UsageError(
            "--reason", "goes with a yank and must say something", "leave it out for a yank without reason"
        )
    try:
        wanted = Version(version)
    except InvalidVersion as exc:
        raise UsageError(version, "is no version (PEP 440)") from exc
    folder = existing(root)
    with folder.locked():
        page = folder.page(project)
        chosen = [offer for offer in page.offers if offer.version == wanted]
        if not chosen:
            have = ", ".join(page.versions) or "nothing"
            raise PublishError(
                f"{page.name} {wanted}", f"is not in the index, which has {have}", "give the full version"
            )
        mark = None if undo else reason or True
        folder.write_page(page.with_offers(replace(offer, yanked=mark) for offer in chosen))
    return tuple(offer.filename for offer in chosen)


def set_status(root: Path, project: str, status: Status, *, reason: str = "") -> None:
    """State *project*'s status (PEP 792). Raises PublishError for a project that the index does not have."""
    folder = existing(root)
    with folder.locked():
        if canonicalize_name(project) not in folder.projects():
            raise PublishError(project, f"is not in the index, which has {', '.join(folder.projects()) or 'nothing'}")
        folder.write_page(replace(folder.page(project), status=status, status_reason=reason))


def reserve(root: Path, projects: Iterable[str]) -> tuple[str, ...]:
    """Answer for *projects* with an empty page, so that nobody else's package of that name is ever offered."""
    folder = IndexFolder(root)
    with folder.locked():
        added = tuple(sorted({canonicalize_name(project) for project in projects} - set(folder.projects())))
        for project in added:
            folder.write_page(folder.page(project))
        folder.write_root()
    return added
