"""What a report says besides its verdicts, and where each hunk stands in its patch file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from downstream.patches.text import Patch
from downstream.placing.verdict import FileResult, HunkResult, HunkStatus, PatchResult

# C0 and C1 controls but for the tab, line separators, and marks that turn the direction of writing.
ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) != "\t"} | {
    code: f"\\u{code:04x}" for code in (0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContext:
    """The facts around a sequence of results; no clocks, and only relative paths.

    ``patches`` gives the line of each hunk in its patch file; without it the
    places are those of the patch files alone.
    """

    command: str  # "check", "rebase", "continue", …: the JSON's "command"
    upstream: str = ""  # "flashinfer"; empty for foreign material
    line: str = ""  # "stable"
    old_version: str = ""  # the pin
    new_version: str = ""  # the release that was asked about
    base_tree: str = ""  # Tree.name of the old tree; empty where none is known
    tree: str = ""  # Tree.name of the tree that was judged
    series: str = ""  # the series' folder, relative to the overlay
    patches: Mapping[str, Patch] = field(default_factory=dict)  # by PatchResult.patch
    walked: tuple[str, ...] = ()  # the releases behind every ``since``, in order
    fetched: int | None = None  # bytes over the network; text only, since a warm cache changes it
    written: tuple[str, ...] = ()  # relative paths that the command wrote
    next_steps: tuple[str, ...] = ()  # commands or sentences, most useful first

    @property
    def title(self) -> str:
        """``flashinfer 0.6.3 → 0.6.12 (line stable)``, or the trees' names."""
        if not self.upstream:
            return f"{self.base_tree} → {self.tree}" if self.base_tree else self.tree
        versions = " → ".join(dict.fromkeys(version for version in (self.old_version, self.new_version) if version))
        return f"{self.upstream} {versions}" + (f" (line {self.line})" if self.line else "")

    def patch_path(self, name: str) -> str:
        """The patch file as a path relative to the overlay."""
        return f"{self.series.rstrip('/')}/{name}" if self.series else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """One hunk's result with all that surrounds it. ``hunk`` is None for a file without hunks."""

    patch: PatchResult
    file: FileResult
    hunk: HunkResult | None
    path: str  # of the patch file, relative to the overlay
    at: int  # 1-based line in the patch file
    part: int = 1  # a patch may name one file in several parts, each with hunks from 1

    @property
    def status(self) -> HunkStatus:
        return self.hunk.status if self.hunk else self.file.status

    @property
    def reason(self) -> str:
        return (self.hunk.reason if self.hunk else "") or self.file.reason

    @property
    def old_line(self) -> int | None:
        return self.hunk.old_line if self.hunk else None

    @property
    def new_line(self) -> int | None:
        return self.hunk.line if self.hunk else None

    @property
    def since(self) -> str | None:
        return self.hunk.since if self.hunk else None

    @property
    def subject(self) -> str:
        """``hunk 3``, or ``file``; ``part 2 hunk 1`` where the patch comes back to a file."""
        subject = f"hunk {self.hunk.number}" if self.hunk else "file"
        return subject if self.part == 1 else f"part {self.part} {subject}"


def located(results: Sequence[PatchResult], context: ReportContext) -> Iterator[Located]:
    """Yield every hunk of every patch in series order, and files that have no hunk."""
    for result in results:
        patch = context.patches.get(result.patch)
        path = context.patch_path(result.patch)
        parts: Counter[str] = Counter()
        for index, file in enumerate(result.files):
            parts[file.path] += 1
            # The results of a patch follow its file patches one to one.
            source = patch.files[index] if patch and index < len(patch.files) else None
            lines = {hunk.number: hunk.at for hunk in source.hunks} if source else {}
            first = source.at if source else 1
            for hunk in file.hunks or (None,):
                at = lines.get(hunk.number, first) if hunk else first
                yield Located(patch=result, file=file, hunk=hunk, path=path, at=at, part=parts[file.path])


def decoded(content: bytes) -> str:
    """Decode an upstream line without its line end; bytes that are no UTF-8 become surrogates."""
    return content.rstrip(b"\r\n").decode("utf-8", "surrogateescape")


def printable(text: str) -> str:
    r"""Escape control characters, so that no file name or source line can drive a terminal.

    A byte that was no UTF-8 is shown as ``\xff``.
    """
    shown = text.translate(ESCAPES)
    return "".join(f"\\x{ord(c) - 0xDC00:02x}" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in shown)
