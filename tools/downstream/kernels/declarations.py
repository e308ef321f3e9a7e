"""Preprocessed C++ cut into its declarations, to tell what the device compiler can see of a change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r'R"(?P<raw>[^()\\\s]{0,16})\(.*?\)(?P=raw)"'  # raw strings first: they may hold anything
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)*'(?![0-9a-fA-F])"
    r"|^#[^\n]*"  # what the preprocessor leaves: pragmas, a line each
    r"|[A-Za-z_]\w*|[0-9](?:'?[\w.])*|[{}();=]|[^\s\w]",
    re.DOTALL | re.MULTILINE,
)
_DEVICE = ("__attribute__((device))", "__attribute__((global))")
_TYPES = frozenset({"struct", "class", "union", "enum"})


@dataclass(frozen=True, slots=True)
class Declaration:
    """One declaration at namespace scope. ``text`` has one blank between tokens."""

    name: str  # of the function; else its first words
    text: str
    host_only: bool  # a function the device compiler parses and drops

    @property
    def kernel(self) -> bool:
        return _joined(self.text).count(_DEVICE[1]) > 0

    @property
    def device_text(self) -> str:
        """What can reach device code: everything, or a host function's head alone."""
        return self.text.split(" { ", 1)[0] if self.host_only else self.text


def declarations(text: str) -> list[Declaration]:
    """Cut *text* into declarations; namespaces and ``extern "C"`` blocks are gone through.

    Raises ValueError where braces do not pair up.
    """
    tokens = [match[0] for match in _TOKEN.finditer(text)]
    return [_declaration(words) for words in _cut(tokens)]


def _cut(tokens: list[str]) -> Iterator[list[str]]:
    words: list[str] = []
    depth = parens = scopes = 0
    function = False
    for word in tokens:
        if word[0] == "#" and not words:
            yield [word]
            continue
        if word == "{" and depth == 0 and parens == 0:
            if _opens_scope(words):
                scopes += 1
                words = []
                continue
            function = _is_function(words)
        if word == "}" and depth == 0:
            if scopes == 0 or parens:
                raise ValueError("a closing brace without its opening one")
            scopes -= 1
            if words:
                yield words
            words = []
            continue
        words.append(word)
        if word == "{":
            depth += 1
        elif word == "}":
            depth -= 1
            if depth == 0 and function and parens == 0:
                yield words
                words, function = [], False
        elif word == "(":
            parens += 1
        elif word == ")":
            parens -= 1
        elif word == ";" and depth == 0 and parens == 0:
            if words != [";"]:
                yield words
            words, function = [], False
    if depth or parens or scopes:
        raise ValueError("an opening brace without its closing one")
    if words:
        yield words


def _opens_scope(words: list[str]) -> bool:
    return bool(words) and ("namespace" in words[:2] or (words[0] == "extern" and len(words) == 2))


def _is_function(words: list[str]) -> bool:
    """Whether a brace after *words* opens a function's body rather than a type or an initialiser."""
    head = _without_attributes(_without_template(words))
    if not head or head[0] in _TYPES or "(" not in head:
        return False
    return "=" not in head[: head.index("(")]


def _without_template(words: list[str]) -> list[str]:
    while words and words[0] == "template":
        depth = 0
        for index, word in enumerate(words[1:], start=1):
            depth += (word == "<") - (word == ">")
            if depth == 0:
                words = words[index + 1 :]
                break
        else:
            return []
    return words


def _without_attributes(words: list[str]) -> list[str]:
    kept: list[str] = []
    index = 0
    while index < len(words):
        if words[index] in ("__attribute__", "alignas", "__launch_bounds__", "decltype", "noexcept"):
            depth = 0
            index += 1
            while index < len(words):
                depth += (words[index] == "(") - (words[index] == ")")
                index += 1
                if depth == 0:
                    break
            continue
        kept.append(words[index])
        index += 1
    return kept


def _declaration(words: list[str]) -> Declaration:
    text = " ".join(words)
    head = words[: words.index("{")] if "{" in words else words
    function = "{" in words and _is_function(head)
    joined = _joined(text)
    host = function and not any(mark in joined for mark in _DEVICE) and not {"constexpr", "consteval"} & set(head)
    return Declaration(name=_name(head, function), text=text, host_only=host)


def _joined(text: str) -> str:
    return text.replace(" ", "") if "__attribute__" in text else ""


def _name(head: list[str], function: bool) -> str:
    bare = _without_attributes(_without_template(head))
    if function and "(" in bare and bare.index("(") > 0:
        words = bare[: bare.index("(")]
        return _before_arguments(words)[-1]
    return " ".join(bare[:4])


def _before_arguments(words: list[str]) -> list[str]:
    """*words* without the template arguments at their end: ``is_zero < half >`` is ``is_zero``."""
    depth = 0
    for index in range(len(words) - 1, 0, -1):
        depth += (words[index] == ">") - (words[index] == "<")
        if depth == 0:
            return words[: index + 1] if words[index] != "<" else words[:index]
    return words
