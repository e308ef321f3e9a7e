"""``match`` on an architecture, read as the chain of conditions that it is."""

from __future__ import annotations

import ast


class CasesAsChains(ast.NodeTransformer):
    """Turns each ``match`` whose patterns are plain values into ``if``, ``elif`` and ``else``."""

    def visit_Match(self, node: ast.Match) -> ast.AST:
        self.generic_visit(node)
        chain: list[ast.stmt] = []
        for case in reversed(node.cases):
            if isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None:
                chain = case.body  # nothing after it can be reached
                continue
            values = _values(case.pattern)
            if not values:
                return node
            test: ast.expr = ast.Compare(node.subject, [ast.In()], [ast.Tuple(values, ast.Load())])
            if case.guard is not None:
                test = ast.BoolOp(ast.And(), [test, case.guard])
            ast.copy_location(test, case.pattern)
            test.written = f"match {ast.unparse(node.subject)}: case {ast.unparse(case.pattern)}"  # type: ignore[attr-defined]
            conditional = ast.copy_location(ast.If(test, case.body, chain), case.pattern)
            conditional.end_lineno = case.body[-1].end_lineno
            chain = [ast.fix_missing_locations(conditional)]
        return chain[0] if len(chain) == 1 and isinstance(chain[0], ast.If) else node


def written(node: ast.AST) -> str:
    """The source of a condition that stands for a ``case``; empty for every other node."""
    return str(getattr(node, "written", ""))


def _values(pattern: ast.pattern) -> list[ast.expr]:
    match pattern:
        case ast.MatchValue(value=value):
            return [value]
        case ast.MatchOr(patterns=patterns):
            found = [_values(each) for each in patterns]
            return [value for values in found for value in values] if all(found) else []
        case ast.MatchSequence(patterns=patterns):
            parts = [_values(each) for each in patterns]
            if all(len(part) == 1 for part in parts):
                return [ast.Tuple([part[0] for part in parts], ast.Load())]
    return []
