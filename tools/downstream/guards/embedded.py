"""CUDA in Python strings: guards of code that is yet to be generated."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from downstream.guards.cuda import CudaFile
from downstream.guards.definitions import Definitions
from downstream.guards.macros import Toolkit
from downstream.guards.model import Guard, Question
from downstream.guards.names import Module


def guards(module: Module | None, question: Question, toolkit: Toolkit | None) -> Iterator[Guard]:
    """The preprocessor guards of a Python file's strings, at the lines of the Python file."""
    if module is None:
        return
    path = module.path
    lines = module.text.split("\n")
    for node in ast.walk(module.tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str) and "__CUDA_ARCH" in node.value):
            continue
        code = node.value.encode("utf-8", "surrogateescape")
        file = CudaFile(Definitions({path: code}, toolkit=toolkit), path, code, question)
        for guard in file.guards():
            first = node.lineno + guard.line - 1
            if first > len(lines) or "#" not in lines[first - 1]:
                first = node.lineno  # its line breaks are written as \n
            last = min(first + guard.end_line - guard.line, node.end_lineno or first)
            yield replace(guard, line=first, end_line=max(first, last))
