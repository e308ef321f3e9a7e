"""The audit as one file for a host that has only Python: the modules it needs, and a loader for them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from downstream.errors import GuardError

PACKAGE = "downstream"
LEFT_OUT = "tree-sitter-cuda: the functions around C++ guards are told by their braces"
# Imported where it is there, done without where it is not.
_OPTIONAL = frozenset({"tree_sitter", "tree_sitter_cuda"})

_HEAD = '''\
#!/usr/bin/env python3
"""Which GPU architectures an installed FlashInfer or SGLang shuts out: the audit in one file.

    ssh host python3 - --installed < this-file        (or the python of the environment that serves)

Standard library of Python 3.11 or later; nothing is written, nothing is fetched. Left out, because it
is compiled: {left_out}.
"""
import sys

if sys.version_info < (3, 11):
    sys.exit("this audit needs Python 3.11 or later, this is " + sys.version.split()[0])

import importlib.abc
import importlib.machinery

SOURCES = {{
{sources}}}
FACTS = {facts}


class _Loader(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name not in SOURCES:
            return None
        package = any(other.startswith(name + ".") for other in SOURCES)
        return importlib.machinery.ModuleSpec(name, self, origin="<bundle>", is_package=package)

    def exec_module(self, module):
        module.__file__ = "/bundle/" + module.__name__.replace(".", "/") + ".py"
        exec(compile(SOURCES[module.__name__], "<bundle:" + module.__name__ + ">", "exec"), module.__dict__)


sys.meta_path.insert(0, _Loader())
from {entry} import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], FACTS))
'''


def bundle(root: Path, entry: str, facts: Mapping[str, object]) -> str:
    """One Python file that runs ``entry.main(argv, facts)``; *root* is the folder that holds the package.

    The same modules give the same bytes. Raises GuardError where a module needs
    more than the standard library.
    """
    sources = dict(sorted(_collect(root, entry)))
    lines = "".join(f"    {name!r}: {text!r},\n" for name, text in sources.items())
    return _HEAD.format(left_out=LEFT_OUT, sources=lines, facts=repr(dict(facts)), entry=entry)


def _collect(root: Path, entry: str) -> Iterator[tuple[str, str]]:
    todo, seen = [entry], set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        path = root.joinpath(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        text = file.read_text(encoding="utf-8")
        yield name, text
        todo += [".".join(name.split(".")[:depth]) for depth in range(1, name.count(".") + 1)]
        for imported in _imports(ast.parse(text), root):
            if imported.split(".", maxsplit=1)[0] == PACKAGE:
                todo.append(imported)
            elif imported not in sys.stdlib_module_names and imported not in _OPTIONAL:
                raise GuardError(name, f"imports {imported}, which a bare host lacks", "keep it out of the bundle")


def _imports(tree: ast.Module, root: Path) -> Iterator[str]:
    """What a module imports at run time: its own package's modules by full name, others by their first name."""
    typing_only = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and ast.unparse(test.test) == "TYPE_CHECKING"
        for node in ast.walk(test)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from _named(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module.split(".", maxsplit=1)[0] != PACKAGE:
                yield from _named([node.module])
                continue
            yield node.module
            folder = root.joinpath(*node.module.split("."))
            yield from (f"{node.module}.{alias.name}" for alias in node.names if (folder / f"{alias.name}.py").exists())


def _named(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield name if name.startswith(f"{PACKAGE}.") else name.split(".", maxsplit=1)[0]
