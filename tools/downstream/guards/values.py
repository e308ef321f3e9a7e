"""Numbers in three values: known, or an unknown that keeps its name.

An unknown is carried as a *residual*: the part of the expression that could
not be decided. Equal residuals on two architectures mean that, whatever the
unknown is, the condition does not tell the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass

WIDTH = 64  # intmax_t: C11 6.10.1 p4
_MASK = (1 << WIDTH) - 1


@dataclass(frozen=True, slots=True)
class Value:
    """A number of *unsigned* or signed 64 bits, or (number is None) an unknown."""

    number: int | None
    unsigned: bool = False
    residual: str = ""
    names: frozenset[str] = frozenset()  # what was unknown

    @property
    def truth(self) -> bool | None:
        return None if self.number is None else self.number != 0


TRUE = Value(1)
FALSE = Value(0)


def unknown(residual: str, names: frozenset[str] | None = None) -> Value:
    return Value(None, residual=residual, names=frozenset({residual}) if names is None else names)


def wrap(number: int, *, unsigned: bool) -> Value:
    number &= _MASK
    if not unsigned and number >> (WIDTH - 1):
        number -= 1 << WIDTH
    return Value(number, unsigned)


def negate(value: Value) -> Value:
    """``!value``"""
    if value.number is None:
        text = value.residual
        return unknown(text[1:] if text.startswith("!") else f"!{text}", value.names)
    return FALSE if value.number else TRUE


def both(left: Value, right: Value) -> Value:
    """``left && right`` in Kleene's logic."""
    if left.truth is False or right.truth is False:
        return FALSE
    if left.number is None and right.number is None:
        same = left.residual == right.residual
        return unknown(left.residual if same else f"({left.residual} && {right.residual})", left.names | right.names)
    if left.number is None:
        return left
    return right if right.number is None else TRUE


def either(left: Value, right: Value) -> Value:
    """``left || right`` in Kleene's logic."""
    if left.truth is True or right.truth is True:
        return TRUE
    if left.number is None and right.number is None:
        same = left.residual == right.residual
        return unknown(left.residual if same else f"({left.residual} || {right.residual})", left.names | right.names)
    if left.number is None:
        return left
    return right if right.number is None else FALSE


def choose(condition: Value, yes: Value, no: Value) -> Value:
    """``condition ? yes : no``; the type is both arms', so an unknown arm leaves it open."""
    if condition.number is None or yes.number is None or no.number is None:
        text = f"({_show(condition)} ? {_show(yes)} : {_show(no)})"
        return unknown(text, condition.names | yes.names | no.names)
    return wrap(yes.number if condition.number else no.number, unsigned=yes.unsigned or no.unsigned)


def signed(operator: str, value: Value) -> Value:
    if value.number is None:
        return unknown(f"{operator}{value.residual}", value.names)
    number = {"-": -value.number, "+": value.number, "~": ~value.number}[operator]
    return wrap(number, unsigned=value.unsigned)


def _show(value: Value) -> str:
    return value.residual if value.number is None else str(value.number)


def combine(operator: str, left: Value, right: Value) -> Value:
    """``left operator right`` by C11 6.10.1 in 64 bits."""
    if operator == "&&":
        return both(left, right)
    if operator == "||":
        return either(left, right)
    if left.number is None or right.number is None or (operator in "/%" and right.number == 0):
        names = left.names | right.names or frozenset({"division by zero"})
        return unknown(f"({_show(left)} {operator} {_show(right)})", names)
    return _arithmetic(operator, left.number, right.number, left.unsigned, right.unsigned)


def _arithmetic(operator: str, a: int, b: int, a_unsigned: bool, b_unsigned: bool) -> Value:
    if operator in ("<<", ">>"):
        if not b_unsigned and b < 0:
            operator, b = ("<<" if operator == ">>" else ">>"), -b
        b = min(b, WIDTH)
        return wrap(a << b if operator == "<<" else a >> b, unsigned=a_unsigned)
    unsigned = a_unsigned or b_unsigned
    if unsigned:
        a, b = a & _MASK, b & _MASK
    match operator:
        case "==" | "!=" | "<" | ">" | "<=" | ">=":
            holds = {"==": a == b, "!=": a != b, "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b}[operator]
            return TRUE if holds else FALSE
        case "/" | "%":
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return wrap(quotient if operator == "/" else a - quotient * b, unsigned=unsigned)
        case "+" | "-" | "*":
            return wrap({"+": a + b, "-": a - b, "*": a * b}[operator], unsigned=unsigned)
    return wrap({"&": a & b, "|": a | b, "^": a ^ b}[operator], unsigned=unsigned)
