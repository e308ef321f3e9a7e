"""Whether an index is what its pages say: every file hashed, every page compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from downstream.errors import DownstreamError
from downstream.index import offering, pages
from downstream.index.folder import HTML_PAGE, JSON_PAGE, LOCK, METADATA_SUFFIX, TEMPORARY, IndexFolder, existing
from downstream.index.pages import Offer, Page
from downstream.progress import SILENT, Progress


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Fault:
    """One thing that is not as the pages say; *path* is relative to the index."""

    path: str
    problem: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was looked at, and what was wrong with it."""

    projects: int
    wheels: int
    faults: tuple[Fault, ...]

    @property
    def clean(self) -> bool:
        return not self.faults


_AGAIN = "publish the wheel again"
_RESTORE = "publish the wheel again from its build, or restore it: file names are immutable"


def verify(root: Path, *, progress: Progress = SILENT) -> Verification:
    """Hash every wheel and compare pages, metadata and files with each other."""
    folder = existing(root)
    faults: list[Fault] = []
    read: list[Page] = []
    for project in folder.projects():
        try:
            read.append(folder.page(project))
        except DownstreamError as exc:
            faults.append(_fault(folder, folder.project_folder(project) / JSON_PAGE, exc.problem, exc.next_step))
    total = sum(offer.size for page in read for offer in page.offers)
    with progress.task("hashing", total, "bytes") as task:
        for page in read:
            faults.extend(_page_faults(folder, page))
            for offer in page.offers:
                faults.extend(_wheel_faults(folder, page, offer))
                task.advance(offer.size, offer.filename)
    faults.extend(_root_faults(folder))
    faults.extend(_strays(folder, read))
    return Verification(
        projects=len(folder.projects()), wheels=sum(len(page.offers) for page in read), faults=tuple(sorted(faults))
    )


def _fault(folder: IndexFolder, path: Path, problem: str, next_step: str) -> Fault:
    return Fault(path=path.relative_to(folder.root).as_posix(), problem=problem, next_step=next_step)


def _differs(path: Path, content: bytes) -> bool:
    return not path.is_file() or path.read_bytes() != content


def _page_faults(folder: IndexFolder, page: Page) -> Iterator[Fault]:
    for name, content in ((JSON_PAGE, pages.project_json(page)), (HTML_PAGE, pages.project_html(page))):
        path = folder.project_folder(page.name) / name
        if _differs(path, content):
            yield _fault(folder, path, "does not agree with the other pages", "publish any wheel of the project again")


def _root_faults(folder: IndexFolder) -> Iterator[Fault]:
    names = folder.projects()
    for name, content in ((JSON_PAGE, pages.root_json(names)), (HTML_PAGE, pages.root_html(names))):
        if _differs(folder.simple / name, content):
            yield _fault(folder, folder.simple / name, "does not list the projects that are there", _AGAIN)


def _wheel_faults(folder: IndexFolder, page: Page, offer: Offer) -> Iterator[Fault]:
    path = folder.file(page.name, offer.filename)
    beside = path.with_name(path.name + METADATA_SUFFIX)
    if not path.is_file():
        yield _fault(folder, path, "is offered but not there", _AGAIN)
        return
    try:
        actual = offering.read(path, uploaded=offer.uploaded)
    except DownstreamError as exc:
        yield _fault(folder, path, exc.problem, _RESTORE)
        return
    if actual.offer.sha256 != offer.sha256:
        yield _fault(folder, path, f"has sha256 {actual.offer.sha256}, the page says {offer.sha256}", _RESTORE)
    elif actual.offer.size != offer.size:
        yield _fault(folder, path, f"has {actual.offer.size} bytes, the page says {offer.size}", _AGAIN)
    if actual.offer.requires_python != offer.requires_python:
        stated = f"requires Python {actual.offer.requires_python}, the page says {offer.requires_python}"
        yield _fault(folder, path, stated, _AGAIN)
    if actual.project != page.name:
        yield _fault(folder, path, f"is a wheel of {actual.project}", "remove it")
    if not beside.is_file():
        yield _fault(folder, beside, "is announced but not there", _AGAIN)
    elif beside.read_bytes() != actual.metadata:
        yield _fault(folder, beside, "is not the METADATA that the wheel holds", _AGAIN)
    if hashlib.sha256(actual.metadata).hexdigest() != offer.metadata_sha256:
        yield _fault(folder, path, "holds a METADATA of another sha256 than the page says", _RESTORE)


def _strays(folder: IndexFolder, read: list[Page]) -> Iterator[Fault]:
    known = {folder.simple / HTML_PAGE, folder.simple / JSON_PAGE, folder.root / LOCK}
    for project in folder.projects():
        known |= {folder.project_folder(project) / HTML_PAGE, folder.project_folder(project) / JSON_PAGE}
    for page in read:
        for offer in page.offers:
            path = folder.file(page.name, offer.filename)
            known |= {path, path.with_name(path.name + METADATA_SUFFIX)}
    for path in sorted(folder.simple.rglob("*")):
        if path.is_file() and path not in known:
            left = path.name.startswith(TEMPORARY) or path.name.removesuffix(METADATA_SUFFIX).endswith(".whl")
            why = "is left from a publish that was interrupted" if left else "is no part of the index"
            yield _fault(folder, path, why, _AGAIN if left else "remove it")
