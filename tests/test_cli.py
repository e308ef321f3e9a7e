from __future__ import annotations

import ast
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from downstream import cli

ROOT = Path(__file__).resolve().parents[1]
DOORS = sorted((ROOT / "tools").glob("*.py"))

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


def script(body: str) -> str:
    """A door named ``sample`` whose command's ``main(argv)`` is *body*."""
    return (
        f"import sys, types\nsys.path.insert(0, {str(ROOT / 'tools')!r})\nimport downstream.commands\n"
        "from downstream.cli import door\nfrom downstream.errors import *\n"
        "def main(argv):\n" + textwrap.indent(body, "    ") + "\n"
        "command = types.ModuleType('downstream.commands.sample')\ncommand.main = main\n"
        "sys.modules['downstream.commands.sample'] = command\nsys.exit(door('sample'))\n"
    )


@pytest.fixture
def run() -> Run:
    """Run a sample door in a process of its own."""

    def go(body: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-c", script(body), *arguments]
        return subprocess.run(command, capture_output="stdout" not in options, check=False, **options)  # type: ignore[call-overload, no-any-return]

    return go


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("return 0", 0, b""),
        ("return 1", 1, b""),
        (
            "raise PinError('VERSIONS.toml', 'has no line x', 'choose one of: stable')",
            2,
            b"error: VERSIONS.toml: has no line x\n  next: choose one of: stable\n",
        ),
        ("open('/nowhere/at/all')", 2, b"error: /nowhere/at/all: No such file or directory\n"),
        ("raise SystemExit('no')", 2, b"error: no\n"),
        ("raise SystemExit(2)", 2, b""),
        ("raise SystemExit", 0, b""),
        ("raise KeyboardInterrupt", 130, b"interrupted\n"),
    ],
)
def test_each_end_has_its_exit_code_and_its_words(run: Run, body: str, code: int, said: bytes) -> None:
    ended = run(body)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, b"", said)


def test_a_bug_of_ours_is_3_with_its_traceback(run: Run) -> None:
    ended = run("return {}['x']")
    assert ended.returncode == 3
    assert b"KeyError: 'x'" in ended.stderr
    assert ended.stderr.endswith(b"please report the lines above\n")


def test_what_was_printed_before_an_error_is_not_lost(run: Run) -> None:
    ended = run("print('half'); raise TreeError('a', 'b')")
    assert (ended.returncode, ended.stdout) == (2, b"half\n")


@pytest.mark.parametrize("module", sorted(cli.EXTRAS))
def test_a_missing_module_of_an_extra_names_the_extra(run: Run, module: str) -> None:
    ended = run(f"raise ModuleNotFoundError('x', name='{module}.sub')")
    assert ended.returncode == 2
    problem, following = ended.stderr.decode().splitlines()
    assert problem == f"error: tools/sample.py: the module '{module}' is not installed"
    assert following.endswith(f"pip install -e '{ROOT}[{cli.EXTRAS[module]}]'")


def test_every_requirement_of_an_extra_is_known_by_its_import_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    import_names: dict[str, set[str]] = {}
    for module, distributions in packages_distributions().items():
        for distribution in distributions:
            import_names.setdefault(canonicalize_name(distribution), set()).add(module)
    for extra in ("audit", "wheels", "index"):
        for requirement in project["optional-dependencies"][extra]:
            names = import_names[canonicalize_name(Requirement(requirement).name)]
            assert {cli.EXTRAS[name] for name in names & set(cli.EXTRAS)} == {extra}, requirement


