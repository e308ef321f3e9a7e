"""Which function a line stands in, and whether a guard is a kernel's whole body (tree-sitter-cuda)."""

from __future__ import annotations

import bisect
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from downstream.guards.braces import spans

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query

_KERNEL = re.compile(r"\b(?:__global__|CUTLASS_GLOBAL)\b")
_COMMENT_OR_STRING = re.compile(
    r"""//(?:\\\r?\n|[^\n])*|/\*(?:.*?\*/|.*\Z)|"(?:\\.|[^"\\\n])*"?|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])*'?""", re.DOTALL
)
_OPERATOR = re.compile(r"(?:\w+\s*::\s*)*operator\s*(?:\(\s*\)|\[\s*\]|[^\s\w(]+|\w+)")
_LAST_NAME = re.compile(r"[\w:~]+(?:<.*>)?$")  # macros may stand before it
_INK = re.compile(r"[^\n]")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\r?\n|[^\n])*", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function definition; lines are 1-based, the body's are those of its braces."""

    name: str
    kernel: bool
    first_line: int
    body_line: int
    body_column: int  # just after the opening brace
    last_line: int
    last_column: int  # of the closing brace


@cache
def available() -> bool:
    """Whether the CUDA parser is installed (it is not on a host that only got the bundle)."""
    return importlib.util.find_spec("tree_sitter_cuda") is not None


@cache
def _parser() -> tuple[Parser, Query]:
    import tree_sitter
    import tree_sitter_cuda

    language = tree_sitter.Language(tree_sitter_cuda.language())
    return tree_sitter.Parser(language), tree_sitter.Query(language, "(function_definition) @function")


def functions(text: str) -> tuple[Function, ...]:
    """The function definitions of a file, in the order they begin.

    Where conditionals cut a function in two, a parser loses its way and braces
    may not; so both are asked, and the shorter answer is taken.
    """
    found = {each.body_line: each for each in _by_braces(text)}
    for each in _parsed(text) if available() else ():
        other = found.get(each.body_line)
        if other is None or each.last_line <= other.last_line:
            found[each.body_line] = each
    return tuple(sorted(found.values(), key=lambda each: (each.first_line, each.body_line)))


def _parsed(text: str) -> tuple[Function, ...]:
    from tree_sitter import QueryCursor

    content = text.encode("utf-8", "surrogateescape")
    parser, query = _parser()
    nodes = QueryCursor(query).captures(parser.parse(content).root_node).get("function", [])
    found = (_function(node, content) for node in nodes)
    return tuple(each for each in found if each is not None)


def _by_braces(text: str) -> tuple[Function, ...]:
    lines = Lines(text)
    found = [
        Function(
            name=name,
            kernel=_KERNEL.search(head) is not None,
            first_line=lines.at(opening - len(head.lstrip()))[0],
            body_line=lines.at(opening)[0],
            body_column=lines.at(opening)[1] + 1,
            last_line=lines.at(closing)[0],
            last_column=lines.at(closing)[1],
        )
        for name, head, opening, closing in spans(code_only(text))
    ]
    return tuple(found)


class Lines:
    """Offsets of a text as lines (1-based) and columns (0-based)."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def at(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1]


def _function(node: Node, content: bytes) -> Function | None:
    body = node.child_by_field_name("body")
    name = _name(node, content)
    if body is None or body.type != "compound_statement" or name is None:
        return None
    head = content[node.start_byte : body.start_byte].decode("utf-8", "replace")
    return Function(
        name=name,
        kernel=_KERNEL.search(head) is not None,
        first_line=node.start_point[0] + 1,
        body_line=body.start_point[0] + 1,
        body_column=body.start_point[1] + 1,
        last_line=body.end_point[0] + 1,
        last_column=max(0, body.end_point[1] - 1),
    )


def _name(node: Node, content: bytes) -> str | None:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None:
        inner = declarator.child_by_field_name("declarator")
        if inner is None and declarator.type == "reference_declarator" and declarator.named_children:
            inner = declarator.named_children[-1]
        if inner is None:
            break
        declarator = inner
    if declarator is None:
        return None
    text = content[declarator.start_byte : declarator.end_byte].decode("utf-8", "replace")
    operator = _OPERATOR.match(text)
    if operator:
        return operator[0].replace(" ", "")
    name = _LAST_NAME.search(" ".join(text.split("(")[0].split()))
    return name[0] if name else None


def enclosing(found: Sequence[Function], first: int, last: int) -> Function | None:
    """The innermost function whose body holds the lines *first* to *last*."""
    inside = [each for each in found if each.body_line <= first and last <= each.last_line]
    return max(inside, key=lambda each: each.body_line, default=None)


def without_comments(text: str) -> str:
    """*text* with comments blanked out, line for line; strings stay, for assembly is in them."""
    if "/" not in text:
        return text
    return _COMMENT_OR_STRING.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    text = found.group()
    return _INK.sub(" ", text) if text.startswith(("//", "/*")) else text


def code_only(text: str) -> str:
    """*text* with comments, strings and directives blanked out, character for character."""
    bare = _COMMENT_OR_STRING.sub(lambda found: _INK.sub(" ", found.group()), text)
    return _DIRECTIVE.sub(lambda found: _INK.sub(" ", found.group()), bare)


def covers_body(lines: Sequence[str], function: Function, first: int, last: int) -> bool:
    """Whether nothing but directives stands in the body outside lines *first* to *last*.

    *lines* are the file's, free of comments.
    """
    directive = False  # whether the line before is one that goes on
    for number in range(function.body_line, function.last_line + 1):
        if first <= number <= last:
            continue
        line = lines[number - 1]
        if number == function.last_line:
            line = line[: function.last_column]
        if number == function.body_line:
            line = line[function.body_column :]
        line = line.strip()
        directive = directive or line.startswith("#")
        if line and not directive:
            return False
        directive = directive and line.endswith("\\")
    return True
