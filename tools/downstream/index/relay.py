"""Passing the public index through, page by page and file by file, for clients that reach nothing but us.

The pages are kept as the public index wrote them, but for the addresses of the
files. (simple-repository's proxy was tried: it quotes ``%2B`` a second time,
drops the project status, and takes a second of CPU for a page of 10,000 files.)
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin, urlsplit

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from downstream.index import pages
from downstream.index.public import PublicIndex
from downstream.trees import pipconf

if TYPE_CHECKING:
    import httpx

MEMORY = 120.0  # seconds for which a page is not asked for again
METADATA_SUFFIX = ".metadata"
_ACCEPT = f"{pages.JSON}, application/vnd.pypi.simple.v1+html;q=0.2, {pages.HTML};q=0.1"
_TO_INDEX = ("accept-encoding", "if-match", "if-modified-since", "if-none-match", "if-range", "range", "user-agent")
_TO_CLIENT = (
    "accept-ranges",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "etag",
    "last-modified",
)


class _SilentError(Exception):
    """The public index gave no answer that could be passed on."""


@dataclass(frozen=True, slots=True)
class _Foreign:
    """A page of the public index: with our addresses for its files, and where they really are."""

    document: dict[str, Any]
    urls: dict[str, str]  # file name -> URL
    until: float  # monotonic seconds


@dataclass(slots=True)
class _Relay:
    upstream: PublicIndex
    client: httpx.AsyncClient
    recent: dict[str, _Foreign] = field(default_factory=dict)

    async def page(self, request: Request) -> Response:
        foreign = await self._page(request.path_params["name"])
        if foreign is None:
            return PlainTextResponse("the public index has no such project\n", status_code=404)
        as_json = pages.wants_json(request.headers.get("accept", ""))
        content = await run_in_threadpool(_compact if as_json else pages.html_of, foreign.document)
        headers = {"Vary": "Accept", "Cache-Control": f"max-age={MEMORY:.0f}"}
        return Response(content, media_type=pages.JSON if as_json else pages.HTML, headers=headers)

    async def file(self, request: Request) -> Response:
        foreign = await self._page(request.path_params["name"])
        filename: str = request.path_params["filename"]
        url = foreign.urls.get(filename) if foreign else None
        if url is None:
            return PlainTextResponse("the public index has no such file\n", status_code=404)
        headers = {name: request.headers[name] for name in _TO_INDEX if name in request.headers}
        headers.setdefault("accept-encoding", "identity")
        answer = await self._send(request.method, url, headers)
        return StreamingResponse(
            answer.aiter_raw(),
            status_code=answer.status_code,
            headers={name: answer.headers[name] for name in _TO_CLIENT if name in answer.headers},
            background=BackgroundTask(answer.aclose),
        )

    async def _page(self, name: str) -> _Foreign | None:
        now = time.monotonic()
        self.recent = {known: page for known, page in self.recent.items() if page.until > now}
        if name not in self.recent:
            answer = await self._send("GET", f"{self.upstream.url}{name}/", {"accept": _ACCEPT})
            content = await answer.aread()
            await answer.aclose()
            if answer.status_code == 404:
                return None
            if answer.status_code != 200:
                raise _SilentError(f"status {answer.status_code}")
            kind = answer.headers.get("content-type", "")
            self.recent[name] = await run_in_threadpool(_foreign, name, content, kind, str(answer.url), now + MEMORY)
        return self.recent[name]

    async def _send(self, method: str, url: str, headers: dict[str, str]) -> httpx.Response:
        import httpx

        here, there = urlsplit(self.upstream.url), urlsplit(url)
        secret = pipconf.credentials(self.upstream.url) if here.hostname == there.hostname else None
        request = self.client.build_request(method, pipconf.redact(url) if secret else url, headers=headers)
        try:
            return await self.client.send(request, stream=True, auth=secret, follow_redirects=True)
        except httpx.HTTPError as exc:
            raise _SilentError(type(exc).__name__) from exc


def _compact(document: dict[str, Any]) -> bytes:
    # Without indentation: only so is json's C encoder used, and some pages hold 10,000 files.
    return json.dumps(document, separators=(",", ":")).encode()


def _foreign(name: str, content: bytes, kind: str, url: str, until: float) -> _Foreign:
    try:
        document = json.loads(content) if "+json" in kind else _from_html(name, content, url)
        urls: dict[str, str] = {}
        for fields in document["files"]:
            address = urljoin(url, fields["url"]).partition("#")[0]
            urls[fields["filename"]] = address
            if fields.get("core-metadata"):
                urls[fields["filename"] + METADATA_SUFFIX] = address + METADATA_SUFFIX
            fields["url"] = f"../../resources/{name}/{quote(fields['filename'])}"
    except (KeyError, TypeError, ValueError) as exc:
        raise _SilentError(f"a page that cannot be read: {type(exc).__name__}") from exc
    return _Foreign(document, urls, until)


def _from_html(name: str, content: bytes, url: str) -> dict[str, Any]:
    from pypi_simple import ProjectPage

    page = ProjectPage.from_html(name, content, base_url=url, from_encoding="utf-8")
    files = []
    for package in page.packages:
        fields: dict[str, Any] = {"filename": package.filename, "url": package.url, "hashes": dict(package.digests)}
        if package.requires_python:
            fields["requires-python"] = package.requires_python
        if package.has_metadata:
            fields["core-metadata"] = dict(package.metadata_digests or {}) or True
        if package.is_yanked:
            fields["yanked"] = package.yanked_reason or True
        files.append(fields)
    # 1.0: sizes, which later versions must state, are not known.
    return {"meta": {"api-version": "1.0"}, "name": page.project, "files": files}


def relay(upstream: PublicIndex) -> Starlette:
    """Return the application that answers with *upstream*'s pages and files."""
    import httpx

    passing = _Relay(
        upstream,
        httpx.AsyncClient(  # set up as pip is
            verify=ssl.create_default_context(cafile=upstream.certificates or None),
            proxy=upstream.proxy or None,
            timeout=upstream.timeout,
        ),
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with passing.client:
            yield

    async def silent(_: Request, exc: Exception) -> Response:
        # Not 404: a client must not take a silent public index for one that lacks the name.
        return PlainTextResponse(f"the public index did not answer ({exc})\n", status_code=502)

    routes = [Route("/simple/{name}/", passing.page), Route("/resources/{name}/{filename}", passing.file)]
    return Starlette(routes=routes, exception_handlers={_SilentError: silent}, lifespan=lifespan)
