"""The function or kernel around a line, in Python and in the C family.

A light reading that needs no parser generator: enough to say whether the
function around a placed hunk is the one it was written for, and whether it
changed. Where a file defeats it, the answer is None, never a guess.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

C_FAMILY = frozenset((".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hxx", ".cu", ".cuh", ".inl"))


@dataclass(frozen=True, slots=True)
class Span:
    """A function: its name and its lines, 0-based, last one exclusive."""

    name: str
    first: int
    end: int


def enclosing(path: str, lines: Sequence[bytes], line: int) -> Span | None:
    """Return the innermost function of *path* that holds the 0-based *line*."""
    inside = [span for span in functions(path, tuple(lines)) if span.first <= line < span.end]
    return max(inside, key=lambda span: span.first) if inside else None


@lru_cache(maxsize=16)
def functions(path: str, lines: tuple[bytes, ...]) -> tuple[Span, ...]:
    """Return the functions of a file, none for a language not known here."""
    dot = path.rfind(".")
    suffix = path[dot:] if dot >= 0 else ""
    if suffix in (".py", ".pyi"):
        return _python(lines)
    return _c_family(lines) if suffix in C_FAMILY else ()


def _python(lines: tuple[bytes, ...]) -> tuple[Span, ...]:
    try:
        module = ast.parse(b"".join(lines))
    except (SyntaxError, ValueError):
        return ()
    found: list[Span] = []
    stack: list[tuple[ast.AST, str]] = [(module, "")]
    while stack:
        node, outer = stack.pop()
        for child in ast.iter_child_nodes(node):
            name = outer
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{outer}.{child.name}" if outer else child.name
                if not isinstance(child, ast.ClassDef):
                    first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                    found.append(Span(name, first - 1, child.end_lineno or child.lineno))
            stack.append((child, name))
    return tuple(found)


_LITERAL = re.compile(rb'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
_DIRECTIVE = re.compile(rb"\s*#\s*([a-z]+)")
_CONTAINER = re.compile(rb"\b(?:namespace|class|struct|union|enum)\b[^()]*$|\bextern\s*\"")
_NOT_A_NAME = frozenset(
    b"if for while switch catch return __launch_bounds__ __attribute__ alignas decltype requires noexcept __declspec"
    b" asm defined".split()
)
_CALLED = re.compile(rb"(~?[A-Za-z_][\w:]*|operator[^\w\s(]+)\s*\(")


def _blank(match: re.Match[bytes]) -> bytes:
    """Keep the line structure of a comment or literal, and nothing else of it."""
    return b"\n" * match.group().count(b"\n")


def _c_family(lines: tuple[bytes, ...]) -> tuple[Span, ...]:
    found: list[Span] = []
    open_braces: list[tuple[str | None, int]] = []  # function name (None: not one), its first line
    conditionals: list[list[tuple[str | None, int]]] = []  # braces open where each #if began
    head = b""  # text since the last ; { }
    head_at = 0
    continued = False
    for number, line in enumerate(_LITERAL.sub(_blank, b"".join(lines)).split(b"\n")):
        directive = _DIRECTIVE.match(line)
        if continued or directive:
            continued = line.rstrip().endswith(b"\\")
            word = directive.group(1) if directive else b""
            # Branches of one #if are alternatives: each starts from the braces open at the #if.
            if word in (b"if", b"ifdef", b"ifndef"):
                conditionals.append(list(open_braces))
            elif word in (b"else", b"elif") and conditionals:
                open_braces = list(conditionals[-1])
            elif word == b"endif" and conditionals:
                conditionals.pop()
            continue
        for piece in re.split(rb"([;{}])", line):
            if piece == b"{":
                open_braces.append((_function_name(head, open_braces), head_at))
                head = b""
            elif piece == b"}":
                if open_braces:
                    name, first = open_braces.pop()
                    if name is not None:
                        found.append(Span(name, first, number + 1))
                head = b""
            elif piece == b";":
                # A for(;;) head or a default argument may hold one; only outside parentheses does it end anything.
                head = b"" if head.count(b"(") == head.count(b")") else head + piece
            elif piece.strip():
                if not head.strip():
                    head_at = number
                head += piece + b" "
    return tuple(found)


def _function_name(head: bytes, open_braces: Sequence[tuple[str | None, int]]) -> str | None:
    if any(name is not None for name, _ in open_braces) or _CONTAINER.search(head):
        return None  # a block inside a function, or a container of functions
    for match in _CALLED.finditer(head):
        name = match.group(1)
        if name not in _NOT_A_NAME:
            return name.decode("utf-8", "surrogateescape")
    return None
