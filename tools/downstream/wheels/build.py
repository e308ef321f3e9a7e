"""From pins to gated wheels: one per published wheel, none of which leaves unless the gate lets it."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from downstream.errors import UsageError, WheelError, WriteError
from downstream.patched import PatchedTree
from downstream.pins import Line, Pin
from downstream.progress import SILENT, Progress
from downstream.wheels.archive import open_archive
from downstream.wheels.changes import changes_for, siblings_of
from downstream.wheels.gate import verify
from downstream.wheels.metadata import requirements
from downstream.wheels.naming import dist_info_of, parse_name
from downstream.wheels.repack import repack
from downstream.wheels.rules import RefusedError

STAGING = ".staging-"
_LOCK = "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A wheel that passed the gate, and what it was made of."""

    path: Path
    sha256: str
    size: int  # bytes
    pin: Pin
    upstream_file: str
    patches: Mapping[str, bytes]  # series entry -> patch file
    overlay: Mapping[str, bytes]
    members: tuple[str, ...]  # that series, overlay and version changed, added or removed
    outside: tuple[str, ...]  # repository paths of the series that a wheel does not hold
    siblings: frozenset[str]  # packages of the line that it requires, by normalized name


def narrowed(pin: Pin, *, python: str | None = None, platform: str | None = None) -> tuple[str, ...]:
    """Return the pin's wheels for interpreter tag *python* and *platform*, sorted. Raises UsageError for none."""
    names = tuple(sorted(name for name in pin.sha256 if parse_name(name).fits(python, platform)))
    if not names:
        wanted = " ".join(word for word in (python, platform) if word)
        raise UsageError(str(pin), f"has no wheel for {wanted}", f"it has: {', '.join(sorted(pin.sha256))}")
    return names


def build(
    upstream: Sequence[Path], tree: PatchedTree, folder: Path, *, line: Line, epoch: int, progress: Progress = SILENT
) -> tuple[Built, ...]:
    """Repack every published wheel of *upstream* into *folder*; build_line() for one pin."""
    return build_line([(tree, upstream)], folder, line=line, epoch=epoch, progress=progress)


def build_line(
    jobs: Sequence[tuple[PatchedTree, Sequence[Path]]],
    folder: Path,
    *,
    line: Line,
    epoch: int,
    progress: Progress = SILENT,
) -> tuple[Built, ...]:
    """Repack the published wheels of each pin into *folder* and hold each against the gate.

    They appear after the last one passed; until then *folder* is as it was.
    Raises RefusedError with what the gate found, WheelError where nothing ties two pins.
    """
    total = sum(len(upstream) for _, upstream in jobs)
    built = []
    with _staging(folder) as staging, progress.task("build wheels", total=total) as task:
        for tree, upstream in jobs:
            for path in upstream:
                built.append(_gated(path, tree, staging, line, epoch))
                task.advance(note=path.name)
        check_pairing(built, line)
        try:
            return tuple(_moved(one, folder) for one in built)
        except OSError as exc:
            raise WriteError(str(folder), f"cannot take the wheels ({exc})") from exc


def check_pairing(built: Iterable[Built], line: Line) -> None:
    """Raise WheelError where two packages of *line* were built and neither requires the other exactly.

    Without that, a resolver could pair a patched wheel with a stock one.
    """
    required: dict[str, frozenset[str]] = {}
    for one in built:
        package = canonicalize_name(one.pin.upstream.package)
        required[package] = required.get(package, one.siblings) & one.siblings
    packages = sorted(required)
    for at, first in enumerate(packages):
        for second in packages[at + 1 :]:
            if second not in required[first] and first not in required[second]:
                raise WheelError(
                    f"line {line.name}",
                    f"neither {first} nor {second} requires the other, so a stock one would do",
                    "add the requirement to the series, or give them lines of their own",
                )


def _gated(upstream: Path, tree: PatchedTree, staging: Path, line: Line, epoch: int) -> Built:
    wheel = repack(upstream, tree, staging, line=line, epoch=epoch)
    report = verify(wheel, upstream, tree, line=line)
    if stale := report.stale_rows:
        # Upstream's RECORD is wrong about these; what it says of the others was just read and found true.
        wheel = repack(upstream, tree, staging, line=line, epoch=epoch, rehash=stale)
        report = verify(wheel, upstream, tree, line=line)
    if not report.passed:
        raise RefusedError(wheel.name, report.violations, "nothing was written")
    archive = open_archive(wheel)
    metadata = f"{dist_info_of(archive.entries, parse_name(wheel.name))}/METADATA"
    needed = requirements(archive.read(metadata) or b"", metadata)
    # A requirement under a marker is no promise.
    names = {canonicalize_name(requirement.name) for requirement in needed if requirement.marker is None}
    changes = changes_for(open_archive(upstream), tree)
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Built(
        path=wheel,
        sha256=digest,
        size=wheel.stat().st_size,
        pin=tree.pin,
        upstream_file=upstream.name,
        patches=tree.patches,
        overlay=tree.overlay,
        members=tuple(sorted(changes.files)),
        outside=changes.outside,
        siblings=frozenset(names & siblings_of(tree.pin, line).keys()),
    )


def _moved(built: Built, folder: Path) -> Built:
    return replace(built, path=built.path.replace(folder / built.path.name))


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """Make a folder in *folder* for wheels that the gate has not seen; sweep those that killed builds left."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for lock in folder.glob(f"{STAGING}*/{_LOCK}"):
                with suppress(OSError), _held(lock):  # not held: who made it is no more
                    shutil.rmtree(lock.parent)
            made = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
            stack.enter_context(_held(made / _LOCK))
            # Under this name only now that it is held, or another build might sweep it.
            staging = made.rename(folder / made.name.replace(".new-", STAGING))
            stack.callback(shutil.rmtree, staging, ignore_errors=True)
        except OSError as exc:
            raise WriteError(str(folder), f"cannot be written to ({exc})") from exc
        yield staging


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Hold the file *lock* while this process lives. Raises BlockingIOError where another process does."""
    import fcntl

    with lock.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
