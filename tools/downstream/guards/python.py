"""Python gates: what each admits, what it guards, and whether shutting SM12x out is right."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from downstream.arches import ComputeCapability
from downstream.guards import hardware
from downstream.guards.abstract import RANGE, Abstract, Arch, Const, Scope, compare
from downstream.guards.assessment import Assessment, assess, suspicion
from downstream.guards.evidence import code_of, evidence, module_name
from downstream.guards.gate import Gate, Role
from downstream.guards.gates import gates
from downstream.guards.interpreter import Interpreter
from downstream.guards.model import Class, Effect, Guard, Kind, Question, Verdict
from downstream.guards.names import NAMED, PREDICATE
from downstream.guards.predicates import Predicates
from downstream.guards.refusal import gives_nothing, nothing, refuses, turns_others_away
from downstream.guards.values import FALSE, TRUE, Value, unknown


def guards(path: str, question: Question, predicates: Predicates) -> tuple[list[Guard], list[str]]:
    """The gates of one file that tell architectures apart, and what could not be read."""
    module = predicates.module(path)
    if module is None:
        return [], [f"{path}:1: this Python cannot read it"]
    lines = module.text.split("\n")
    found: list[Guard] = []
    for gate in gates(module.tree, module.text, predicates.pertinent(path)):
        guard = _Judge(path, lines, gate, question, predicates).guard()
        if guard is not None:
            found.append(guard)
    return found, []


class _Judge:
    """One gate."""

    def __init__(self, path: str, lines: Sequence[str], gate: Gate, question: Question, predicates: Predicates) -> None:
        self._path = path
        self._lines = lines
        self._gate = gate
        self._question = Question(references=question.references, targets=question.targets, variants=False)
        self._predicates = predicates
        self._inverted = gate.role is Role.IF and (refuses(gate.body) or turns_others_away(gate.node, gate.body))
        self._decided: tuple[str, ...] = ()  # what decides instead, where that is judged by itself

    def guard(self) -> Guard | None:
        if self._gate.role is Role.COMMENTED:
            return self._commented()
        if not self._asks():
            return None
        own = [self._own(capability) for capability in RANGE]
        if len({state.number for state in own}) == 1 and not own[0].names:
            return None
        assessment = assess(lambda target: self._state(target.capability), self._question)
        verdict_class, effect, why = self._judged(assessment)
        gate = self._gate
        return Guard(
            path=self._path,
            line=gate.line,
            end_line=gate.end_line,
            kind=Kind.PYTHON,
            condition=gate.text,
            arches=assessment.arches,
            excluded=assessment.excluded,
            verdict_class=verdict_class,
            effect=effect,
            function=gate.qualified,
            unknown=assessment.unknown,
            evidence=why,
        )

    def _asks(self) -> bool:
        if self._gate.role in (Role.LIST, Role.DECORATOR, Role.TABLE):
            return True
        interpreter = Interpreter(self._predicates, self._path, RANGE[0])
        interpreter.evaluate(self._gate.node, Scope(assigned=self._gate.assigned))
        self._decided = () if interpreter.direct else tuple(sorted(interpreter.decided))
        return interpreter.asked

    def _state(self, capability: ComputeCapability) -> Value:
        """Whether the gate is asked on *capability*, and admits it."""
        return FALSE if self._taken_before(capability) else self._own(capability)

    def _taken_before(self, capability: ComputeCapability) -> bool:
        """Whether an earlier branch of the chain is certain to be taken."""
        interpreter = Interpreter(self._predicates, self._path, capability)
        scope = Scope(assigned=self._gate.assigned)
        return any(interpreter.evaluate(test, scope).truths()[0] == {True} for test in self._gate.earlier)

    def _own(self, capability: ComputeCapability) -> Value:
        """Whether the gate by itself admits *capability*: true where it can be passed at all."""
        interpreter = Interpreter(self._predicates, self._path, capability)
        gate = self._gate
        scope = Scope(assigned=gate.assigned)
        if gate.role in (Role.LIST, Role.DECORATOR, Role.TABLE):
            return _admitted(
                compare(ast.In(), Arch(capability), interpreter.evaluate(gate.node, scope)), gate, capability
            )
        return _passed(interpreter.evaluate(gate.node, scope), capability, wanted=not self._inverted)

    def _judged(self, assessment: Assessment) -> tuple[Class | None, Effect | None, str]:
        if not assessment.excluded:
            if assessment.possibly or (assessment.unknown and _any_unknown(assessment)):
                if self._decided:
                    return Class.SERVED, self._effect(), self._elsewhere()
                return Class.UNKNOWN, self._effect(), f"depends on {', '.join(assessment.unknown)}"
            over = self._over_inclusive(assessment)
            return (Class.OVER_INCLUSIVE, Effect.OTHER, over) if over else (None, None, "")
        effect = self._effect()
        if self._only_names():
            return Class.SERVED, effect, "names a predicate: every use of it is judged"
        lacking = evidence(self._gate, self._path, self._lines, inverted=self._inverted, admits=assessment.admits)
        if lacking:
            return Class.HARDWARE, effect, lacking
        if self._decided:
            return Class.SERVED, effect, self._elsewhere()
        server = self._server(assessment)
        if server:
            strange = self._serves_others(assessment)
            return (Class.SUSPECT if strange else Class.SERVED), Effect.FALLBACK, strange or server
        return Class.SUSPECT, effect, suspicion(assessment)

    def _effect(self) -> Effect:
        gate = self._gate
        if gate.role is Role.LIST:
            return Effect.BUILD_REFUSED
        if gate.role is Role.IF and gate.orelse and not self._inverted:
            return Effect.FALLBACK
        return Effect.FEATURE_OFF

    def _only_names(self) -> bool:
        """Whether the gate is the definition of a predicate, or a constant named after one."""
        gate = self._gate
        if gate.role is not Role.VALUE:
            return False
        named = gate.name or (gate.function.name if gate.function and isinstance(gate.statement, ast.Return) else "")
        return bool(PREDICATE.match(named) or NAMED.match(named))

    def _server(self, assessment: Assessment) -> str:
        """The other branch of the chain that the target takes."""
        gate = self._gate
        if gate.arms is not None:
            taken = nothing(gate.arms[1]) or _both(assessment)
            return "" if taken else "the other arm serves the target"
        if gate.role is not Role.IF or self._inverted:
            return ""
        if gate.earlier and all(self._taken_before(target.capability) for target in assessment.excludes):
            return f"line {gate.earlier[0].lineno} serves the target"
        if not gate.orelse:
            falls = isinstance(gate.body[-1], ast.Return) and gate.following and not gives_nothing(gate.following)
            return f"line {gate.following[0].lineno} serves the target" if falls and not _both(assessment) else ""
        return self._other_branch(assessment)

    def _other_branch(self, assessment: Assessment) -> str:
        """The elif or else that the target takes."""
        first = self._gate.orelse[0]
        if len(self._gate.orelse) == 1 and isinstance(first, ast.If):
            scope = Scope(assigned=self._gate.assigned)
            for target in assessment.excludes:
                interpreter = Interpreter(self._predicates, self._path, target.capability)
                node: ast.stmt = first
                while isinstance(node, ast.If) and interpreter.evaluate(node.test, scope).truths()[0] == {False}:
                    if not node.orelse:
                        return ""
                    node = node.orelse[0]
                if refuses([node]):
                    return ""
        elif refuses(self._gate.orelse):
            return ""
        return f"line {first.lineno} serves the target"

    def _serves_others(self, assessment: Assessment) -> str:
        """What serves the target instead, where that is made for SM10x, which the gate sends there, too."""
        gate = self._gate
        if any(target.capability.major == 10 for target in assessment.admits):
            return ""
        served: Sequence[ast.AST] = gate.arms[1:] if gate.arms else gate.orelse or gate.following[:1]
        text = "" if any(isinstance(node, ast.If) for node in served) else "\n".join(map(code_of, served))
        found = hardware.ONLY_SM10X.search(text)
        if found is None or hardware.FOR_SM12X.search(text):
            return ""
        return f"leaves the target to '{found.group()}', which is for SM10x"

    def _elsewhere(self) -> str:
        return f"decided by {', '.join(self._decided)}: judged there"

    def _over_inclusive(self, assessment: Assessment) -> str:
        """SM10x code that SM12x is sent into, by a gate that means one family and admits both."""
        gate = self._gate
        at = self._state
        if at(ComputeCapability(9, 0)).truth is not False or not (at(ComputeCapability(10, 0)).truth):
            return ""
        if not any(at(target.capability).truth for target in self._question.targets):
            return ""
        guarded = "\n".join(code_of(statement) for statement in gate.body) if gate.body and not self._inverted else ""
        if gate.role in (Role.LIST, Role.DECORATOR) and gate.function:
            guarded = "\n".join([gate.function.name, *(t for n in ast.walk(gate.function) for t in module_name(n))])
        elif gate.role is Role.VALUE or self._inverted or gate.role is Role.ASSERT:
            guarded = code_of(gate.statement) if gate.statement else ""
        found = hardware.ONLY_SM10X.search(guarded)
        blackwell = re.search(r"\bis_blackwell\w*", gate.text)
        if found and not hardware.FOR_SM12X.search(guarded + gate.text):
            return f"admits SM12x to '{found.group()}', which is for SM10x"
        tuned = gate.arms is not None and all(_number(arm) for arm in gate.arms)
        if blackwell and not tuned and not hardware.FOR_SM12X.search(gate.text) and "triton" not in guarded.lower():
            return f"'{blackwell.group()}' means SM10x and SM12x alike"
        return ""

    def _commented(self) -> Guard:
        gate = self._gate
        return Guard(
            path=self._path,
            line=gate.line,
            end_line=gate.end_line,
            kind=Kind.PYTHON,
            condition=gate.text,
            arches={str(target): Verdict.INACTIVE for target in self._question.requested},
            excluded=True,
            verdict_class=Class.SUSPECT,
            effect=Effect.FEATURE_OFF,
            function=gate.qualified,
            evidence="an entry of an allow-list that is commented out",
        )


def _admitted(result: Abstract, gate: Gate, capability: ComputeCapability) -> Value:
    if isinstance(result, Const):
        return TRUE if result.value else FALSE
    name = next((node.id for node in ast.walk(gate.node) if isinstance(node, ast.Name)), gate.text)
    return unknown(f"{name} on {capability}", frozenset({name}))


def _passed(result: Abstract, capability: ComputeCapability, *, wanted: bool) -> Value:
    possible, names = result.truths()
    if wanted not in possible:
        return FALSE
    if names and len(possible) > 1:
        return unknown(f"{', '.join(sorted(names))} on {capability}", names)
    return TRUE


def _both(assessment: Assessment) -> bool:
    """Whether it admits SM90 and SM100 alike: what both have and the target falls back from is worth a look."""
    return {9, 10} <= {target.capability.major for target in assessment.admits}


def _number(node: ast.expr) -> bool:
    """Whether *node* is a number: a choice between two is tuning."""
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _any_unknown(assessment: Assessment) -> bool:
    return Verdict.UNKNOWN in assessment.arches.values()
