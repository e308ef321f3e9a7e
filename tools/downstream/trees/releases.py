"""What an index has published for a package, release by release.

The simple API (PEP 503, 691, 700) through pypi-simple, kept in the cache: a
listing younger than MAX_AGE (or than the server's own max-age) is used as it
is, an older one is revalidated where the server gives an ETag or a date.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from downstream.errors import NetworkError, OfflineError, TreeError
from downstream.pins import canonical_name
from downstream.trees.pipconf import file_path, file_url, redact
from downstream.trees.session import ONLINE, Session

if TYPE_CHECKING:
    from pypi_simple import DistributionPackage

    from downstream.trees.wire import Reply

MAX_AGE = 600.0  # seconds; what public indexes say themselves

_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFile:
    """One published file. ``sha256`` is empty and ``size`` None where the index does not tell them."""

    name: str
    url: str  # without login
    sha256: str
    size: int | None
    uploaded: str | None  # ISO 8601, UTC
    yanked: bool
    requires_python: str | None

    @property
    def is_wheel(self) -> bool:
        return self.name.endswith(".whl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One published version and its files, in order of name. Yanked when every file is."""

    version: Version
    files: tuple[ReleaseFile, ...]
    yanked: bool

    @property
    def prerelease(self) -> bool:
        return self.version.is_prerelease

    @property
    def uploaded(self) -> str | None:
        """When its first file was uploaded."""
        return min((file.uploaded for file in self.files if file.uploaded), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All that the configured indexes say about one package.

    ``skipped`` names the files that are no release of the upstream: versions
    that are none (PEP 440), and local versions (our own builds are such).
    """

    package: str
    releases: tuple[Release, ...]  # by version
    skipped: tuple[str, ...]

    def release(self, version: Version) -> Release | None:
        return next((release for release in self.releases if release.version == version), None)


def releases(package: str, *, session: Session) -> tuple[Release, ...]:
    """Return every release of *package*, sorted by version; pre-releases and yanked ones are among them.

    Raises NetworkError; OfflineError where the cache has no listing.
    """
    return listing(package, session=session).releases


def latest(package: str, *, session: Session, pre: bool = False) -> Release:
    """Return the newest release that is not yanked; a pre-release only if *pre*, or if there is nothing else.

    Raises TreeError where there is none at all.
    """
    candidates = [release for release in releases(package, session=session) if not release.yanked]
    final = [release for release in candidates if pre or not release.prerelease]
    if not candidates:
        raise TreeError(package, "has no release on the configured index", "check the index: pip config list")
    return (final or candidates)[-1]


def listing(package: str, *, session: Session, max_age: float | None = None) -> Listing:
    """Return what the indexes say about *package*, not older than *max_age* seconds unless offline."""
    kept = _kept(package, session)
    if session.offline:
        if kept is None:
            raise OfflineError(f"releases of {package}", "are not in the cache", ONLINE)
        return _parsed(package, kept["files"])
    identity = _identity(session)
    if kept is not None and kept["indexes"] == identity:
        age = time.time() - kept["fetched"]
        if 0 <= age < (kept["max_age"] if max_age is None else max_age):
            return _parsed(package, kept["files"])
    else:
        kept = None  # pip asks another index now
    fresh = _fetched(package, session, identity, (kept or {}).get("pages", {}))
    session.cache.write(_entry(package), json.dumps(fresh, separators=(",", ":")).encode())
    return _parsed(package, fresh["files"])


def known(package: str, version: Version, *, session: Session) -> Release | None:
    """Return a release from the kept listing, whatever its age: what is published does not change."""
    kept = _kept(package, session)
    if kept is None:
        return None
    rows = [row for row in kept["files"] if row[0] == str(version)]
    return _parsed(package, rows).release(version) if rows else None


def _entry(package: str) -> str:
    return f"index/{canonical_name(package)}.json"


def _kept(package: str, session: Session) -> dict[str, Any] | None:
    content = session.cache.read(_entry(package))
    found = json.loads(content) if content is not None else None
    return found if isinstance(found, dict) and found.get("schema") == _SCHEMA else None


def _identity(session: Session) -> str:
    """A name for the indexes asked, without the logins in their URLs."""
    shown = "\n".join(redact(url) if url else "" for url in session.pip.indexes)
    return hashlib.sha256(shown.encode("utf-8", "surrogateescape")).hexdigest()


def _parsed(package: str, rows: Iterable[list[Any]]) -> Listing:
    grouped: dict[str, list[ReleaseFile]] = {}
    skipped = []
    for version, name, url, sha256, size, uploaded, yanked, requires_python in rows:
        file = ReleaseFile(
            name=name,
            url=url,
            sha256=sha256,
            size=size,
            uploaded=uploaded,
            yanked=yanked,
            requires_python=requires_python,
        )
        if version is None:
            skipped.append(name)
        else:
            grouped.setdefault(version, []).append(file)
    found = [
        Release(version=Version(version), files=tuple(files), yanked=all(file.yanked for file in files))
        for version, files in grouped.items()
    ]
    return Listing(
        package=package,
        releases=tuple(sorted(found, key=lambda release: release.version)),
        skipped=tuple(sorted(skipped)),
    )


def _fetched(package: str, session: Session, identity: str, pages: dict[str, Any]) -> dict[str, Any]:
    if session.pip.no_index:
        step = "unset no-index, and name an index with index-url (find-links is not followed)"
        raise NetworkError("pip", "is configured to ask no index (no-index)", step)
    rows: dict[str, list[Any]] = {}
    kept_pages, ages, found = {}, [], False
    with session.progress.task(f"releases of {package}", len(session.pip.indexes)) as task:
        for number, index in enumerate(session.pip.indexes):
            page = _page(package, index, session, pages.get(str(number)))
            task.advance()
            if page is None:
                continue
            found = True
            ages.append(page["max_age"])
            kept_pages[str(number)] = {key: page[key] for key in ("etag", "modified", "rows")}
            for row in page["rows"]:
                rows.setdefault(row[1], row)  # as pip: the first index that has a file is asked for it
    if not found:
        step = "check the index: pip config list" + (" (find-links is not followed)" if session.pip.find_links else "")
        raise NetworkError(package, "is on none of the configured indexes", step)
    return {
        "schema": _SCHEMA,
        "indexes": identity,
        "fetched": time.time(),
        "max_age": min(ages),
        # One index is the rule: its rows are the files, and need not be kept twice.
        "pages": {key: page for key, page in kept_pages.items() if page["etag"] or page["modified"]},
        "files": [rows[name] for name in sorted(rows)],
    }


def _page(package: str, index: str, session: Session, before: dict[str, Any] | None) -> dict[str, Any] | None:
    """Read the package's page of one index; None where that index does not have it."""
    from pypi_simple import ACCEPT_ANY, PYPI_SIMPLE_ENDPOINT

    url = (index or PYPI_SIMPLE_ENDPOINT) + canonical_name(package) + "/"
    if (folder := file_path(url)) is not None:
        return _local_page(package, folder / "index.html")
    headers = {"Accept": ACCEPT_ANY}
    if before:
        headers |= {"If-None-Match": before["etag"]} if before["etag"] else {"If-Modified-Since": before["modified"]}

    def take(reply: Reply) -> dict[str, Any] | None:
        if reply.status in (404, 410):
            return None
        if reply.status == 304 and before:
            rows = before["rows"]
        elif reply.status == 200:
            rows = _rows(package, reply.headers.get("Content-Type", ""), reply.body(), reply.url)
        else:
            raise NetworkError(
                redact(url),
                f"the index answered {reply.status} {reply.reason}".rstrip(),
                "check the index and its login: pip config list",
            )
        return {
            "rows": rows,
            "etag": reply.headers.get("ETag", "") or (before or {}).get("etag", ""),
            "modified": reply.headers.get("Last-Modified", ""),
            "max_age": _max_age(reply.headers.get("Cache-Control", "")),
        }

    return session.get(url, headers, take)


def _local_page(package: str, path: Any) -> dict[str, Any] | None:
    try:
        html = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise NetworkError(str(path), f"cannot be read: {exc.strerror}", "check the index: pip config list") from exc
    return {"rows": _rows(package, "text/html", html, file_url(path)), "etag": "", "modified": "", "max_age": 0.0}


def _max_age(header: str) -> float:
    for word in header.lower().split(","):
        name, _, value = word.strip().partition("=")
        if name in ("no-store", "no-cache"):
            return 0.0
        if name == "max-age" and value.isdigit():
            return float(min(int(value), 24 * 3600))
    return MAX_AGE


def _rows(package: str, kind: str, body: bytes, url: str) -> list[list[Any]]:
    from pypi_simple import ProjectPage, UnsupportedRepoVersionError

    place = redact(url)
    kind = kind.partition(";")[0].strip().lower()
    try:
        if kind in ("application/vnd.pypi.simple.v1+json", "application/json"):
            page = ProjectPage.from_json_data(json.loads(body), base_url=url)
        elif kind in ("application/vnd.pypi.simple.v1+html", "text/html", ""):
            page = ProjectPage.from_html(package, body, base_url=url)
        else:
            step = "check pip's index-url: it must be a simple index (PEP 503 or 691)"
            raise NetworkError(place, f"is a page of type {kind!r}, not an index", step)
    except (ValueError, KeyError, TypeError, UnsupportedRepoVersionError) as exc:
        step = "check pip's index-url: it must be a simple index (PEP 503 or 691)"
        raise NetworkError(place, f"is no page of a simple index ({type(exc).__name__})", step) from exc
    return [_row(file) for file in page.packages]


def _row(file: DistributionPackage) -> list[Any]:
    version: str | None
    try:
        parsed = Version(file.version or "")
        # Our own builds carry a local version; no upstream publishes one.
        version = None if parsed.local else str(parsed)
    except InvalidVersion:
        version = None
    uploaded = file.upload_time.isoformat() if file.upload_time else None
    digest = file.digests.get("sha256", "").lower()
    url = file.url if file_path(file.url) is not None else _without_login(file.url)
    return [version, file.filename, url, digest, file.size, uploaded, file.is_yanked, file.requires_python]


def _without_login(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
