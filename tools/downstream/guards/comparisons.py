"""Comparisons of SM numbers in C++ text: what holds on which architecture, and how far an expression reaches."""

from __future__ import annotations

import re
from collections.abc import Callable

from downstream.arches import ComputeCapability

NAME = (
    r"(?:[A-Za-z_]\w*(?:\(\s*\))?\s*(?:\.|->|::)\s*)*"
    r"(?:\w*(?<![a-zA-Z])(?:[sS]m|SM)(?:_?[vV]ersion|_?[aA]rch)?_?|[a-z]+SM|\w*[sS]m_?[vV]ersion_?"
    r"|(?:cc_|sm_|device_|cuda_|compute_)?major|(?:cuda_|gpu_|device_)?arch|(?:compute|device)_?capability"
    r"|get\w*(?:SM|Sm|sm)_?[vV]ersion)(?:\(\s*\w*\s*\))?"
)
CONSTANT = r"(?:[\w:]*\b(?:kSM_?|Sm|SM_?|sm_?)(\d{2,3})[af]?|(\d{1,4}))(?![\w.])"
ATOM = re.compile(rf"(?<![\w.>:])({NAME})\s*(==|!=|>=|<=|>|<)\s*{CONSTANT}")
REVERSED = re.compile(rf"(?<![\w.]){CONSTANT}\s*(==|!=|>=|<=|>|<)\s*({NAME})(?![\w(.])")
PAIRED = re.compile(rf"\b\w*(?:CHECK|ASSERT|ENFORCE|REQUIRE)\w*_(EQ|NE|GE|GT|LE|LT)\s*\(\s*({NAME})\s*,\s*{CONSTANT}")
# The end of a comparison with an SM number, for a quick look at bytes: what ATOM, REVERSED and PAIRED find has one.
_CONST = rb"(?:[\w:]*(?:kSM_?|S[mM]_?|sm_?)\d{2,3}[af]?|(?:[5-9]|1[0-5]|[789]\d|1[012]\d|[789]\d0|1[012]\d0))(?![\w.])"
_WORD = rb"(?:(?:sm|Sm|SM)(?:_?[vV]ersion|_?[aA]rch)?_?|major|arch|[cC]apability)"
_OPERATOR = rb"\s*(?:[=!<>]=|[<>])\s*"
_FORWARD = re.compile(rb"%b(?:\(\s*\w*\s*\))?(?:%b%b|\s*,\s*%b\s*[,)])" % (_WORD, _OPERATOR, _CONST, _CONST))
_END = rb"(?:(?<=[0-9af][=!<>])|(?<=[0-9af] [=!<>])|(?<=[0-9af][=!<>]=)|(?<=[0-9af] [=!<>]=))"
_BACKWARD = re.compile(rb"[=!<>]=?%b\s*+([\w.:>-]++)" % _END)  # a constant before, and what it is compared with
_ENDS = re.compile(rb"%b\Z" % _WORD)
_SWITCHES = re.compile(rb"\bswitch\s*\([^()]*(?:sm|Sm|SM|major|arch|apability)")
_NUMBERS = frozenset({70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121})
OPERATORS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}
_MIRROR = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
NOT_SM = re.compile(r"num|count|smem|[sS]mem|shared|layout|row|col", re.IGNORECASE)
Holds = Callable[[ComputeCapability], bool]


def mentioned(content: bytes) -> bool:
    """Whether a C++ file can hold a comparison of SM numbers."""
    if _FORWARD.search(content) or _SWITCHES.search(content):
        return True
    return any(_ENDS.search(found[1]) for found in _BACKWARD.finditer(content))


def edge(text: str, offset: int, step: int) -> tuple[int, bool]:
    """Where the expression around *offset* ends in direction *step*; whether at a bracket that holds it."""
    opening, closing = ("(", ")") if step < 0 else (")", "(")
    depth = 0
    offset += step
    while 0 <= offset < len(text):
        character = text[offset]
        if character == closing:
            depth += 1
        elif character == opening:
            if depth == 0:
                return offset, True
            depth -= 1
        elif depth == 0 and (
            character in ";{},?"
            or (character == ":" and text[offset - 1] != ":" and text[offset + 1 : offset + 2] != ":")
            or (character == "=" and text[offset - 1] not in "=!<>" and text[offset + 1 : offset + 2] != "=")
        ):
            return offset, False
        elif depth == 0 and step < 0 and re.match(r"return\b", text[offset:]) and not text[offset - 1].isalnum():
            return offset + 5, False
        offset += step
    return (-1 if step < 0 else len(text)), False


def groups(before: str) -> bool:
    """Whether a parenthesis after *before* only groups: an operator or the beginning of an expression precedes it."""
    tail = before.rstrip()
    return not tail or tail[-1] in "(!&|=,?:{};" or tail.endswith(("return", "and", "or", "not"))


def truths(text: str, capability: ComputeCapability) -> frozenset[bool]:
    """What a boolean expression may be on *capability*; operands that ask for nothing else may be anything."""
    text = text.strip()
    for operator, decides in (("||", True), ("&&", False)):
        parts = _split(text, operator)
        if len(parts) > 1:
            found = [truths(part, capability) for part in parts]
            if any(each == {decides} for each in found):
                return frozenset({decides})
            if all(each == {not decides} for each in found):
                return frozenset({not decides})
            return frozenset({True, False})
    if text.startswith("!") and not text.startswith("!="):
        return frozenset(not truth for truth in truths(text[1:], capability))
    if text.startswith("(") and _split(text[1:-1], ")") and _balanced(text[1:-1]) and text.endswith(")"):
        return truths(text[1:-1], capability)
    paired = PAIRED.match(text)
    if paired:
        asked = comparison(paired[2], OPERATORS[paired[1]], paired[3], paired[4])
    else:
        asked = atom(text)
    return frozenset({asked(capability)}) if asked else frozenset({True, False})


def atom(text: str) -> Holds | None:
    found = ATOM.fullmatch(text.strip())
    if found:
        return comparison(found[1], found[2], found[3], found[4])
    found = REVERSED.fullmatch(text.strip())
    return comparison(found[4], _MIRROR[found[3]], found[1], found[2]) if found else None


def comparison(name: str, operator: str, named: str | None, number: str | None) -> Holds | None:
    """A function from a capability to the truth of ``name operator constant``, or None where it is about no SM."""
    if NOT_SM.search(name):
        return None
    value = int(named or number or 0)
    last = re.sub(r"\(.*", "", name).split(".")[-1].split(">")[-1].split(":")[-1].strip().lower()
    if last.endswith("major"):
        if not 5 <= value <= 15:
            return None
    elif value in _NUMBERS:
        pass
    elif value % 10 == 0 and value // 10 in _NUMBERS:
        value //= 10
    else:
        return None
    major = last.endswith("major")

    def holds(capability: ComputeCapability) -> bool:
        mine = capability.major if major else capability.number
        return {
            "==": mine == value,
            "!=": mine != value,
            ">=": mine >= value,
            "<=": mine <= value,
            ">": mine > value,
            "<": mine < value,
        }[operator]

    return holds


def _split(text: str, operator: str) -> list[str]:
    """*text* cut at *operator* outside brackets."""
    parts, depth, start, at = [], 0, 0, 0
    while at < len(text):
        character = text[at]
        depth += character in "([{"
        depth -= character in ")]}"
        if depth == 0 and text.startswith(operator, at):
            parts.append(text[start:at])
            at += len(operator)
            start = at
            continue
        at += 1
    return [*parts, text[start:]]


def _balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0