def test_a_module_of_ours_that_is_missing_is_a_bug(run: Run) -> None:
    assert run("import downstream.nowhere").returncode == 3


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_a_door_without_its_dependencies_says_how_to_get_them(door: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-S", str(tmp_path / "tools" / door.name), "--offline", "list"]
    ended = subprocess.run(command, capture_output=True, check=False, text=True)
    if not re.search(r"^error: tools/\w+\.py: the module", ended.stderr):
        # Only the standard library is needed to come this far: then it may say no by itself, but not break.
        assert ended.returncode in (0, 1, 2), ended.stderr
        return
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[1] == f"  next: cd {tmp_path} && {cli.SETUP}"
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").touch()
    again = subprocess.run(command, capture_output=True, check=False, text=True)
    assert again.stderr.splitlines()[1] == f"  next: run it with {tmp_path}/.venv/bin/python"


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_an_old_python_gets_one_sentence(door: Path) -> None:
    pretend = f"import sys, runpy; sys.version_info = (3, 9, 2); runpy.run_path({str(door)!r}, run_name='__main__')"
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(door.parent)!r}); {pretend}"],
        capture_output=True,
        check=False,
        text=True,
    )
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[0] == "error: these tools need Python 3.11 or newer, this is 3.9"


@pytest.mark.parametrize("path", [*DOORS, ROOT / "tools/downstream/__init__.py"], ids=lambda path: path.name)
def test_an_old_python_can_parse_all_that_it_reads(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 4))
    modern = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Match)
    assert not [node for node in ast.walk(tree) if isinstance(node, modern)]
    assert "__future__" not in source


def test_a_reader_that_goes_away_is_no_error(run: Run) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = run("print('x' * 100_000)", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_answer_that_cannot_be_written_is_2(run: Run) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = run("print('x'); return 0", stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 2
    assert ended.stderr == b"error: output: No space left on device\n"


def test_closed_streams_break_nothing() -> None:
    body = script("print('x'); sys.stdout.write('y'); raise UsageError('a', 'b')")
    assert (
        subprocess.run(["sh", "-c", 'exec "$@" >&- 2>&-', "sh", sys.executable, "-c", body], check=False).returncode
        == 2
    )


def test_an_interrupt_ends_in_130() -> None:
    body = script("print('ready', flush=True); import time; time.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", body], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (130, b"interrupted\n")


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", "→ caf\\udce9 ü…".encode()),
        ("ascii", b"-> caf\\udce9 \\xfc..."),
        ("latin-1", b"-> caf\\udce9 \xfc..."),
    ],
)
def test_any_name_can_be_printed_on_any_terminal(run: Run, encoding: str, shown: bytes) -> None:
    ended = run(r"print('→ caf\udce9 ü…'); return 0", env={**os.environ, "PYTHONIOENCODING": encoding})
    assert (ended.returncode, ended.stdout) == (0, shown + b"\n")


COLOURED = b"\033[1;31merror:\033[0m a: b"


@pytest.mark.parametrize(
    ("arguments", "variables", "coloured"),
    [
        ([], {}, False),  # no terminal
        (["--color", "always"], {}, True),
        (["--color=always"], {"NO_COLOR": "1"}, True),
        (["--color=never"], {}, False),
        (["--colour=always"], {}, False),
    ],
)
def test_errors_keep_to_color_and_no_color(
    run: Run, arguments: list[str], variables: dict[str, str], coloured: bool
) -> None:
    ended = run("raise UsageError('a', 'b')", *arguments, env={**os.environ, **variables})
    assert ended.stderr.startswith(COLOURED if coloured else b"error: a: b")


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),  # no-color.org: only when not empty
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_a_terminal_is_coloured_unless_it_asks_not_to_be(run: Run, variables: dict[str, str], coloured: bool) -> None:
    ours, theirs = pty.openpty()
    run("raise UsageError('a', 'b')", stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, **variables})
    os.close(theirs)
    said = os.read(ours, 1000)
    os.close(ours)
    assert said.startswith(COLOURED if coloured else b"error: a: b")


def test_options_cannot_be_abbreviated_and_misuse_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    options = cli.parser("sample", "A sample.")
    cli.add_common_options(options)
    with pytest.raises(SystemExit) as raised:
        options.parse_args(["--off"])
    assert raised.value.code == 2
    assert "tools/sample.py: error: unrecognized arguments: --off" in capsys.readouterr().err
