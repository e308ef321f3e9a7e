"""The distribution's own source packages, through the machine's apt, for the tests on foreign series."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from filelock import FileLock

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests.network.gpus

A_DAY = 86400  # seconds after which apt is asked what it has now
SUITES = "oldoldstable oldstable stable unstable"  # Debian's names, whatever its releases are called by then


@dataclass(frozen=True)
class Archive:
    """The machine's package archive, asked for sources."""

    folder: Path  # of ours
    options: tuple[str, ...]

    def versions(self, package: str) -> list[str]:
        """Return the source versions on offer, oldest first, of each upstream version the newest."""
        return list({version.rpartition("-")[0]: version for version in self._listed(package)}.values())

    def fetched(self, package: str) -> list[Path]:
        """Return a .dsc of every upstream version that the archive really has, oldest first."""
        found: dict[str, Path] = {}
        for version in reversed(self._listed(package)):
            upstream = version.rpartition("-")[0]
            if upstream not in found and isinstance(one := self._fetched(package, version), Path):
                found[upstream] = one
        return list(reversed(found.values()))

    def _listed(self, package: str) -> list[str]:
        run = self._apt("apt-cache", "showsrc", "--only-source", package)
        listed = re.findall(r"^Version: (\S+)$", run.stdout, re.MULTILINE)
        if not listed:
            pytest.skip(f"apt has no source of {package}: {run.stderr.strip()[:200]}")
        return sorted(listed, key=lambda text: [int(part) for part in re.findall(r"\d+", text)])

    def source(self, package: str, version: str) -> Path:
        """Return the .dsc of a package, fetched once; a mirror that lacks a revision may have the one before it."""
        upstream, told = version.rpartition("-")[0], ""
        for revision in reversed(self._listed(package)):
            if revision.rpartition("-")[0] == upstream:
                found = self._fetched(package, revision)
                if isinstance(found, Path):
                    return found
                told = told or found
        pytest.skip(f"apt could not fetch {package}: {told}")

    def _fetched(self, package: str, version: str) -> Path | str:
        folder = self.folder / "sources" / f"{package}_{version.replace(':', '_')}"
        with FileLock(self.folder / f"{folder.name}.lock"):
            if not folder.is_dir():
                part = folder.with_name(f"{folder.name}.part")
                part.mkdir(parents=True, exist_ok=True)
                run = self._apt("apt-get", "source", "--download-only", "-qq", f"{package}={version}", cwd=part)
                if run.returncode:
                    return run.stderr.strip()[-300:]
                part.rename(folder)
            return next(folder.glob("*.dsc"))

    def _apt(self, command: str, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [command, *self.options, *words],
            cwd=cwd, capture_output=True, check=False, text=True, errors="replace", env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip


@pytest.fixture(scope="session")
def archive() -> Archive:
    """The configured sources, asked for source packages; works for root and for anybody else."""
    return _asked("apt", _source_stanzas())


@pytest.fixture(scope="session")
def suites() -> Archive:
    """The same archive's other releases, oldest to unreleased, which have newer upstreams of every package."""
    stanzas = [stanza for stanza in _source_stanzas() if "-archive-keyring" in stanza]
    found = [re.sub(r"^Suites:.*$", f"Suites: {SUITES}", stanza, flags=re.MULTILINE) for stanza in stanzas[:1]]
    return _asked("suites", found)


def _asked(name: str, stanzas: list[str]) -> Archive:
    """Ask for the indexes of *stanzas*, once a day, and return what answers for them."""
    if missing := [name for name in ("apt-get", "dpkg-source", "patch") if shutil.which(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    if not stanzas:
        pytest.skip("apt is configured with no distribution archive")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "sm120-overlay-tests" / name
    for inner in ("lists/partial", "cache/archives/partial", "sources"):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    options = (
        "-o", f"Dir::Etc::sourcelist={folder / 'source.sources'}", "-o", "Dir::Etc::sourceparts=/dev/null",
        "-o", f"Dir::State::lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}",
        "-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=3",
    )  # fmt: skip
    with FileLock(folder / "lock"):
        wanted = "\n\n".join(stanzas) + "\n"
        listed = folder / "source.sources"
        fresh = listed.exists() and time.time() - listed.stat().st_mtime < A_DAY
        if not fresh or listed.read_text(encoding="utf-8") != wanted:
            listed.write_text(wanted, encoding="utf-8")
            update = ["apt-get", *options, "-qq", "update"]
            run = subprocess.run(update, capture_output=True, check=False, text=True, errors="replace")
            if run.returncode:
                listed.unlink()
                pytest.skip(f"apt-get update: {run.stderr.strip()[-300:]}")
    return Archive(folder, options)


def _source_stanzas() -> list[str]:
    """The distribution's own sources as apt has them, with source packages asked for instead of binaries."""
    stanzas = []
    places = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for place in places:
        text = place.read_text(encoding="utf-8", errors="replace") if place.is_file() else ""
        if place.suffix == ".sources":
            for stanza in re.split(r"\n\s*\n", text):
                if "-archive-keyring" in stanza and re.search(r"^Types:.*\bdeb\b", stanza, re.MULTILINE):
                    asked = re.sub(r"^Types:.*$", "Types: deb-src", stanza.strip(), flags=re.MULTILINE)
                    stanzas += [asked]
        elif place.suffix == ".list":
            for line in re.finditer(r"^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.+)$", text, re.MULTILINE):
                signed = re.search(r"signed-by=(\S+)", line[1] or "")
                if place.name != "sources.list" and not (signed and "-archive-keyring" in signed[1]):
                    continue  # a vendor's own repository, which seldom has sources
                stanza = f"Types: deb-src\nURIs: {line[2]}\nSuites: {line[3]}\nComponents: {line[4]}"
                stanzas.append(stanza + (f"\nSigned-By: {signed[1]}" if signed else ""))
    return stanzas


def unpack(dsc: Path, folder: Path) -> Path:
    """Unpack a source package without applying its series; which goes to ``patches`` beside the tree."""
    if not _unpack(dsc, folder):
        pytest.skip(f"{dsc.name} has no quilt series")
    return folder / "tree"


def _unpack(dsc: Path, folder: Path) -> bool:
    """Unpack and say whether there is a series; a package without one still has a tree."""
    run = subprocess.run(
        ["dpkg-source", "--no-check", "--skip-patches", "-x", str(dsc), str(folder / "tree")],
        capture_output=True, check=False, text=True, errors="replace",
    )  # fmt: skip
    if run.returncode:
        pytest.skip(f"{dsc.name}: {run.stderr.strip()[-200:]}")
    if not (folder / "tree/debian/patches/series").is_file():
        return False
    shutil.copytree(folder / "tree/debian/patches", folder / "patches", symlinks=True)
    return True


@pytest.fixture(scope="session")
def versions(archive: Archive) -> Callable[[str], list[str]]:
    """The source versions of a package on offer, oldest first."""
    return archive.versions


@pytest.fixture(scope="session")
def unpacked(archive: Archive) -> Callable[[str, str, Path], Path]:
    """Unpack a version of a package into a folder, as ``tree`` (series not applied) and ``patches``."""
    return lambda package, version, folder: unpack(archive.source(package, version), folder)


@pytest.fixture(scope="session")
def upgrades(suites: Archive) -> Callable[[str, Path], Iterator[tuple[Path, Path]]]:
    """Unpack each upstream version on offer and the one after it, oldest first; of the first there is a series."""

    def pairs(package: str, folder: Path) -> Iterator[tuple[Path, Path]]:
        for old, new in pairwise(suites.fetched(package)):
            places = folder / old.stem, folder / new.stem
            for dsc, place in zip((old, new), places, strict=True):
                if not place.is_dir():
                    place.mkdir(parents=True)
                    _unpack(dsc, place)
            if (places[0] / "patches").is_dir():
                yield places
            shutil.rmtree(places[0])  # trees are large, and pytest keeps what is left

    return pairs
