"""Where the preprocessor's conditionals are, line by line, and how they nest.

The scanner knows what hides a directive (comments, strings, raw strings, a
continued line) and what does not, as translation phases 1 to 4 of C++ do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# What may hide a '#', and the '#' itself. An unterminated quote ends with its line, as in GNU cpp.
_COMMENT = r"//(?:\\\r?\n|[^\n])*+|/\*(?:.*?\*/|.*\Z)"
_RAW = r"""(?<!\w)(?:u8|[uUL])?R"([^()\\\s]{0,16})\(.*?\)\1\""""
_STRING = r""""(?:\\.|[^"\\\n])*+"?|(?:(?<!\w)|(?<=\bu8))'(?:\\.|[^'\\\n])*+'?"""
_RAW_STRING = re.compile(_RAW, re.DOTALL)
_HIDING = re.compile(f"(?P<comment>{_COMMENT})|{_RAW.replace('1', '2')}|{_STRING}", re.DOTALL)
# Everything up to the next '#' that is not hidden, or the next raw string. (No group may stand in a possessive
# repetition: CPython 3.11 loses their spans.)
_SKIP = re.compile(rf"""(?:[^\"'/\#%RuUL]++|{_COMMENT}|(?!\#|%:|(?<!\w)(?:u8|[uUL])?R")(?:{_STRING}|.))*+""", re.DOTALL)
# The pieces of one directive's line.
_PIECE = re.compile(
    r"""
    (?P<splice>\\[ \t]*\r?\n)
  | (?P<comment>//(?:\\\r?\n|[^\n])*|/\*(?:.*?\*/|.*\Z))
  | (?P<string>"(?:\\.|[^"\\\n])*"?|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])*'?)
  | (?P<end>\n|\Z)
  | (?P<text>[^\\\n/"']+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_SPLICE = re.compile(r"\\[ \t]*\r?\n")
_DIRECTIVE = re.compile(r"\s*([A-Za-z_]\w*)\s*(.*)", re.DOTALL)
_OPENING = frozenset({"if", "ifdef", "ifndef"})
_MIDDLE = frozenset({"elif", "elifdef", "elifndef", "else"})
_KNOWN = _OPENING | _MIDDLE | {"endif", "define", "undef", "include"}


@dataclass(frozen=True, slots=True)
class Directive:
    """One directive: its keyword, the rest of its logical line, and its physical lines (1-based)."""

    keyword: str
    text: str
    line: int
    last_line: int


@dataclass(slots=True)
class Branch:
    """One arm of a chain: from its directive's line to the line before the next directive of the chain."""

    directive: Directive
    condition: str  # as an #if would say it: the negation of the earlier arms for #else
    own: str | None  # the condition of this directive alone; None for #else
    chain: Chain
    end_line: int = 0
    items: list[Item] = field(default_factory=list)


@dataclass(slots=True)
class Chain:
    """``#if`` … ``#endif``, and the arm it stands in (None at the top of the file)."""

    parent: Branch | None
    branches: list[Branch] = field(default_factory=list)
    end_line: int = 0  # of the #endif

    @property
    def line(self) -> int:
        return self.branches[0].directive.line


Item = Chain | Directive  # a Directive here is a #define, #undef or #include


@dataclass(slots=True)
class Source:
    """A file's conditionals and definitions in order, and what could not be made sense of."""

    items: list[Item]
    problems: list[tuple[int, str]]
    lines: int

    def branches(self) -> Iterator[Branch]:
        """Every arm of every chain, in the order of the lines they begin on."""
        yield from _branches(self.items)


def _branches(items: list[Item]) -> Iterator[Branch]:
    for item in items:
        if isinstance(item, Chain):
            for branch in item.branches:
                yield branch
                yield from _branches(branch.items)


def directives(text: str) -> Iterator[Directive]:
    """Every directive of *text*, hidden ones left out, with comments and continuations gone from its text."""
    lines = _LineCounter(text)
    at = start = 0  # start: where the last directive ended
    while True:
        skipped = _SKIP.match(text, at)
        assert skipped is not None  # it matches the empty string
        hash_at = skipped.end()
        if hash_at >= len(text):
            return
        if text[hash_at] not in "#%" or not _leads_its_line(text, start, hash_at):
            raw = _RAW_STRING.match(text, hash_at)
            at = raw.end() if raw else hash_at + 1
            continue
        words, end = _logical_line(text, hash_at + (1 if text[hash_at] == "#" else 2))
        parsed = _DIRECTIVE.match(words)
        if parsed and parsed[1] in _KNOWN:
            last = lines.line(max(hash_at, end - 1)) if "\n" in text[hash_at : end - 1] else None
            first = lines.line(hash_at)
            yield Directive(parsed[1], " ".join(parsed[2].split()), first, last or first)
        at = start = end


def _leads_its_line(text: str, start: int, hash_at: int) -> bool:
    """Whether only blanks and comments stand before *hash_at* on its logical line; *start* is outside of anything."""
    line = text.rfind("\n", 0, hash_at) + 1
    before = text[line:hash_at]
    if line >= start and "*/" not in before and not text[max(start, line - 80) : line].rstrip("\n\r\t ").endswith("\\"):
        return not before.strip()
    # A comment, or a spliced line: lexeme by lexeme from where nothing is open.
    blank, at = True, start
    while (found := _HIDING.search(text, at, hash_at)) is not None:
        blank = _still_blank(text[at : found.start()], blank) and bool(found.group("comment"))
        at = found.end()
    return _still_blank(text[at:hash_at], blank)


def _still_blank(gap: str, blank: bool) -> bool:
    """Whether the logical line is blank after *gap*, given that it was *blank* before."""
    if "\\" in gap:
        gap = _SPLICE.sub("", gap)
    _, newline, tail = gap.rpartition("\n")
    return (blank or bool(newline)) and not tail.strip()


def _logical_line(text: str, at: int) -> tuple[str, int]:
    """The text from *at* to the end of the logical line, comments as one blank, and the offset after it."""
    parts: list[str] = []
    while True:
        piece = _PIECE.match(text, at)
        assert piece is not None  # the last alternative takes anything
        at = piece.end()
        match piece.lastgroup:
            case "end":
                return "".join(parts), at
            case "comment":
                parts.append(" ")
            case "splice":
                pass
            case _:
                parts.append(piece.group())


class _LineCounter:
    """Offsets that only grow, turned into line numbers."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._offset = 0
        self._line = 1

    def line(self, offset: int) -> int:
        if offset < self._offset:
            self._offset, self._line = 0, 1
        self._line += self._text.count("\n", self._offset, offset)
        self._offset = offset
        return self._line


def scan(text: str) -> Source:
    """Read the conditionals of a C, C++ or CUDA file. Unbalanced ones are problems, not errors."""
    source = Source(items=[], problems=[], lines=text.count("\n") + (not text.endswith("\n")))
    open_chains: list[Chain] = []
    for directive in directives(text):
        branch = open_chains[-1].branches[-1] if open_chains else None
        if directive.keyword in _OPENING:
            chain = Chain(parent=branch)
            (branch.items if branch else source.items).append(chain)
            open_chains.append(chain)
            _add_branch(chain, directive)
        elif directive.keyword in _MIDDLE or directive.keyword == "endif":
            if branch is None:
                source.problems.append((directive.line, f"#{directive.keyword} without #if"))
                continue
            branch.end_line = directive.line - 1
            if directive.keyword == "endif":
                open_chains.pop().end_line = directive.last_line
            else:
                if branch.own is None:
                    source.problems.append((directive.line, f"#{directive.keyword} after #else"))
                _add_branch(open_chains[-1], directive)
        else:
            (branch.items if branch else source.items).append(directive)
    for chain in open_chains:
        source.problems.append((chain.line, "unterminated conditional"))
        chain.end_line = chain.branches[-1].end_line = source.lines
    return source


def _add_branch(chain: Chain, directive: Directive) -> None:
    match directive.keyword:
        case "if" | "elif":
            own: str | None = directive.text
        case "ifdef" | "elifdef":
            own = f"defined({_first_name(directive.text)})"
        case "ifndef" | "elifndef":
            own = f"!defined({_first_name(directive.text)})"
        case _:
            own = None
    condition = own
    if condition is None:
        condition = " && ".join(f"!({branch.own})" for branch in chain.branches if branch.own is not None)
    chain.branches.append(Branch(directive=directive, condition=condition, own=own, chain=chain))


def _first_name(text: str) -> str:
    return text.split(maxsplit=1)[0] if text else ""
