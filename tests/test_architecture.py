"""The rules of DESIGN that a reader cannot hold in the head: arrows, doors, sizes, words, start-up."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "tools"
PACKAGE = TOOLS / "downstream"
DOORS = sorted(TOOLS.glob("*.py"))
MODULES = sorted(PACKAGE.rglob("*.py"))

# From the ground up (DESIGN 3): a room imports only from its own row and from rows above it here.
ROOMS = (
    ("errors",),
    ("arches", "progress", "trees.layout"),
    ("pins",),
    ("patches",),
    ("trees",),
    ("placing",),
    ("queue",),
    ("patched",),
    ("guards",),
    ("kernels",),
    ("wheels",),
    ("index",),
    ("report",),
    ("cli",),
    ("commands",),
)
# Runs in the build environment, with FlashInfer and without the overlay; its stdout is a channel to us.
ELSEWHERE = PACKAGE / "kernels/generator.py"
RANK = {room: rank for rank, rooms in enumerate(ROOMS) for room in rooms}


def name_of(path: Path) -> str:
    """``placing.verdict`` for tools/downstream/placing/verdict.py; empty for the package itself."""
    return ".".join(part for part in path.relative_to(PACKAGE).with_suffix("").parts if part != "__init__")


def room_of(module: str) -> str:
    return module if module in RANK else module.split(".", maxsplit=1)[0]


@cache
def walked(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_bytes())))


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module of ours that *path* imports, at its top or late, with the line."""
    for node in walked(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("downstream."):
                target = name.removeprefix("downstream.")
                # `from downstream.x.y import name`: a module if there is one of that name, else its parent.
                yield target if _is_module(target) else target.rpartition(".")[0], node.lineno


def _is_module(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def is_allowed(module: str, target: str) -> bool:
    ours, theirs = room_of(module), room_of(target)
    return ours == theirs or RANK[theirs] < RANK[ours]


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_module_lies_in_a_room() -> None:
    assert not [place(path) for path in MODULES if name_of(path) and room_of(name_of(path)) not in RANK]


def test_imports_follow_the_arrows() -> None:
    assert not [
        f"{place(path)}:{line} imports {target}"
        for path in MODULES
        for target, line in imports(path)
        if not name_of(path) or not is_allowed(name_of(path), target)
    ]


@pytest.mark.parametrize(
    ("module", "target", "allowed"),
    [
        ("trees.open", "pins", True),
        ("pins", "trees.layout", True),
        ("pins", "trees.tree", False),
        ("placing.push", "queue.state", False),
        ("report.text", "commands.rebase", False),
        ("commands.rebase", "report.text", True),
        ("patches.text", "patches.parse", True),
    ],
)
def test_the_rule_itself_tells_forth_from_back(module: str, target: str, allowed: bool) -> None:
    assert is_allowed(module, target) is allowed


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name_of(path): {target for target, _ in imports(path)} for path in MODULES}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as exc:
        pytest.fail(" -> ".join(exc.args[1]))


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_a_door_is_a_few_lines_and_shadows_no_module(door: Path) -> None:
    lines = [line for line in door.read_text(encoding="utf-8").splitlines() if line]
    assert lines == [
        "#!/usr/bin/env python3",
        "import sys",
        "from downstream.cli import door",
        f'sys.exit(door("{door.stem}"))',
    ]
    assert door.stem not in sys.stdlib_module_names | packages_distributions().keys()
    assert door.stat().st_mode & 0o111


def test_a_module_is_one_idea() -> None:
    lengths = {place(path): len(path.read_bytes().splitlines()) for path in (*MODULES, ROOT / "noxfile.py")}
    assert not {name: length for name, length in lengths.items() if length > 300}


FOREIGN = {"manager", "helper", "helpers", "utils", "util", "handler", "process", "data", "info", "do"}
# Names that are not ours to choose.
GIVEN = {"do_GET", "do_HEAD", "do_POST", "handle_data"}


def is_foreign(name: str) -> bool:
    # "dist_info" is the wheel format's own word.
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name.replace("dist_info", ""))}
    return name not in GIVEN and bool(words & FOREIGN)


def test_names_are_in_our_vocabulary() -> None:
    assert not [
        f"{place(path)}: {name}"
        for path in MODULES
        for name in [
            path.stem,
            *(node.name for node in walked(path) if isinstance(node, ast.ClassDef | ast.FunctionDef)),
        ]
        if is_foreign(name)
    ]


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("PatchManager", True),
        ("process_all", True),
        ("do_rebase", True),
        ("path_utils", True),
        ("edit_metadata", False),
        ("do_GET", False),
        ("dist_info_of", False),
    ],
)
def test_the_vocabulary_is_read_by_word(name: str, foreign: bool) -> None:
    assert is_foreign(name) is foreign


