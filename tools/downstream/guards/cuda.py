"""Preprocessor guards: every branch of every chain that asks for the architecture."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from downstream.arches import Target
from downstream.guards import hardware
from downstream.guards.assessment import Assessment, assess, suspicion
from downstream.guards.context import Function, covers_body, enclosing, functions, without_comments
from downstream.guards.definitions import Definitions, decode
from downstream.guards.directives import Branch, Chain
from downstream.guards.macros import ANY
from downstream.guards.model import Class, Effect, Guard, Kind, Question

_DIRECTIVE_LINE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_DEFINE_LINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+).*$", re.MULTILINE)
_OWN_NAME = re.compile(r"SM_?(\d{2,3})", re.IGNORECASE)


class CudaFile:
    """One C, C++ or CUDA file of *definitions*."""

    def __init__(self, definitions: Definitions, path: str, content: bytes, question: Question) -> None:
        self._definitions = definitions
        self.path = path
        self.text = decode(content)
        self._question = question
        self.source = definitions.source(path)
        self._judged: dict[int, Guard] = {}

    @cached_property
    def lines(self) -> Sequence[str]:
        """The file's lines without comments."""
        return without_comments(self.text).split("\n")

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        return functions(self.text)

    def guards(self) -> Iterable[Guard]:
        """Every branch that depends on the architecture, dead ones left out."""
        for branch in self.source.branches():
            asking = (ANY, self._question.references[0], self._question.targets[0])
            if not any(self._definitions.file(self.path, each).state(branch).architecture for each in asking):
                continue
            if self._dead(branch):
                continue
            guard = self._guard(branch)
            self._judged[id(branch)] = guard
            yield guard

    def _state(self, branch: Branch, target: Target) -> bool | None:
        return self._definitions.file(self.path, target).state(branch).value.truth

    def _dead(self, branch: Branch) -> bool:
        """Whether no architecture whatever compiles it: ``#if 0 && …``."""
        return self._definitions.file(self.path, ANY).state(branch).value.truth is False

    def _guard(self, branch: Branch) -> Guard:
        refuses = self._refuses_build(branch)
        assessment = assess(
            lambda target: self._definitions.file(self.path, target).state(branch).value,
            self._question,
            inverted=refuses,
        )
        first, last = branch.directive.line, branch.end_line
        function = enclosing(self.functions, first, branch.chain.end_line)
        whole = (
            function is not None
            and function.kernel
            and covers_body(self.lines, function, branch.chain.line, branch.chain.end_line)
        )
        verdict_class, effect, why = self._judge(branch, assessment, function, whole=whole, refuses=refuses)
        because: dict[str, None] = {}
        if assessment.excluded or assessment.possibly:
            for target in self._question.requested:
                because.update(dict.fromkeys(self._definitions.file(self.path, target).state(branch).why))
        return Guard(
            path=self.path,
            line=first,
            end_line=last,
            kind=Kind.PREPROCESSOR,
            condition=branch.condition,
            arches=assessment.arches,
            excluded=assessment.excluded,
            whole_kernel=whole,
            verdict_class=verdict_class,
            effect=effect,
            function=function.name if function else None,
            unknown=assessment.unknown,
            evidence=why,
            because=tuple(because),
        )

    def _judge(
        self, branch: Branch, assessment: Assessment, function: Function | None, *, whole: bool, refuses: bool
    ) -> tuple[Class | None, Effect | None, str]:
        if not assessment.excluded and not assessment.possibly:
            instruction = self._needs_what_targets_lack(branch)
            return (Class.OVER_INCLUSIVE, Effect.OTHER, instruction) if instruction else (None, None, "")
        server = self._server(branch, assessment)
        code = self._code(branch, assessment.admits)
        effect = self._effect(branch, code, assessment, whole=whole, served=server is not None)
        if refuses:
            effect = Effect.BUILD_REFUSED
            code = "\n".join(self.lines)
        if assessment.possibly:
            return Class.UNKNOWN, effect, f"depends on {', '.join(assessment.unknown)}"
        outer = self._already_excluded(branch, assessment)
        if outer is not None:
            return outer.verdict_class, effect, f"inside line {outer.line}: {outer.evidence}"
        lacking = hardware.evidence(code) or hardware.evidence(function.name if function else "")
        if lacking:
            return Class.HARDWARE, effect, lacking
        if server is not None:
            return Class.SERVED, effect, f"line {server.directive.line} (#{server.directive.keyword}) serves the target"
        named = self._names_its_architecture(branch, assessment)
        if named:
            return Class.HARDWARE, effect, named
        return Class.SUSPECT, effect, suspicion(assessment)

    def _already_excluded(self, branch: Branch, assessment: Assessment) -> Guard | None:
        """The guard around *branch* that excludes the same targets by itself, or None."""
        outer = branch.chain.parent
        while outer is not None:
            found = self._judged.get(id(outer))
            shut = all(self._state(outer, target) is False for target in assessment.excludes)
            if found is not None and found.excluded and shut:
                return found
            outer = outer.chain.parent
        return None

    def _server(self, branch: Branch, assessment: Assessment) -> Branch | None:
        """The other branch that serves every target this one excludes, or None."""
        for other in branch.chain.branches:
            if other is branch or self._refuses(other):
                continue
            if assessment.excludes and all(self._state(other, target) for target in assessment.excludes):
                return other
        serving = {
            target: next(
                (
                    other
                    for other in branch.chain.branches
                    if other is not branch and not self._refuses(other) and self._state(other, target)
                ),
                None,
            )
            for target in assessment.excludes
        }
        return next(iter(serving.values())) if serving and all(serving.values()) else None

    def _effect(self, branch: Branch, code: str, assessment: Assessment, *, whole: bool, served: bool) -> Effect:
        if served:
            return Effect.FALLBACK
        if any(
            self._refuses_build(other)
            for other in branch.chain.branches
            if other is not branch and any(self._state(other, target) for target in assessment.excludes)
        ):
            return Effect.BUILD_REFUSED
        if whole:
            return Effect.EMPTY_KERNEL
        if hardware.SYNC.search(code):
            return Effect.NO_SYNC
        return Effect.FEATURE_OFF if _DIRECTIVE_LINE.sub("", code).strip() or "define" in code else Effect.OTHER

    def _code(self, branch: Branch, admits: Iterable[Target]) -> str:
        """What a reference compiles of *branch*, free of comments."""
        skipped: set[int] = set()
        targets = tuple(admits)
        for nested in _nested(branch):
            if targets and all(self._state(nested, target) is False for target in targets):
                skipped.update(range(nested.directive.line, nested.end_line + 1))
        first = branch.directive.last_line + 1
        return "\n".join(
            self.lines[number - 1] for number in range(first, branch.end_line + 1) if number not in skipped
        )

    def _own_code(self, branch: Branch) -> str:
        """The lines of *branch* that stand in no chain within it."""
        skipped: set[int] = set()
        for item in branch.items:
            if isinstance(item, Chain):
                skipped.update(range(item.line, item.end_line + 1))
        first = branch.directive.last_line + 1
        return "\n".join(
            self.lines[number - 1] for number in range(first, branch.end_line + 1) if number not in skipped
        )

    def _needs_what_targets_lack(self, branch: Branch) -> str:
        targets = {target for _, targets in self._question.rounds for target in targets}
        if not all(self._state(branch, target) for target in targets):
            return ""
        return hardware.rejected(self._own_code(branch))

    def _refuses(self, branch: Branch) -> bool:
        """Whether all that *branch* does is to refuse: an error, a trap, or nothing."""
        code = "\n".join(self.lines[branch.directive.last_line : branch.end_line])
        if hardware.REFUSAL.search(code):
            return code.count(";") <= 3
        return not code.strip()

    def _refuses_build(self, branch: Branch) -> bool:
        code = self._own_code(branch)
        return hardware.BUILD_REFUSAL.search(code) is not None and code.count(";") <= 1

    def _names_its_architecture(self, branch: Branch, assessment: Assessment) -> str:
        """Evidence where the branch only defines macros named after the very architectures it admits."""
        code = "\n".join(self.lines[branch.directive.last_line : branch.end_line])
        defined = _DEFINE_LINE.findall(code)
        rest = _DIRECTIVE_LINE.sub("", code).strip()
        admitted = {str(target.capability.number) for target in assessment.admits}
        if not defined or rest or not all(_named(name, admitted) for name in defined):
            return ""
        return f"defines {', '.join(dict.fromkeys(defined))}: a name for that architecture; its uses are judged"


def _named(name: str, admitted: set[str]) -> bool:
    numbers = set(_OWN_NAME.findall(name))
    return bool(numbers) and admitted <= numbers | {f"{number[:-1]}3" for number in numbers}


def _nested(branch: Branch) -> Iterable[Branch]:
    for item in branch.items:
        if isinstance(item, Chain):
            for inner in item.branches:
                yield inner
                yield from _nested(inner)
