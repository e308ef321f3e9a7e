"""GNU cpp as the judge of which branches are compiled."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from downstream.guards.directives import Source, scan
from downstream.guards.macros import Predefined

Oracle = Callable[[str, Mapping[str, str]], set[int]]


def marked(text: str, source: Source) -> str:
    """*text* with a word of its own after every branch's directive, and without its includes."""
    lines = text.split("\n")
    marks: dict[int, list[str]] = {}
    for number, branch in enumerate(source.branches()):
        marks.setdefault(branch.directive.last_line, []).append(f"\n@branch@ {number}\n")
    out = []
    for number, line in enumerate(lines, 1):
        bare = line.replace(" ", "").replace("\t", "").lstrip("\\")
        out.append("" if bare.startswith(("#include", "#error", "#warning")) else line)
        out.extend(marks.get(number, ()))
    return "\n".join(out)


def compiler_options(table: Predefined) -> dict[str, str]:
    """The compiler's macros of *table* as -D options; names known only to exist are given 1."""
    options = {}
    for name, macro in table.macros.items():
        key = name if macro.parameters is None else f"{name}({','.join(macro.parameters)})"
        options[key] = "1" if macro.body is None else " ".join(token.text for token in macro.body)
    return {key: value for key, value in options.items() if not key.startswith("__has")}


def gnu_cpp(folder: Path) -> Oracle:
    """A function (text, macros) -> the numbers of the branches that GNU cpp keeps; *folder* is its own."""

    def run(text: str, macros: Mapping[str, str]) -> set[int]:
        source = scan(text)
        path = folder / "input.cc"
        path.write_bytes(marked(text, source).encode("utf-8", "surrogateescape"))
        prelude = folder / "macros.h"
        prelude.write_text("".join(f"#define {key} {value}\n" for key, value in macros.items()), encoding="utf-8")
        command: list[str | Path] = ["cpp", "-undef", "-nostdinc", "-P", "-w", "-x", "c++", "-std=gnu++20", "-imacros"]
        result = subprocess.run([*command, prelude, path], capture_output=True, check=False)
        out = result.stdout.decode("utf-8", "replace")
        return {int(line.split()[1]) for line in out.splitlines() if line.startswith("@branch@")}

    return run


@pytest.fixture(scope="session")
def cpp(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return gnu_cpp(tmp_path_factory.mktemp("cpp"))
