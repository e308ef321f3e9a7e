"""Preprocessing tokens, and how macros replace them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from downstream.guards.values import Value

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<name>[A-Za-z_$]\w*(?!['"\w]))
  | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\])+')
  | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\])*")
  | (?P<operator><=>|<<|>>|<=|>=|==|!=|&&|\|\||\#\#|[^\s\w])
    )""",
    re.VERBOSE,
)
_SPELLED = {"and": "&&", "or": "||", "not": "!", "not_eq": "!=", "bitand": "&", "bitor": "|", "xor": "^", "compl": "~"}


class MalformedError(ValueError):
    """The text is no preprocessor expression; the message says why."""


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # number, name, char, string, operator; "defined" with the operand as text
    text: str


@dataclass(frozen=True, slots=True)
class Macro:
    """A definition: *parameters* is None for an object-like macro, *body* None where only its existence is known."""

    name: str
    body: tuple[Token, ...] | None = ()
    parameters: tuple[str, ...] | None = None
    origin: str = ""  # path:line, or "" for the compiler's own


# What a name stands for: a Macro; None, certainly not defined; or an unknown Value that says when it is defined.
Lookup = Callable[[str], "Macro | Value | None"]


@lru_cache(maxsize=65536)
def tokenize(text: str) -> tuple[Token, ...]:
    """Split *text*, free of comments and continuations, into preprocessing tokens."""
    tokens = []
    end = len(text.rstrip())
    at = 0
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:  # a lone quote
            raise MalformedError(f"cannot read '{text[at:end].strip()[:20]}'")
        kind = found.lastgroup or ""
        word = found.group(kind)
        tokens.append(Token("operator", _SPELLED[word]) if word in _SPELLED else Token(kind, word))
        at = found.end()
    return tuple(tokens)


def expand(tokens: Sequence[Token], lookup: Lookup, hidden: frozenset[str]) -> list[Token]:
    """Replace macros as C11 6.10.3 says, but for operands of ``defined``; unknown names stay."""
    out: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token.kind != "name":
            out.append(token)
            continue
        if token.text == "defined":
            name, at = _operand_of_defined(tokens, at)
            out.append(Token("defined", name))
            continue
        macro = None if token.text in hidden else lookup(token.text)
        if not isinstance(macro, Macro) or macro.body is None:
            out.append(token)
        elif macro.parameters is None:
            out.extend(expand(macro.body, lookup, hidden | {token.text}))
        elif at < len(tokens) and tokens[at].text == "(":
            arguments, at = arguments_of(tokens, at)
            body = _substitute(macro, arguments, lookup, hidden)
            out.extend(expand(body, lookup, hidden | {token.text}))
        else:
            out.append(token)
    return out


def _operand_of_defined(tokens: Sequence[Token], at: int) -> tuple[str, int]:
    words = [token.text for token in tokens[at : at + 3]]
    if words and tokens[at].kind == "name":
        return words[0], at + 1
    if len(words) == 3 and words[0] == "(" and tokens[at + 1].kind == "name" and words[2] == ")":
        return words[1], at + 3
    raise MalformedError("'defined' without a name")


def arguments_of(tokens: Sequence[Token], at: int) -> tuple[list[list[Token]], int]:
    """The arguments of a call whose opening parenthesis is at *at*, and what follows it."""
    arguments: list[list[Token]] = [[]]
    depth = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token.text == "(":
            depth += 1
            if depth == 1:
                continue
        elif token.text == ")":
            depth -= 1
            if depth == 0:
                return arguments, at
        elif token.text == "," and depth == 1:
            arguments.append([])
            continue
        arguments[-1].append(token)
    raise MalformedError("a macro's arguments do not end")


def _substitute(macro: Macro, arguments: list[list[Token]], lookup: Lookup, hidden: frozenset[str]) -> list[Token]:
    assert macro.parameters is not None
    assert macro.body is not None
    parameters = macro.parameters
    if parameters and parameters[-1] == "..." and len(arguments) >= len(parameters):
        rest: list[Token] = []
        for index, argument in enumerate(arguments[len(parameters) - 1 :]):
            rest.extend([Token("operator", ","), *argument] if index else argument)
        arguments = [*arguments[: len(parameters) - 1], rest]
        parameters = (*parameters[:-1], "__VA_ARGS__")
    if len(arguments) != len(parameters) and not (not parameters and arguments == [[]]):
        raise MalformedError(f"{macro.name} takes {len(parameters)} arguments, not {len(arguments)}")
    given = dict(zip(parameters, arguments, strict=False))
    out: list[Token] = []
    body = macro.body
    for index, token in enumerate(body):
        if token.text == "##":
            continue
        pasted = index > 0 and body[index - 1].text == "##"
        joins = pasted or (index + 1 < len(body) and body[index + 1].text == "##")
        piece = [token]
        if token.kind == "name" and token.text in given:
            raw = given[token.text]
            piece = list(raw) if joins else expand(raw, lookup, hidden)
        if pasted and out and piece:
            out[-1:] = tokenize(out[-1].text + piece[0].text)
            piece = piece[1:]
        out.extend(piece)
    return out
