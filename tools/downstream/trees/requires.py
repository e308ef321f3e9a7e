"""What a published wheel demands of its siblings: the ``requires`` of a pin, from its METADATA."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from downstream.errors import PinError, WheelError
from downstream.pins import FILE, Line, Upstream
from downstream.trees.open import open_pin
from downstream.trees.session import Session
from downstream.trees.wheel import WheelTree


def demands(tree: WheelTree, siblings: Iterable[Upstream]) -> dict[str, str]:
    """Return package -> specifiers of what *tree*'s METADATA requires of *siblings*, unconditionally or by platform.

    What only an extra asks for is left out. Raises WheelError where METADATA is absent or malformed.
    """
    packages = {canonicalize_name(upstream.package): upstream.package for upstream in siblings}
    found: dict[str, list[str]] = {}
    for text in _metadata(tree).get_all("Requires-Dist", []):
        try:
            requirement = Requirement(str(text))
        except InvalidRequirement as exc:
            raise WheelError(tree.name, f"requires what cannot be read: {text!r}", "report it upstream") from exc
        package = packages.get(canonicalize_name(requirement.name))
        if package is None or (requirement.marker is not None and "extra" in str(requirement.marker)):
            continue
        found.setdefault(package, []).append(str(requirement.specifier))
    return {package: ",".join(sorted(set(filter(None, wanted)))) for package, wanted in sorted(found.items())}


def verify(line: Line, session: Session) -> None:
    """Compare each pin's ``requires`` with the METADATA of its published wheel.

    Raises PinError where they differ; NetworkError or OfflineError where the wheel cannot be read.
    """
    for pin in line.pins.values():
        siblings = [other.upstream for other in line.pins.values() if other is not pin]
        published = demands(open_pin(pin, session), siblings)
        if published != _named(pin.requires, published):
            raise PinError(
                FILE,
                f"[lines.{line.name}.{pin.upstream.name}] requires {_shown(pin.requires)}, "
                f"but the METADATA of {pin.upstream.package} {pin.version} says {_shown(published)}",
                "write what METADATA says",
            )


def _named(requires: Mapping[str, str], like: Mapping[str, str]) -> dict[str, str]:
    spelling = {canonicalize_name(name): name for name in like}
    return {spelling.get(canonicalize_name(name), name): wanted for name, wanted in requires.items()}


def _shown(requires: Mapping[str, str]) -> str:
    return ", ".join(f"{package}{wanted}" for package, wanted in requires.items()) or "nothing"


def _metadata(tree: WheelTree) -> Message:
    names = [name for name in tree.members() if name.endswith(".dist-info/METADATA") and name.count("/") == 1]
    content = tree.member(names[0]) if len(names) == 1 else None
    if content is None:
        raise WheelError(tree.name, f"holds {len(names)} METADATA files, a wheel has one", "report it upstream")
    return BytesParser(policy=compat32).parsebytes(content, headersonly=True)
