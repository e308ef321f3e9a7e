"""Host C++ that compares SM numbers: conditions, switches and CHECK-like macros."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from downstream.arches import ComputeCapability
from downstream.guards import hardware
from downstream.guards.abstract import RANGE
from downstream.guards.assessment import Assessment, assess
from downstream.guards.comparisons import (
    ATOM,
    NAME,
    NOT_SM,
    OPERATORS,
    PAIRED,
    REVERSED,
    atom,
    comparison,
    edge,
    groups,
    truths,
)
from downstream.guards.context import Function, code_only, enclosing, functions
from downstream.guards.definitions import decode
from downstream.guards.model import Class, Effect, Guard, Kind, Question
from downstream.guards.values import FALSE, TRUE, Value

_SWITCH = re.compile(rf"\bswitch\s*\(\s*({NAME})\s*\)\s*\{{")
_CASE = re.compile(r"\bcase\s+(?:[\w:]*\b(?:kSM_?|Sm|SM_?|sm_?)(\d{2,3})[af]?|(\d{2,4}))\s*:|\b(default)\s*:")
_WORD_BEFORE = re.compile(r"([A-Za-z_]\w*)\s*$")
_CHECKS = re.compile(r"CHECK|ASSERT|ENFORCE|REQUIRE|assert|VERIFY")
_REFUSES = re.compile(
    r"\bthrow\b|THROW|\bERROR\w*\(|CHECK\w*\s*\(\s*false|\breturn\s+(?:false|nullptr|0|-1)\s*;|std::abort|\bexit\("
)
# Code for cubins that NVIDIA ships for SM10x only.
_CUBINS = re.compile(
    r"trtllm_fused_moe|trtllm/fmha|trtllm_fmha_kernel|trtllmGen|trtllm_(?:batched_)?gemm|trtllm_low_latency"
)
_RANGE = tuple(
    ComputeCapability(*pair) for pair in ((8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1))
)


@dataclass(frozen=True, slots=True)
class _Condition:
    start: int
    end: int
    word: str  # if, while, a macro's name, return, … : what asks
    switch: tuple[frozenset[int], bool] | None = None  # the cases, and whether a default serves


def guards(path: str, content: bytes, question: Question) -> Iterator[Guard]:
    """The conditions of one file that tell architectures apart."""
    yield from _HostFile(path, decode(content), question).guards()


class _HostFile:
    def __init__(self, path: str, text: str, question: Question) -> None:
        self._path = path
        self._source = text
        self._text = code_only(text)
        self._question = Question(references=question.references, targets=question.targets, variants=False)

    @cached_property
    def _functions(self) -> tuple[Function, ...]:
        return functions(self._source)

    def guards(self) -> Iterator[Guard]:
        seen: set[tuple[int, int]] = set()
        for condition in sorted(self._conditions(), key=lambda each: (each.start, -each.end)):
            if any(start <= condition.start and condition.end <= end for start, end in seen):
                continue
            states = {self._admits(condition, capability).number for capability in RANGE}
            if len(states) > 1:
                seen.add((condition.start, condition.end))
                yield self._guard(condition)

    def _conditions(self) -> Iterator[_Condition]:
        for pattern in (ATOM, REVERSED):
            for found in pattern.finditer(self._text):
                if atom(found.group()) is not None:
                    yield self._around(found.start(), found.end())
        for found in PAIRED.finditer(self._text):
            if comparison(found[2], OPERATORS[found[1]], found[3], found[4]):
                end = self._closing(self._text.index("(", found.start()))
                yield _Condition(found.start(), end + 1, "CHECK")
        for found in _SWITCH.finditer(self._text):
            if not NOT_SM.search(found[1]):
                yield self._switch(found)

    def _switch(self, found: re.Match[str]) -> _Condition:
        close = self._closing(found.end() - 1)
        body = self._text[found.end() : close]
        cases: set[int] = set()
        default = False
        for case in _CASE.finditer(body):
            if case[3]:
                default = _REFUSES.search(body[case.end() :]) is None
            else:
                number = int(case[1] or case[2])
                cases.add(number // 10 if number >= 500 else number)
        end = self._closing(self._text.index("(", found.start())) + 1
        return _Condition(found.start(), end, "switch", (frozenset(cases), default))

    def _closing(self, opening: int) -> int:
        """The offset of the bracket that closes the one at *opening*."""
        pairs = {"(": ")", "{": "}", "[": "]"}
        close = pairs[self._text[opening]]
        depth = 0
        for offset in range(opening, len(self._text)):
            character = self._text[offset]
            depth += (character == self._text[opening]) - (character == close)
            if depth == 0:
                return offset
        return len(self._text) - 1

    def _around(self, start: int, end: int) -> _Condition:
        """The whole condition that holds the comparison at *start*, and what asks for it."""
        text = self._text
        while True:
            left, opened = edge(text, start, -1)
            right, closed = edge(text, end - 1, 1)
            before = text[: left + 1 if not opened else left]
            word = _WORD_BEFORE.search(before)
            if opened and closed and (word is None or word[1] in ("return", "and", "or", "not")) and groups(before):
                start, end = left, right + 1
                continue
            name = word[1] if word and opened else ""
            if not opened and (word := re.search(r"\b(return|constexpr|if)\s*$", text[:start])):
                name = word[1]
            inner = text[left + 1 : right]
            lead = len(inner) - len(inner.lstrip())
            return _Condition(left + 1 + lead, left + 1 + len(inner.rstrip()), name)

    def _admits(self, condition: _Condition, capability: ComputeCapability) -> Value:
        if condition.switch is not None:
            cases, default = condition.switch
            return TRUE if default or capability.number in cases else FALSE
        possible = truths(self._text[condition.start : condition.end], capability)
        wanted = not self._inverted(condition)
        return TRUE if wanted in possible else FALSE

    def _inverted(self, condition: _Condition) -> bool:
        body, _ = self._arms(condition)
        return condition.word == "if" and len(body) < 400 and _REFUSES.search(body) is not None

    def _arms(self, condition: _Condition) -> tuple[str, str]:
        """The text that an ``if`` guards, and its else."""
        if condition.word not in ("if", "constexpr"):
            return "", ""
        close = self._text.find(")", condition.end)
        body, end = self._statement(close + 1)
        otherwise = re.compile(r"\s*else\b").match(self._text, end)
        return body, self._statement(otherwise.end())[0] if otherwise else ""

    def _statement(self, offset: int) -> tuple[str, int]:
        while offset < len(self._text) and self._text[offset].isspace():
            offset += 1
        if offset < len(self._text) and self._text[offset] == "{":
            end = self._closing(offset) + 1
        else:
            end = self._text.find(";", offset) + 1 or len(self._text)
            brace = self._text.find("{", offset, end)
            if brace != -1:
                end = self._closing(brace) + 1
        return self._source[offset:end], end

    def _guard(self, condition: _Condition) -> Guard:
        assessment = assess(lambda target: self._admits(condition, target.capability), self._question)
        first = self._text.count("\n", 0, condition.start) + 1
        last = self._text.count("\n", 0, condition.end - 1) + 1
        function = enclosing(self._functions, first, last)
        name = function.name if function else None
        verdict_class, effect, why = self._judged(condition, assessment, name or "")
        return Guard(
            path=self._path,
            line=first,
            end_line=last,
            kind=Kind.HOST,
            condition=self._shown(condition),
            arches=assessment.arches,
            excluded=assessment.excluded,
            verdict_class=verdict_class,
            effect=effect,
            function=name,
            evidence=why,
        )

    def _shown(self, condition: _Condition) -> str:
        shown = " ".join(self._text[condition.start : condition.end].split())
        if condition.switch is None:
            return shown
        cases, default = condition.switch
        return f"{shown} case {', '.join(map(str, sorted(cases)))}" + (" default" if default else "")

    def _judged(
        self, condition: _Condition, assessment: Assessment, function: str
    ) -> tuple[Class | None, Effect | None, str]:
        body, otherwise = self._arms(condition)
        if not assessment.excluded:
            return self._over(condition, body)
        refused = bool(_CHECKS.search(condition.word)) or self._inverted(condition) or condition.switch is not None
        effect = Effect.FALLBACK if otherwise and not refused else Effect.FEATURE_OFF
        if _CUBINS.search(self._path):
            return Class.HARDWARE, effect, "runs TensorRT-LLM cubins, which exist for SM10x only"
        line = self._line_of(condition)
        evidence = hardware.evidence(body) or hardware.needs([body, *([function, line] if not body or refused else [])])
        if evidence:
            return Class.HARDWARE, effect, evidence
        if otherwise and not _REFUSES.search(otherwise[:400]):
            return Class.SERVED, Effect.FALLBACK, "its else serves the target"
        majors = {target.capability.major for target in assessment.admits}
        return (
            Class.SUSPECT,
            effect,
            "admits both SM90 and SM100" if {9, 10} <= majors else "nothing found that SM12x lacks",
        )

    def _over(self, condition: _Condition, body: str) -> tuple[Class | None, Effect | None, str]:
        at = {
            number: self._admits(condition, ComputeCapability(*divmod(number, 10))).truth for number in (90, 100, 120)
        }
        if at != {90: False, 100: True, 120: True}:
            return None, None, ""
        found = hardware.ONLY_SM10X.search(body) or (_CUBINS.search(self._path) if not body else None)
        if found and not hardware.FOR_SM12X.search(body):
            return Class.OVER_INCLUSIVE, Effect.OTHER, f"admits SM12x to '{found.group()}', which is for SM10x"
        return None, None, ""

    def _line_of(self, condition: _Condition) -> str:
        """The statement around a condition; what is asked is no evidence for the answer."""
        start = self._source.rfind("\n", 0, condition.start) + 1
        end = self._source.find(";", condition.end)
        around = self._source[start : condition.start] + self._source[condition.end : end if end != -1 else None]
        return around[:400]
