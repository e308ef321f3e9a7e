"""Function definitions told by their braces: for a host that has no CUDA parser."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BOUNDARY = re.compile(r"[{};]")
_NOT_A_FUNCTION = re.compile(
    r"\b(?:if|for|while|switch|catch|do|else|namespace|struct|class|enum|union|return|requires)\b"
)
_NAME = re.compile(
    r"((?:[A-Za-z_]\w*(?:<[^()]*>)?::)*(?:operator\s*(?:\(\s*\)|\[\s*\]|[^\s\w(]+)|~?[A-Za-z_]\w*(?:<[^()<>]*>)?))\s*$"
)
_TEMPLATE = re.compile(r"^\s*template\s*<")
_TRAILER = re.compile(r"(?:\s|const|noexcept|override|final|volatile|&|->\s*[\w:<>,\s*&]+)*$")


def spans(code: str) -> Iterator[tuple[str, str, int, int]]:
    """(name, head, opening brace, closing brace) of each function; *code* is free of comments, strings, directives."""
    stack: list[tuple[int, str, str] | None] = []
    start = 0
    for found in _BOUNDARY.finditer(code):
        at = found.start()
        if found.group() == "{":
            head = code[start:at]
            name = _name(head)
            stack.append((at, name, head) if name else None)
        elif found.group() == "}" and stack:
            opened = stack.pop()
            if opened is not None:
                yield opened[1], opened[2], opened[0], at
        start = at + 1


def _name(head: str) -> str:
    """The name that *head* declares a function of, or an empty string."""
    text = _without_template(head)
    groups = list(_groups(text))
    while groups:
        opening, closing = groups[-1]
        name = _NAME.search(text[:opening])
        if name and not re.search(r"__launch_bounds__|__attribute__|__align__|noexcept|decltype", name[1]):
            before = text[: name.start()]
            rest = text[closing + 1 :]
            if _initialises(before):  # a constructor's members: what it is called stands before the colon
                groups.pop()
                continue
            usable = _TRAILER.match(rest) or rest.lstrip().startswith(":")
            control = _NOT_A_FUNCTION.search(before) or _NOT_A_FUNCTION.fullmatch(name[1])
            if control or not usable or "=" in before or before.rstrip().endswith(("]", ".", ">")):
                return ""
            return name[1].replace(" ", "")
        groups.pop()
    return ""


def _initialises(before: str) -> bool:
    return re.search(r"\)\s*(?:noexcept\s*)?:(?!:)", before) is not None


def _without_template(head: str) -> str:
    while _TEMPLATE.match(head):
        depth = 0
        for offset in range(head.index("<"), len(head)):
            depth += (head[offset] == "<") - (head[offset] == ">")
            if depth == 0:
                head = head[offset + 1 :]
                break
        else:
            return ""
    return head


def _groups(text: str) -> Iterator[tuple[int, int]]:
    depth, opening = 0, 0
    for offset, character in enumerate(text):
        if character == "(":
            if depth == 0:
                opening = offset
            depth += 1
        elif character == ")":
            depth -= 1
            if depth == 0:
                yield opening, offset