def test_the_core_neither_prints_nor_changes_the_folder() -> None:
    quiet = [path for path in MODULES if room_of(name_of(path)) not in ("commands", "cli") and path != ELSEWHERE]
    found = [
        f"{place(path)}:{node.lineno}: {node.value.id}.{node.attr}"
        for path in MODULES
        for node in walked(path)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if (node.value.id, node.attr) == ("os", "chdir")
        or ((node.value.id, node.attr) == ("sys", "stdout") and path in quiet)
    ]
    assert not found


def tracked() -> list[Path]:
    # The checkout may belong to another user than the one who tests (containers).
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


# Written in pieces: this file is tracked, too.
HOSTS = re.compile(
    rb"(?<![\w.-])(?:"
    + b"|".join(
        re.escape(b".".join(parts))
        for parts in (
            (b"pypi", b"org"),
            (b"python" + b"hosted", b"org"),
            (b"pypi", b"nvidia", b"com"),
            (b"download", b"pytorch", b"org"),
            (b"registry", b"npmjs", b"org"),
            (b"deb", b"debian", b"org"),
            (b"ghcr", b"io"),
            (b"docker", b"io"),
            (b"conda", b"anaconda", b"org"),
        )
    )
    + rb")(?![\w-])"
    + rb"|[\w-]+\.python"
    + rb"hosted"
)
MACHINE = re.compile(
    rb"(?<![\w.~-])/(?:" + b"|".join((b"root", b"home", b"Users", b"work", b"tm" + b"p/w")) + rb")/(?=\w)"
)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
@pytest.mark.parametrize(
    ("meaning", "pattern"), [("a registry's host", HOSTS), ("a path of one machine", MACHINE)], ids=["hosts", "paths"]
)
def test_no_tracked_file_names(meaning: str, pattern: re.Pattern[bytes]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line[:120]!r}"
        for path in tracked()
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1)
        if pattern.search(line)
    ]
    assert not found, meaning


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (HOSTS, b"https://pypi" + b".org/simple/", True),
        (HOSTS, b"files.python" + b"hosted.org", True),
        (HOSTS, b"pypi.example.org", False),
        (MACHINE, b"open('/ro" + b"ot/x')", True),
        (MACHINE, b"/ho" + b"me/me", True),
        (MACHINE, b"src/work/x", False),
        (MACHINE, b"https://a.example/work/x", False),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern: re.Pattern[bytes], text: bytes, found: bool) -> None:
    assert bool(pattern.search(text)) is found


# Each costs tens of milliseconds or more, and no --help needs it.
HEAVY = {
    "cyclonedx",
    "fastapi",
    "git",
    "httpx",
    "installer",
    "numpy",
    "pypi_simple",
    "requests",
    "rich",
    "simple_repository",
    "starlette",
    "tomlkit",
    "torch",
    "tree_sitter",
    "unidiff",
    "uvicorn",
}
# A parser is told nothing by these: `main` imports them once it knows what is asked.
WORKING = {"queue", "patched", "guards", "kernels", "wheels", "index"}


def loaded(door: Path, *words: str) -> tuple[str, list[str]]:
    """Run a door in a process of its own; return what it printed, and the modules that it then has."""
    body = (
        f"import runpy, sys\nsys.path.insert(0, {str(TOOLS)!r})\nsys.argv = {[door.name, *words]!r}\n"
        f"try:\n    runpy.run_path({str(door)!r}, run_name='__main__')\nexcept SystemExit as exc:\n"
        "    print('\\0', exc.code, *sys.modules)\n"
    )
    ended = subprocess.run([sys.executable, "-c", body], capture_output=True, check=True, text=True)
    shown, _, rest = ended.stdout.partition("\0")
    code, *modules = rest.split()
    assert (code, ended.stderr) == ("0", "")
    return shown, modules


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_help_loads_no_heavy_module(door: Path) -> None:
    shown, modules = loaded(door, "--help")
    assert f"tools/{door.name}" in shown
    assert not set(modules) & HEAVY
    rooms = {room_of(name.removeprefix("downstream.")) for name in modules if name.startswith("downstream.")}
    assert not rooms & WORKING


def test_a_check_of_a_foreign_series_loads_no_more_than_placing_it_takes(tmp_path: Path) -> None:
    (tmp_path / "series").write_bytes(b"")
    _, modules = loaded(TOOLS / "pq.py", "check", "--series", str(tmp_path), "--tree", str(tmp_path), "--quiet")
    assert not set(modules) & (HEAVY | {"packaging", "platformdirs"})


def test_every_import_of_the_core_is_a_dependency_and_every_dependency_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.split(r"[\[<>=]", text)[0] for text in project["dependencies"]}
    distributions = packages_distributions()
    imported = (
        {
            name.split(".")[0]
            for path in MODULES
            if path != ELSEWHERE
            for node in walked(path)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        - sys.stdlib_module_names
        - {"downstream"}
    )
    extras = {re.split(r"[\[<>=]", text)[0] for extra in project["optional-dependencies"].values() for text in extra}
    used = {name.lower() for module in imported for name in distributions.get(module, [module])}
    assert used <= {name.lower() for name in declared | extras}
    assert declared <= used
