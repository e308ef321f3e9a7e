"""Where packages come from: what pip itself is configured with.

Read as ``pip install`` reads it (pip's user guide, "Configuration"): files
from global to site, then ``PIP_CONFIG_FILE``, then ``PIP_*`` variables; a
later one wins, and ``[install]`` wins over ``[global]``. ``find-links`` is not
followed: a folder of wheels is no index and does not say what was published.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from downstream.errors import NetworkError

_SECTIONS = ("global", "install")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipConfiguration:
    """The settings of pip that concern fetching.

    ``indexes`` are tried in order; an empty first one stands for the client
    library's default. They may hold credentials: show them through redact().
    """

    indexes: tuple[str, ...] = ("",)
    no_index: bool = False
    find_links: bool = False
    certificates: str = ""
    client_certificate: str = ""
    proxy: str = ""
    trusted_hosts: tuple[str, ...] = ()
    timeout: float | None = None  # seconds


def configuration(environment: Mapping[str, str] = os.environ) -> PipConfiguration:
    """Read what pip would use in this environment. Raises NetworkError on a file that is no configuration."""
    found: dict[str, str] = {}
    layers = [_read(path) for path in _files(environment)]
    for section in _SECTIONS:
        merged: dict[str, str] = {}
        for layer in layers:
            merged |= layer.get(section, {})
        # An empty value takes back what a weaker file says, and then counts as absent.
        found |= {key: value for key, value in merged.items() if value.strip()}
    for name, value in environment.items():
        if name.startswith("PIP_") and value.strip():
            found[name[4:].lower().replace("_", "-")] = value
    extra = tuple(_with_slash(url) for url in found.get("extra-index-url", "").split())
    index = found.get("index-url") or found.get("pypi-url") or ""
    return PipConfiguration(
        indexes=(_with_slash(index.strip()) if index else "", *extra),
        no_index=found.get("no-index", "").strip().lower() in ("1", "y", "yes", "t", "true", "on"),
        find_links="find-links" in found,
        certificates=os.path.expanduser(found.get("cert", "").strip()),  # noqa: PTH111 - may be empty
        client_certificate=os.path.expanduser(found.get("client-cert", "").strip()),  # noqa: PTH111
        proxy=found.get("proxy", "").strip(),
        trusted_hosts=tuple(found.get("trusted-host", "").split()),
        timeout=_seconds(found.get("timeout") or found.get("default-timeout") or ""),
    )


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files that pip reads, weakest first."""
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return
    home = _home(environment)
    mac = sys.platform == "darwin"
    if mac:
        yield Path("/Library/Application Support/pip/pip.conf")
    else:
        for folder in reversed((environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")):
            if folder:
                yield Path(folder) / "pip" / "pip.conf"
        yield Path("/etc/pip.conf")
    if named and Path(named).exists():
        pass  # it stands in for the user's own files
    elif home is not None:
        yield home / ".pip" / "pip.conf"
        support = home / "Library" / "Application Support" / "pip"
        if mac and support.is_dir():
            yield support / "pip.conf"
        else:
            xdg = environment.get("XDG_CONFIG_HOME") if not mac else None
            yield (Path(xdg) if xdg else home / ".config") / "pip" / "pip.conf"
    elif xdg := environment.get("XDG_CONFIG_HOME"):
        yield Path(xdg) / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if named:
        yield Path(named)


def _home(environment: Mapping[str, str]) -> Path | None:
    if home := environment.get("HOME"):
        return Path(home)
    try:
        return Path.home()
    except RuntimeError:
        return None


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return {}  # as pip: a file it may not read is a file that is not there
    import configparser  # late: a warm cache asks pip nothing

    parser = configparser.RawConfigParser()
    parser.optionxform = lambda optionstr: optionstr.lower().replace("_", "-")  # type: ignore[method-assign]
    try:
        parser.read_string(text, source=str(path))
    except configparser.Error as exc:
        # The parser's own message quotes the line, which may hold a password.
        raise NetworkError(str(path), f"is no pip configuration ({type(exc).__name__})", "pip config debug") from None
    return {section: dict(parser.items(section)) for section in parser.sections()}


def _with_slash(url: str) -> str:
    return url.rstrip("/") + "/"


def _seconds(text: str) -> float | None:
    try:
        return float(text) if text.strip() else None
    except ValueError:
        return None


def redact(url: str) -> str:
    """Return *url* without user, password, query and fragment: fit for a message or a file."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def credentials(url: str) -> tuple[str, str] | None:
    """Return the user and password written in *url*."""
    user, found, _ = urlsplit(url).netloc.rpartition("@")
    if not found:
        return None
    name, _, password = user.partition(":")
    return unquote(name), unquote(password)


def file_path(url: str) -> Path | None:
    """Return the path of a ``file:`` URL (or of a plain absolute path), None for any other."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path, errors="surrogateescape"))
    if not parts.scheme and url.startswith("/"):
        return Path(url)
    return None


def file_url(path: Path) -> str:
    return "file://" + quote(os.fsencode(path))
