"""What ``--upstream`` asks for: one upstream and one of its releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from downstream.errors import TreeError, UsageError
from downstream.pins import Line, Upstream
from downstream.trees import releases as published
from downstream.trees.open import near_versions
from downstream.trees.session import Session

LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Target:
    """A release that a series is to be carried to."""

    upstream: Upstream
    version: Version

    def __str__(self) -> str:
        return f"{self.upstream.name} {self.version}"


def targets(text: str, line: Line, session: Session) -> tuple[Target, ...]:
    """Read ``v0.6.12``, ``0.6.12``, ``flashinfer=v0.6.12``, ``latest`` or ``flashinfer=latest``.

    ``latest`` alone means that of each upstream of *line*. Raises UsageError
    where the version is none, or belongs to several upstreams; TreeError where
    no upstream has published it.
    """
    name, equals, asked = text.rpartition("=")
    upstreams = {pin.upstream.name: pin.upstream for pin in line.pins.values()}
    if equals:
        if name not in upstreams:
            raise UsageError(text, f"line '{line.name}' has no upstream '{name}'", f"choose: {', '.join(upstreams)}")
        upstreams = {name: upstreams[name]}
    if asked == LATEST:
        return tuple(
            Target(upstream, published.latest(upstream.package, session=session).version)
            for upstream in upstreams.values()
        )
    version = _version(asked, text, upstreams)
    having = {
        upstream.name: Target(upstream, version) for upstream in upstreams.values() if _has(upstream, version, session)
    }
    if not having:
        # A listing kept from before the release would not know it: ask again before saying no.
        having = {u.name: Target(u, version) for u in upstreams.values() if _has(u, version, session, fresh=True)}
    if len(having) > 1:
        choices = " or ".join(f"--upstream {upstream}={asked}" for upstream in having)
        raise UsageError(text, f"{' and '.join(having)} both have a release {version}", f"say which: {choices}")
    if not having:
        raise TreeError(
            text, f"no upstream of line '{line.name}' has a release {version}", _near(version, upstreams, session)
        )
    return tuple(having.values())


def _version(asked: str, text: str, upstreams: Mapping[str, Upstream]) -> Version:
    for upstream in upstreams.values():
        before, _, after = upstream.tag.partition("{version}")
        if before and asked.startswith(before) and asked.endswith(after):
            asked = asked[len(before) : len(asked) - len(after)]
            break
    try:
        return Version(asked)
    except InvalidVersion as exc:
        step = "write it as v0.6.12, flashinfer=v0.6.12 or latest"
        raise UsageError(text, f"'{asked}' is no version (PEP 440)", step) from exc


def _has(upstream: Upstream, version: Version, session: Session, *, fresh: bool = False) -> bool:
    if published.known(upstream.package, version, session=session) is not None:
        return True
    if session.offline and fresh:
        return False
    # Only the answer "no" may be out of date, and it is asked again before it is given.
    age = 0.0 if fresh else float("inf")
    return published.listing(upstream.package, session=session, max_age=age).release(version) is not None


def _near(version: Version, upstreams: Mapping[str, Upstream], session: Session) -> str:
    parts = []
    for upstream in upstreams.values():
        known = [release.version for release in published.releases(upstream.package, session=session)]
        near = near_versions(version, known)
        if near:
            parts.append(f"{upstream.name} has {', '.join(map(str, near))}")
    return "; ".join(parts) or "check the index: pip config list"
