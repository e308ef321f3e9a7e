"""A rebase under way, on disk: what survives kill -9, a restart, and a week."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from downstream.errors import StateError, WriteError
from downstream.pins import FILE, Pin
from downstream.queue.transaction import WORK

FOLDER = "rebase"
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A patch that is settled: its bytes on the new release, None where it is dropped."""

    name: str
    content: bytes | None
    how: str  # its PatchStatus, or "resolved", "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where a rebase stands. ``done`` is a prefix of the series; the patch after it waits for a person."""

    line: str
    upstream: str
    old: str
    new: str
    inputs: str  # digest of the series, its patches and VERSIONS.toml as they were at the start
    done: tuple[Done, ...] = ()
    head: str = ""  # the checkout's last commit of ours
    at: int = 0  # how many of ``done`` are in it
    ready: bool = False  # the checkout holds the waiting patch, for a person to resolve

    def settled(self, done: Done) -> State:
        return replace(self, done=(*self.done, done), ready=False)


def folder(root: Path) -> Path:
    return root / WORK / FOLDER


def checkout(root: Path) -> Path:
    """The git working tree in which a conflict is resolved."""
    return folder(root) / "checkout"


def load(root: Path) -> State | None:
    """Return the rebase under way, None where there is none. Raises StateError where its file is damaged."""
    path = folder(root) / "state.json"
    try:
        raw = json.loads(path.read_bytes())
        if raw["schema"] != SCHEMA:
            raise StateError(str(path), f"was written by another version of this tool (schema {raw['schema']})", _ABORT)
        done = tuple(Done(name=row["name"], how=row["how"], content=_content(root, row["file"])) for row in raw["done"])
        return State(
            line=raw["line"],
            upstream=raw["upstream"],
            old=raw["old"],
            new=raw["new"],
            inputs=raw["inputs"],
            done=done,
            head=raw["head"],
            at=raw["at"],
            ready=raw["ready"],
        )
    except FileNotFoundError as exc:
        if exc.filename == str(path):
            return None
        raise StateError(str(exc.filename), "is missing from the rebase under way", _ABORT) from exc
    except (ValueError, KeyError, TypeError) as exc:
        raise StateError(str(path), f"cannot be read: {exc}", _ABORT) from exc


_ABORT = "tools/rebase.py --abort starts over; patches/ and VERSIONS.toml are untouched"


def _content(root: Path, file: str | None) -> bytes | None:
    return None if file is None else (folder(root) / "patches" / file).read_bytes()


def save(root: Path, state: State) -> None:
    """Write *state* whole. Patches first, then the file that names them. Raises WriteError."""
    home = folder(root)
    rows = []
    try:
        (home / "patches").mkdir(parents=True, exist_ok=True)
        for done in state.done:
            file = None if done.content is None else hashlib.sha256(done.content).hexdigest()[:32]
            if file is not None and done.content is not None and not (home / "patches" / file).exists():
                write_whole(home / "patches" / file, done.content)
            rows.append({"name": done.name, "how": done.how, "file": file})
        raw = {
            "schema": SCHEMA,
            "line": state.line,
            "upstream": state.upstream,
            "old": state.old,
            "new": state.new,
            "inputs": state.inputs,
            "done": rows,
            "head": state.head,
            "at": state.at,
            "ready": state.ready,
        }
        write_whole(home / "state.json", json.dumps(raw, indent=1).encode())
    except OSError as exc:
        raise WriteError(str(home), exc.strerror or str(exc), "make room or give the right to write there") from exc


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader, after any crash, finds the old one or the new one."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def clear(root: Path) -> None:
    """Forget the rebase under way: the state file first, so that a crash leaves no half of it."""
    home = folder(root)
    (home / "state.json").unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)


def digest(root: Path, pin: Pin) -> str:
    """A digest of all that a rebase of *pin* replaces in the end."""
    total = hashlib.sha256((root / FILE).read_bytes())
    series = root / "patches" / pin.line / pin.upstream.name
    for path in sorted(series.rglob("*")):
        if path.is_file() and path.name != "guards.toml":  # the ledger may be edited while a rebase waits
            total.update(str(path.relative_to(series)).encode("utf-8", "surrogateescape") + b"\0")
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


@contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """Keep other rebases of this overlay out. Raises StateError where one runs; a killed one leaves no lock behind."""
    import fcntl

    place = root / WORK
    try:
        place.mkdir(exist_ok=True)
        stream = (place / "rebase.lock").open("wb")
    except OSError as exc:
        raise WriteError(str(place), exc.strerror or str(exc), "the overlay's folder must be writable") from exc
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise StateError(str(root), "another rebase of this overlay is running", "wait until it has ended") from exc
        yield
