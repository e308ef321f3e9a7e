"""One URL for everything: our projects from the static tree, every other name from the public index."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name, is_normalized_name
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from downstream.index import pages
from downstream.index.folder import HTML_PAGE, JSON_PAGE, METADATA_SUFFIX, IndexFolder
from downstream.index.public import PublicIndex, Route
from downstream.index.relay import relay

PAGE_CACHE = "no-cache"  # kept, but asked about each time: a yank must be seen at once
FILE_CACHE = "public, max-age=31536000, immutable"  # file names never get other bytes
_HTML_KINDS = {pages.HTML: f"{pages.HTML}; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class Shadowing:
    """The ASGI application that decides, name by name, who answers.

    A name that has a page here is ours alone: the public index is never asked
    about it, neither for its page nor for a file.
    """

    folder: IndexFolder
    others: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the server's start and stop, which only a proxy has to know
            await self.others(scope, receive, send)
            return
        request = Request(scope)
        response = self._answer(request) if request.method in {"GET", "HEAD"} else _refused(405, "read-only")
        await (response or self.others)(scope, receive, send)

    def _answer(self, request: Request) -> Response | None:
        match request.url.path.split("/")[1:]:
            case [""] | ["simple"]:
                return RedirectResponse("/simple/", status_code=301)
            case ["simple", ""]:
                return self._page(request, self.folder.simple)
            case ["simple", name] | ["simple", name, ""] if not is_normalized_name(name):
                normalized = canonicalize_name(name)
                known = is_normalized_name(normalized)
                return (
                    RedirectResponse(f"/simple/{normalized}/", status_code=301) if known else _refused(404, "no name")
                )
            case ["simple", name]:
                return RedirectResponse(f"/simple/{name}/", status_code=301)
            case ["simple", name, ""]:
                return self._page(request, self.folder.project_folder(name)) if self._ours(name) else None
            case ["simple", name, filename] if self._ours(canonicalize_name(name)):
                return self._file(name, filename)
            case ["resources", name, _] if not self._ours(canonicalize_name(name)):
                return None
            case _:
                return _refused(404, "not in this index")

    def _ours(self, name: str) -> bool:
        return is_normalized_name(name) and (self.folder.project_folder(name) / JSON_PAGE).is_file()

    def _page(self, request: Request, folder: Path) -> Response:
        accept = request.headers.get("accept", "")
        as_json = pages.wants_json(accept)
        path = folder / (JSON_PAGE if as_json else HTML_PAGE)
        if not path.is_file():
            return _refused(404, "this index is empty")
        content = path.read_bytes()
        wants_v1 = "application/vnd.pypi.simple.v1+html" in accept
        kind = pages.JSON if as_json else "application/vnd.pypi.simple.v1+html" if wants_v1 else pages.HTML
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Vary": "Accept", "Cache-Control": PAGE_CACHE}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=_HTML_KINDS.get(kind, kind), headers=headers)

    def _file(self, project: str, filename: str) -> Response:
        path = self.folder.file(project, filename)
        # Only what a page can name: never a temporary file, a page, or a path out of the folder.
        if not filename.removesuffix(METADATA_SUFFIX).endswith(".whl") or "/" in filename or not path.is_file():
            return _refused(404, "no such file in this index")
        return FileResponse(path, media_type="application/octet-stream", headers={"Cache-Control": FILE_CACHE})


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=status)


def application(folder: IndexFolder, upstream: PublicIndex | None) -> ASGIApp:
    """Return the ASGI application that serves *folder*, and *upstream* for all other names (None: nobody)."""
    if upstream is not None and upstream.route is Route.PROXY:
        return Shadowing(folder, relay(upstream))

    async def elsewhere(scope: Scope, receive: Receive, send: Send) -> None:
        await _elsewhere(upstream, scope["path"])(scope, receive, send)

    return Shadowing(folder, Starlette(routes=[Mount("/", elsewhere)]))


def _elsewhere(upstream: PublicIndex | None, path: str) -> Response:
    if upstream is None:
        return _refused(404, "not in this index, and no public index is configured")
    if not path.startswith("/simple/"):
        return _refused(404, "not in this index")
    headers = {"Vary": "Accept", "Cache-Control": PAGE_CACHE}
    return RedirectResponse(upstream.url + path.removeprefix("/simple/"), status_code=307, headers=headers)
