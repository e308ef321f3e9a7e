"""A patch file as bytes in which every byte is owned: header, file headers, hunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import compress
from typing import overload

_NOT_ADDED = bytes(sign != ord("+") for sign in range(256))
_NOT_REMOVED = bytes(sign != ord("-") for sign in range(256))


class ChangeKind(StrEnum):
    """What a file patch does to its file."""

    MODIFY = "modify"
    ADD = "add"
    DELETE = "delete"
    RENAME = "rename"  # with or without hunks
    COPY = "copy"
    MODE = "mode"  # mode only


class Body(Sequence[tuple[str, bytes]]):
    """A hunk's (sign, line) pairs as two columns: half the memory of pairs, and a side is taken out in one go."""

    __slots__ = ("lines", "signs")

    def __init__(self, signs: bytes, lines: Sequence[bytes]) -> None:
        self.signs, self.lines = signs, lines

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return zip(self.signs.decode("ascii"), self.lines, strict=True)

    def __reversed__(self) -> Iterator[tuple[str, bytes]]:
        return zip(self.signs.decode("ascii")[::-1], reversed(self.lines), strict=True)

    def __len__(self) -> int:
        return len(self.signs)

    @overload
    def __getitem__(self, index: int) -> tuple[str, bytes]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[str, bytes]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, bytes] | Sequence[tuple[str, bytes]]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def sides(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Return the lines that a hunk wants to find, and those that it leaves."""
        old, new = (self.signs.translate(kept) for kept in (_NOT_ADDED, _NOT_REMOVED))
        return tuple(compress(self.lines, old)), tuple(compress(self.lines, new))

    def context(self) -> tuple[int, int]:
        """Return how many lines of context stand above the first change, and how many below the last."""
        size = len(self.signs)
        return size - len(self.signs.lstrip(b" ")), size - len(self.signs.rstrip(b" "))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """One hunk: the lines it wants to find, and those it leaves.

    ``body`` holds (sign, line) pairs, sign one of ``" "``, ``"-"``, ``"+"``; a
    line keeps its LF, and lacks it only where the ``\\`` marker says so.
    """

    number: int  # 1-based within its file patch
    old_start: int
    old_count: int
    new_start: int
    new_count: int
    section: bytes  # text after the second @@
    body: Sequence[tuple[str, bytes]]
    raw: bytes  # exactly as in the patch file, @@ line included
    at: int  # 1-based line of the @@ line in the patch file

    _sides: list[tuple[bytes, ...]] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.body, Body):
            signs, lines = "".join(sign for sign, _ in self.body), tuple(line for _, line in self.body)
            object.__setattr__(self, "body", Body(signs.encode("ascii"), lines))

    @property
    def old(self) -> tuple[bytes, ...]:
        return self._both()[0]

    @property
    def new(self) -> tuple[bytes, ...]:
        return self._both()[1]

    @property
    def context(self) -> tuple[int, int]:
        """Lines of context above the first and below the last change."""
        return self._columns.context()

    @property
    def _columns(self) -> Body:
        assert isinstance(self.body, Body)
        return self.body

    def _both(self) -> list[tuple[bytes, ...]]:
        """Both sides, put together once: a hunk is asked for them again and again while its place is looked for."""
        if not self._sides:
            self._sides.extend(self._columns.sides())
        return self._sides


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePatch:
    """The part of a patch that concerns one file.

    Paths have the strip level (``-p``) taken off; ``old_path`` is None for a
    file that is added, ``new_path`` for one that is deleted.
    """

    kind: ChangeKind
    old_path: str | None
    new_path: str | None
    old_mode: int | None = None
    new_mode: int | None = None
    hunks: tuple[Hunk, ...] = ()
    raw_header: bytes = b""  # from the first byte after the previous part up to the first hunk
    trailer: bytes = b""  # bytes after the last hunk that belong to no hunk (blank lines, a mail signature)
    at: int = 1  # 1-based line in the patch file where raw_header begins
    crlf: bool = False  # its header lines end in CR LF: GNU patch then drops the CR of every line of the hunks

    @property
    def path(self) -> str:
        """The name to report: the file's path after the patch, else before it."""
        path = self.new_path if self.new_path is not None else self.old_path
        assert path is not None
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A patch file. ``to_bytes`` of an unchanged patch is the file, byte for byte."""

    name: str  # as the series names it, subfolder included
    header: bytes  # everything before the first file header
    files: tuple[FilePatch, ...]
    strip: int = 1

    def to_bytes(self) -> bytes:
        parts = [self.header]
        for file in self.files:
            parts.append(file.raw_header)
            parts.extend(hunk.raw for hunk in file.hunks)
            parts.append(file.trailer)
        return b"".join(parts)
