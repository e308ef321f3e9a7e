"""Which function a line stands in, and whether a guard is a kernel's whole body (tree-sitter-cuda)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query

_KERNEL = re.compile(r"\b(?:__global__|CUTLASS_GLOBAL)\b")
_COMMENT_OR_STRING = re.compile(
    r"""//(?:\\\r?\n|[^\n])*|/\*(?:.*?\*/|.*\Z)|"(?:\\.|[^"\\\n])*"?|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])*'?""", re.DOTALL
)
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


def available() -> bool:
    """Whether the parser is installed (it is not on a host that only got the bundle)."""
    try:
        _parser()
    except ModuleNotFoundError:
        return False
    return True


@cache
def _parser() -> tuple[Parser, Query]:
    import tree_sitter
    import tree_sitter_cuda

    language = tree_sitter.Language(tree_sitter_cuda.language())
    return tree_sitter.Parser(language), tree_sitter.Query(language, "(function_definition) @function")


def functions(text: str) -> tuple[Function, ...]:
    """The function definitions of a file, in the order they begin."""
    from tree_sitter import QueryCursor

    content = text.encode("utf-8", "surrogateescape")
    parser, query = _parser()
    nodes = QueryCursor(query).captures(parser.parse(content).root_node).get("function", [])
    found = (_function(node, content) for node in sorted(nodes, key=lambda each: each.start_byte))
    return tuple(each for each in found if each is not None)


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
    return " ".join(text.split("(")[0].split()) or None


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
    outside = []
    for number in range(function.body_line, function.last_line + 1):
        if first <= number <= last:
            continue
        line = lines[number - 1]
        if number == function.last_line:
            line = line[: function.last_column]
        if number == function.body_line:
            line = line[function.body_column :]
        outside.append(line)
    return not _DIRECTIVE.sub("", "\n".join(outside)).strip()
