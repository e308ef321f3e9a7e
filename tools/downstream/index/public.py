"""The public index behind ours: which one it is, and how clients get at it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from downstream.errors import UsageError
from downstream.trees import pipconf


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
