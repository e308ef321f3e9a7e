"""The pages of an index: one model, written as JSON (PEP 691, 700, 792) and as HTML (PEP 503, 629, 592, 714)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from html import escape
from typing import Any
from urllib.parse import quote

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from downstream.errors import PublishError

API_VERSION = "1.4"  # the first with project status (PEP 792)
JSON = "application/vnd.pypi.simple.v1+json"
HTML = "text/html"


class Status(StrEnum):
    """The project status markers of PEP 792."""

    ACTIVE = "active"
    ARCHIVED = "archived"  # no further uploads are to be expected
    QUARANTINED = "quarantined"  # must not be offered for installation
    DEPRECATED = "deprecated"  # superseded; the reason says by what


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One wheel as a page offers it. *yanked* is None, True, or the (non-empty) reason."""

    filename: str
    sha256: str
    size: int  # bytes
    metadata_sha256: str
    requires_python: str | None
    uploaded: datetime  # UTC
    yanked: bool | str | None = None

    @property
    def version(self) -> Version:
        return parse_wheel_filename(self.filename)[1]

    @property
    def href(self) -> str:
        # '+' means a blank to some file servers, so it is quoted, and only once.
        return quote(self.filename)

    @property
    def reason(self) -> str:
        return self.yanked if isinstance(self.yanked, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One project: its wheels, oldest version first, and its status."""

    name: str  # normalized
    offers: tuple[Offer, ...] = ()
    status: Status = Status.ACTIVE
    status_reason: str = ""

    def offer(self, filename: str) -> Offer | None:
        return next((offer for offer in self.offers if offer.filename == filename), None)

    def with_offers(self, offers: Iterable[Offer]) -> Page:
        """Return the page with *offers* added, or in the place of those of the same file name."""
        merged = {offer.filename: offer for offer in self.offers} | {offer.filename: offer for offer in offers}
        ordered = sorted(merged.values(), key=lambda offer: (offer.version, offer.filename))
        return Page(name=self.name, offers=tuple(ordered), status=self.status, status_reason=self.status_reason)

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(str(version) for version in sorted({offer.version for offer in self.offers}))


def project_json(page: Page) -> bytes:
    """Return *page* as PEP 691 wants it, versions, sizes and times included (PEP 700)."""
    return _dump(_document(page))


def project_html(page: Page) -> bytes:
    """Return *page* as PEP 503 wants it."""
    return html_of(_document(page))


def _document(page: Page) -> dict[str, Any]:
    status = {"status": page.status.value} | ({"reason": page.status_reason} if page.status_reason else {})
    # A quarantined project offers nothing (PEP 792), but what it had must not be forgotten.
    offers, held = ((), page.offers) if page.status is Status.QUARANTINED else (page.offers, ())
    document: dict[str, Any] = {
        "meta": {"api-version": API_VERSION},
        "name": page.name,
        "project-status": status,
        "versions": list(page.versions) if offers else [],
        "files": [_file(offer) for offer in offers],
    }
    if held:
        document["_held"] = [_file(offer) for offer in held]  # PEP 700: a leading underscore is the server's own
    return document


def _file(offer: Offer) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "filename": offer.filename,
        "url": offer.href,
        "hashes": {"sha256": offer.sha256},
        "size": offer.size,
        "upload-time": offer.uploaded.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        # Not also as dist-info-metadata: pip before 23.1.1 breaks on a dict there (PEP 714).
        "core-metadata": {"sha256": offer.metadata_sha256},
    }
    if offer.requires_python is not None:
        fields["requires-python"] = offer.requires_python
    if offer.yanked:
        fields["yanked"] = offer.yanked  # never "": pip and uv read it differently
    return fields


def html_of(document: dict[str, Any]) -> bytes:
    """Return a project page in JSON, of any index, as HTML (PEP 503, 629, 592, 714, 792)."""
    status = document.get("project-status") or {"status": Status.ACTIVE.value}
    metas = [
        ("pypi:repository-version", str(document["meta"]["api-version"])),
        ("pypi:project-status", str(status["status"])),
    ]
    if status.get("reason"):
        metas.append(("pypi:project-status-reason", str(status["reason"])))
    return _html(f"Links for {document['name']}", metas, [_anchor(fields) for fields in document["files"]])


def _anchor(fields: dict[str, Any]) -> str:
    digest = _digest(fields.get("hashes"))
    metadata = _digest(fields.get("core-metadata"))
    attributes = {"href": fields["url"] + (f"#{digest}" if digest else "")}
    if metadata:
        attributes |= {"data-core-metadata": metadata, "data-dist-info-metadata": metadata}
    if fields.get("requires-python"):
        attributes["data-requires-python"] = fields["requires-python"]
    if fields.get("yanked"):
        attributes["data-yanked"] = "" if fields["yanked"] is True else str(fields["yanked"])
    text = " ".join(f'{name}="{escape(value)}"' for name, value in attributes.items())
    return f"<a {text}>{escape(fields['filename'])}</a><br>"


def _digest(hashes: object) -> str:
    """Return one of *hashes* as HTML names it, ``true`` for the bare promise that there is a file."""
    if isinstance(hashes, dict) and hashes:
        kind = "sha256" if "sha256" in hashes else min(hashes)
        return f"{kind}={hashes[kind]}"
    return "true" if hashes is True else ""


def root_json(names: Iterable[str]) -> bytes:
    return _dump({"meta": {"api-version": API_VERSION}, "projects": [{"name": name} for name in sorted(names)]})


def root_html(names: Iterable[str]) -> bytes:
    anchors = [f'<a href="{name}/">{name}</a><br>' for name in sorted(names)]
    return _html("Simple index", [("pypi:repository-version", API_VERSION)], anchors)


def parse_project(content: bytes, *, place: str) -> Page:
    """Read what project_json wrote. Raises PublishError with *place* for anything else."""
    try:
        raw = json.loads(content)
        files = [*raw["files"], *raw.get("_held", ())]
        return Page(
            name=canonicalize_name(raw["name"]),
            offers=tuple(_offer(fields) for fields in files),
            status=Status(raw["project-status"]["status"]),
            status_reason=str(raw["project-status"].get("reason", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        problem = f"is no project page of ours ({type(exc).__name__}: {exc})"
        raise PublishError(place, problem, "restore the file, or publish into an empty folder") from exc


def _offer(fields: dict[str, Any]) -> Offer:
    yanked = fields.get("yanked")
    if yanked is not None and yanked is not True and not (isinstance(yanked, str) and yanked):
        raise ValueError(f"yanked is {yanked!r}, it must be true or a reason")
    parse_wheel_filename(fields["filename"])
    return Offer(
        filename=fields["filename"],
        sha256=fields["hashes"]["sha256"],
        size=int(fields["size"]),
        metadata_sha256=fields["core-metadata"]["sha256"],
        requires_python=fields.get("requires-python"),
        uploaded=datetime.strptime(fields["upload-time"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC),
        yanked=yanked,
    )


def wants_json(accept: str) -> bool:
    """Whether an Accept header prefers JSON to HTML (RFC 9110, 12.5.1); HTML where it does not say."""
    weights = {"json": 0.0, "html": 0.0}
    for item in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in item.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if kind in {JSON, "application/vnd.pypi.simple.latest+json"}:
            weights["json"] = max(weights["json"], weight)
        elif kind in {"application/vnd.pypi.simple.v1+html", "application/vnd.pypi.simple.latest+html", HTML, "*/*"}:
            weights["html"] = max(weights["html"], weight)
    return weights["json"] > 0 and weights["json"] >= weights["html"]


def _dump(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=True) + "\n").encode()


def _html(title: str, metas: Iterable[tuple[str, str]], lines: Iterable[str]) -> bytes:
    head = [f'<meta name="{name}" content="{escape(content)}">' for name, content in metas]
    body = [f"<h1>{escape(title)}</h1>", *lines]
    start = ["<!DOCTYPE html>", "<html>", "<head>", '<meta charset="utf-8">', *head]
    text = [*start, f"<title>{escape(title)}</title>", "</head>", "<body>", *body, "</body>", "</html>", ""]
    return "\n".join(text).encode()
