"""The value of a preprocessor condition."""

from __future__ import annotations

import re
from collections.abc import Sequence

from downstream.guards.tokens import Lookup, Macro, MalformedError, Token, arguments_of, expand, tokenize
from downstream.guards.values import FALSE, TRUE, WIDTH, Value, choose, combine, negate, signed, unknown, wrap

_INTEGER = re.compile(r"(0[xX][0-9a-fA-F']+|0[bB][01']+|\d[\d']*)([uUlLzZ]*)")
_SUFFIXES = re.compile(r"(?:[uU](?:l|L|ll|LL|z|Z)?|(?:l|L|ll|LL|z|Z)[uU]?)?")
_ESCAPES = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "\\": 92, "'": 39, '"': 34, "?": 63, "e": 27}

_BINARY: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_LEVEL = {operator: level for level, operators in enumerate(_BINARY) for operator in operators}


def evaluate(text: str, lookup: Lookup) -> Value:
    """The value of a ``#if`` condition, unknown where *lookup* or the text leaves it open."""
    try:
        return evaluate_tokens(tokenize(text), lookup)
    except MalformedError as exc:
        return unknown(text, frozenset({f"malformed: {exc}"}))


def evaluate_tokens(tokens: Sequence[Token], lookup: Lookup) -> Value:
    """Like evaluate, for tokens; raises MalformedError."""
    return _Parser(expand(tokens, lookup, frozenset()), lookup).whole()


class _Parser:
    """Precedence climbing over expanded tokens; every operator is total on unknowns."""

    def __init__(self, tokens: Sequence[Token], lookup: Lookup) -> None:
        self._tokens = tokens
        self._at = 0
        self._lookup = lookup

    def whole(self) -> Value:
        if not self._tokens:
            raise MalformedError("no expression")
        value = self._conditional()
        while self._take(","):
            value = self._conditional()
        if self._at < len(self._tokens):
            raise MalformedError(f"unexpected '{self._tokens[self._at].text}'")
        return value

    def _take(self, text: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == Token("operator", text):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise MalformedError(f"expected '{text}'")

    def _conditional(self) -> Value:
        condition = self._binary(0)
        if not self._take("?"):
            return condition
        yes = self._conditional()
        while self._take(","):
            yes = self._conditional()
        self._expect(":")
        return choose(condition, yes, self._conditional())

    def _binary(self, level: int) -> Value:
        left = self._unary()
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            found = _LEVEL.get(token.text) if token.kind == "operator" else None
            if found is None or found < level:
                return left
            self._at += 1
            left = combine(token.text, left, self._binary(found + 1))
        return left

    def _unary(self) -> Value:
        if self._at >= len(self._tokens):
            raise MalformedError("ends too early")
        token = self._tokens[self._at]
        self._at += 1
        match token.kind:
            case "number":
                return _integer(token.text)
            case "char":
                return _character(token.text)
            case "defined":
                return _defined(self._lookup(token.text))
            case "name":
                return self._named(token.text)
        match token.text:
            case "(":
                value = self._conditional()
                while self._take(","):
                    value = self._conditional()
                self._expect(")")
                return value
            case "!":
                return negate(self._unary())
            case "-" | "+" | "~" as operator:
                return signed(operator, self._unary())
        raise MalformedError(f"unexpected '{token.text}'")

    def _named(self, name: str) -> Value:
        if name in ("true", "false"):  # C++ [cpp.cond]
            return TRUE if name == "true" else FALSE
        macro = self._lookup(name)
        called = self._at < len(self._tokens) and self._tokens[self._at].text == "("
        if called:
            start = self._at
            _, self._at = arguments_of(self._tokens, self._at)
            if macro is None:
                raise MalformedError(f"{name} is no macro, yet is called")
            text = "".join(token.text for token in self._tokens[start : self._at])
            return unknown(name + text, frozenset({name}))
        if macro is None:
            return FALSE
        if isinstance(macro, Value):
            return unknown(f"{name}[{macro.residual}]", macro.names)
        if macro.body is not None and macro.parameters is None:
            return FALSE  # hidden by its own expansion: a name like any other
        return unknown(name)


def _defined(macro: Macro | Value | None) -> Value:
    if isinstance(macro, Value):
        return unknown(macro.residual, macro.names)
    return FALSE if macro is None else TRUE


def _integer(text: str) -> Value:
    found = _INTEGER.fullmatch(text)
    if not found or not _SUFFIXES.fullmatch(found[2]):
        raise MalformedError(f"'{text}' is no integer")
    digits = found[1].replace("'", "")
    try:
        octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
        number = int(digits, 8 if octal else 0)
    except ValueError as exc:
        raise MalformedError(f"'{text}' is no integer") from exc
    return wrap(number, unsigned="u" in found[2].lower() or number >= 1 << (WIDTH - 1))


def _character(text: str) -> Value:
    body = text[text.index("'") + 1 : -1]
    if len(body) == 1 and body.isascii():
        return Value(ord(body))
    if len(body) == 2 and body[0] == "\\" and body[1] in _ESCAPES:
        return Value(_ESCAPES[body[1]])
    if re.fullmatch(r"\\[0-7]{1,3}", body) and int(body[1:], 8) < 128:
        return Value(int(body[1:], 8))
    return unknown(text)
