"""The public index behind ours: which one it is, and how its answers reach a client."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from downstream.errors import UsageError
from downstream.trees import pipconf

if TYPE_CHECKING:
    import httpx
    from fastapi import FastAPI

MEMORY = 60.0  # seconds a proxied page is remembered, for the files that are asked for next


class Route(StrEnum):
    """How a client gets at other people's projects."""

    REDIRECT = "redirect"  # it is sent to the public index
    PROXY = "proxy"  # pages and files pass through us, for hosts that reach nothing else


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicIndex:
    """The index that answers for every name that is not ours; *url* ends in a slash and may hold credentials."""

    url: str
    route: Route
    certificates: str = ""
    proxy: str = ""
    timeout: float = 30.0  # seconds


def configured(url: str | None = None, route: Route | None = None) -> PublicIndex:
    """Return the public index at *url*, by default the one that pip is configured with.

    Credentials stay here: an index that needs them is proxied, and asking for
    a redirect to it raises UsageError.
    """
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    settings = pipconf.configuration()
    chosen = url or settings.indexes[0] or PYPI_SIMPLE_ENDPOINT
    shown = pipconf.redact(chosen)
    if not chosen.startswith(("http://", "https://")):
        raise UsageError(shown, "is no http(s) address of an index", "name one with --upstream-index")
    secret = pipconf.credentials(chosen) is not None
    if secret and route is Route.REDIRECT:
        raise UsageError(shown, "needs a password, which a redirect would give away", "use --others proxy")
    return PublicIndex(
        url=chosen.rstrip("/") + "/",
        route=route or (Route.PROXY if secret else Route.REDIRECT),
        certificates=settings.certificates,
        proxy=settings.proxy,
        timeout=settings.timeout or 30.0,
    )


def _client(upstream: PublicIndex) -> httpx.AsyncClient:
    # Set up as pip is.
    import httpx

    return httpx.AsyncClient(
        verify=ssl.create_default_context(cafile=upstream.certificates or None),
        proxy=upstream.proxy or None,
        timeout=upstream.timeout,
        follow_redirects=True,
    )


def proxy(upstream: PublicIndex) -> FastAPI:
    """Return the application that answers with the public index's pages and files, streamed."""
    import httpx
    from fastapi import FastAPI
    from simple_repository import errors, model
    from simple_repository.components.http import HttpRepository
    from simple_repository_server.routers.simple import build_router

    fetching = _client(upstream)

    class Remembering(HttpRepository):
        """An installer asks for a page and then for its files: one fetch of the page does for both."""

        def __init__(self) -> None:
            super().__init__(upstream.url, fetching)
            self._recent: dict[str, tuple[float, model.ProjectDetail]] = {}

        async def get_project_page(
            self, project_name: str, *, request_context: model.RequestContext | None = None
        ) -> model.ProjectDetail:
            now = time.monotonic()
            self._recent = {name: kept for name, kept in self._recent.items() if now - kept[0] < MEMORY}
            if project_name not in self._recent:
                page = await super().get_project_page(project_name, request_context=request_context)
                self._recent[project_name] = (now, page)
            return self._recent[project_name][1]

        async def get_resource(
            self, project_name: str, resource_name: str, *, request_context: model.RequestContext | None = None
        ) -> model.Resource:
            page = await self.get_project_page(project_name, request_context=request_context)
            if resource_name.endswith(".metadata"):
                return await self.get_metadata(page, resource_name)
            for file in page.files:
                if file.filename == resource_name:
                    return model.HttpResource(url=file.url)
            raise errors.ResourceUnavailable(resource_name)

    async def unavailable(_: Request, exc: Exception) -> Response:
        # Not 404: a client must not take a silent public index for one that lacks the name.
        return PlainTextResponse(f"the public index did not answer ({type(exc).__name__})\n", status_code=502)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with fetching:
            yield

    app = FastAPI(openapi_url=None, lifespan=lifespan)
    app.include_router(build_router(Remembering(), http_client=fetching, stream_http_resources=True))
    for failure in (errors.SourceRepositoryUnavailable, errors.UnsupportedSerialization, httpx.HTTPError):
        app.add_exception_handler(failure, unavailable)

    async def missing(_: Request, exc: Exception) -> Response:
        return PlainTextResponse(f"{exc}\n", status_code=404)

    app.add_exception_handler(errors.PackageNotFoundError, missing)

    @app.middleware("http")
    async def vary(request: Request, call_next):  # type: ignore[no-untyped-def]
        response = await call_next(request)
        response.headers["Vary"] = "Accept"
        return response

    return app
