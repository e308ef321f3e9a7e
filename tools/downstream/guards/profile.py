"""What one file says by itself, found by a few searches over its bytes: enough to know whether to look closer."""

from __future__ import annotations

import hashlib
import re
from dataclasses import astuple, dataclass, fields
from typing import Any

from downstream.guards import comparisons
from downstream.guards.index import Entry, index
from downstream.guards.names import parse

THIRD_PARTY = re.compile(r"(?:^|/)(?:3rdparty|third_party|flashinfer/data/(?:cutlass|spdlog|cccl))/")
SEEDS = (b"__CUDA_ARCH", b"__CUDA_HAS_ARCH")

_CONDITION = re.compile(rb"#[ \t]*(?:if|ifn?def|elif(?:n?def)?)\b((?:[^\n\\]|\\\r?\n|\\.)*)")
_NAME = re.compile(rb"[A-Za-z_]\w*")
_INCLUDE = re.compile(rb"#[ \t]*(?:include[ \t]*[\"<]([^\">\n]+)[\">]|define[ \t]+(\w+))")
# Python that can hold a gate, in lower case. Each pattern begins with a word, which is searched for fast.
_SURE = (b"capabilit", b"_majors", b"supported_major", b"flashinfer_cutlass", b"arch_list", b"gencode")
_LIKELY = (
    re.compile(rb"is_\w*(?:sm_?\d|blackwell|hopper|ampere)"),
    re.compile(rb"has_sm\d|sm_version"),
    re.compile(rb"major\b(?!-)"),
    re.compile(rb"arch(?:s\b|\b\s*(?:[=!<>]=|[<>]|(?:not\s+)?in\b|=\s*[\[({]))"),
    re.compile(rb"sm\s*(?:[=!<>]=|[<>]|(?:not\s+)?in\b)"),
)
_NUMBERED = re.compile(rb"(?:sm|cuda|gpu|device)_arch\b")
_PREFIX = re.compile(rb"(?<![-\w])(?:(?:cc|sm|dev|device|cuda|gpu|arch)_)?\Z")


@dataclass(frozen=True, slots=True)
class Profile:
    """The facts of one file, worth keeping under its digest."""

    digest: str
    size: int = 0  # bytes
    seeded: bool = False  # names a macro of the architecture
    compares: bool = False  # C++ that may compare SM numbers; nobody looked at what others bundle
    gates: bool = False  # Python that may ask for the architecture
    includes: tuple[str, ...] = ()
    defined: tuple[str, ...] = ()  # macros
    asked: tuple[str, ...] = ()  # the names in its conditions
    entries: tuple[Entry, ...] = ()  # of Python: what others may call

    def to_json(self) -> list[Any]:
        """A list that ``from_json`` reads."""
        return list(astuple(self))

    @classmethod
    def from_json(cls, row: list[Any]) -> Profile:
        facts = dict(zip((each.name for each in fields(cls)), row, strict=True))
        facts |= {name: tuple(facts[name]) for name in ("includes", "defined", "asked")}
        return cls(**{**facts, "entries": tuple(Entry(*entry) for entry in facts["entries"])})


def digest(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def profile(path: str, content: bytes) -> Profile:
    """Read one file; what it is told apart by is its name's ending."""
    return _script(path, content) if path.endswith(".py") else _source(path, content)


def _source(path: str, content: bytes) -> Profile:
    asked: set[bytes] = set()
    for text in _CONDITION.findall(content):
        asked.update(_NAME.findall(text))
    found = _INCLUDE.findall(content)
    return Profile(
        digest(content),
        len(content),
        seeded=any(seed in content for seed in SEEDS),
        compares=THIRD_PARTY.search(path) is not None or comparisons.mentioned(content),
        includes=tuple(include.decode("utf-8", "replace") for include, _ in found if include),
        defined=tuple(sorted({name.decode("utf-8", "replace") for _, name in found if name})),
        asked=tuple(sorted(name.decode("ascii", "replace") for name in asked)),
    )


def _script(path: str, content: bytes) -> Profile:
    seeded = b"__CUDA_ARCH" in content and b"#" in content
    if not _asks(content.lower()):
        return Profile(digest(content), len(content), seeded=seeded)
    module = parse(path, content)
    entries = tuple(index(module)) if module else ()
    return Profile(digest(content), len(content), seeded=seeded, gates=True, entries=entries)


def _asks(text: bytes) -> bool:
    """Whether Python code, in lower case, can ask for the architecture."""
    if any(word in text for word in _SURE):
        return True
    predicates, versions, majors, archs, numbers = _LIKELY
    return (
        any(not _word(text[found.start() - 1 : found.start()]) for found in predicates.finditer(text))
        or versions.search(text) is not None
        or any(_PREFIX.search(text[max(0, found.start() - 8) : found.start()]) for found in majors.finditer(text))
        or any(not text[found.start() - 1 : found.start()].isalnum() for found in archs.finditer(text))
        or _NUMBERED.search(text) is not None
        or any(not _word(text[found.start() - 1 : found.start()]) for found in numbers.finditer(text))
    )


def _word(before: bytes) -> bool:
    return before.isalnum() or before == b"_"
