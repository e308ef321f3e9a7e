"""The rules a wheel must keep to leave or enter this house, and how a breach is told."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from downstream.errors import WheelError

SIGNATURES = ("RECORD.jws", "RECORD.p7s")  # they sign a RECORD that is no more
_NATIVE = re.compile(r"\.(?:so(?:\.\d+)*|pyd|dylib)$", re.IGNORECASE)
_PLAIN = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-/\n"
_DRIVE = re.compile(r"^[A-Za-z]:")


class Rule(StrEnum):
    """What can be wrong with a wheel. The values are those of the JSON."""

    # the archive
    NOT_A_ZIP = "not-a-zip"
    DUPLICATE = "duplicate-member"
    CASE_CLASH = "case-fold-clash"
    FILE_AND_FOLDER = "file-and-folder"
    PARENT_PATH = "parent-path"
    BACKSLASH = "backslash"
    ABSOLUTE = "absolute-path"
    EMPTY_PART = "empty-path-part"
    CONTROL_CHARACTER = "control-character"
    SYMLINK = "symlink"
    SPECIAL_FILE = "special-file"
    ENCRYPTED = "encrypted"
    COMPRESSION = "compression-method"
    HEADER = "header-mismatch"
    CONTENT = "content-damaged"
    NO_MEMBER = "bytes-of-no-member"
    # the wheel
    FILE_NAME = "file-name"
    DIST_INFO = "dist-info"
    TAGS = "tags"
    NATIVE_IN_PURE = "native-code-in-pure-wheel"
    METADATA = "metadata"
    RECORD = "record"
    SIGNATURE = "stale-signature"
    SBOM = "sbom"
    NOTICE = "licence-notice"
    # the overlay
    VERSION = "version"
    REQUIREMENT = "sibling-requirement"
    CHANGED = "changed-without-a-patch"
    NOT_CHANGED = "patch-not-in-wheel"
    MISSING = "member-missing"
    EXTRA = "member-nobody-named"
    MODE = "mode"
    DETERMINISM = "not-reproducible"
    OTHER_BASE = "not-the-pinned-file"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Violation:
    """One breach: which member breaks which rule, and how."""

    member: str  # empty: the wheel as a whole
    rule: Rule
    detail: str

    def __str__(self) -> str:
        return f"{self.member or 'wheel'}: {self.rule}: {self.detail}"


class RefusedError(WheelError):
    """A wheel that is not taken or not let out; *violations* says why, at least once."""

    def __init__(self, wheel: str, violations: Sequence[Violation], next_step: str = "") -> None:
        first, *others = violations
        more = "".join(f"\n  also: {violation}" for violation in others)
        place = f"{wheel}: {first.member}" if first.member else wheel
        super().__init__(place, f"{first.rule}: {first.detail}{more}", next_step)
        self.violations = tuple(violations)


def name_violations(names: Sequence[str]) -> Iterator[Violation]:
    """Yield what is wrong with the *names* of an archive's members, folders (ending in ``/``) included."""
    if not _plain(names):
        yield from _each_name_violations(names)


def _plain(names: Sequence[str]) -> bool:
    """Whether no rule of names can be broken: true for almost every wheel, and told much faster than one by one."""
    text = "\n".join(("", *names, ""))
    folders = {name.rpartition("/")[0] for name in names}
    for folder in list(folders):
        parent = folder.rpartition("/")[0]
        while parent not in folders:
            folders.add(parent)
            parent = parent.rpartition("/")[0]
    return (
        text.isascii()
        and not text.encode().translate(None, _PLAIN)
        and not any(odd in text for odd in ("//", "/.", "\n.", "\n/", "/\n", "\n\n"))
        and len(names) == len(set(text.casefold().split("\n"))) - 1
        and folders.isdisjoint(names)
    )


def _each_name_violations(names: Sequence[str]) -> Iterator[Violation]:
    seen: set[str] = set()
    folded: dict[str, str] = {}
    folders = {""}
    files: list[str] = []
    for name in names:
        yield from _path_violations(name)
        if name in seen:
            yield Violation(member=name, rule=Rule.DUPLICATE, detail="stands in the archive more than once")
            continue
        seen.add(name)
        key = (name if name.isascii() else unicodedata.normalize("NFC", name)).casefold()
        if (other := folded.setdefault(key, name)) != name:
            yield Violation(member=name, rule=Rule.CASE_CLASH, detail=f"is {other} on a file system that folds case")
        if not name.endswith("/"):
            files.append(name)
            folder = name.rpartition("/")[0]
            while folder not in folders:
                folders.add(folder)
                folder = folder.rpartition("/")[0]
    for name in files:
        if name in folders:
            yield Violation(member=name, rule=Rule.FILE_AND_FOLDER, detail="is a file, and the folder of other members")


def _path_violations(name: str) -> Iterator[Violation]:
    if "\\" in name:
        yield Violation(member=name, rule=Rule.BACKSLASH, detail="a member's path is written with '/' only")
    if name.startswith("/") or _DRIVE.match(name):
        yield Violation(member=name, rule=Rule.ABSOLUTE, detail="would be installed outside the environment")
        return
    parts = name.removesuffix("/").split("/")
    if ".." in parts:
        yield Violation(member=name, rule=Rule.PARENT_PATH, detail="would be installed outside the environment")
    if "" in parts or "." in parts:
        yield Violation(member=name, rule=Rule.EMPTY_PART, detail="has an empty or '.' part, so it has two spellings")
    if not name.isprintable():
        yield Violation(member=name, rule=Rule.CONTROL_CHARACTER, detail="holds a character that cannot be printed")


def native_violations(names: Iterable[str], *, pure: bool) -> Iterator[Violation]:
    """Yield the shared libraries among *names* where the tags promise any machine (``*-none-any``)."""
    for name in names:
        if pure and _NATIVE.search(name):
            yield Violation(
                member=name, rule=Rule.NATIVE_IN_PURE, detail="a shared library in a wheel whose tag says any platform"
            )
