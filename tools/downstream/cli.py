"""From a door to an exit code: the options every command shares, and what errors end in."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from downstream.errors import DownstreamError

OK = 0  # done, and clean
FINDINGS = 1  # done, and the answer is no
FAILED = 2  # could not do it
BUG = 3  # our fault
INTERRUPTED = 130

ALLOCATIONS = 100_000  # of containers, before the collector looks at them

ROOT = Path(__file__).resolve().parents[2]
SETUP = "python3 -m venv .venv && .venv/bin/pip install -e ."

# What is not among the core dependencies, by import name: the extra that brings it.
EXTRAS = {
    "cyclonedx": "wheels",
    "httpx": "index",
    "installer": "wheels",
    "packageurl": "wheels",
    "starlette": "index",
    "tree_sitter": "audit",
    "tree_sitter_cuda": "audit",
    "twine": "index",
    "uvicorn": "index",
}

_ASCII = {"→": "->", "…": "...", "✅": "ok", "❌": "no", "·": "-"}


def door(command: str, argv: Sequence[str] | None = None) -> int:
    """Run ``downstream.commands.<command>`` and return the exit code (DESIGN 12)."""
    _prepare_streams()
    # Our values hold no cycles, and looking for some again and again costs a third of a large series' time.
    gc.set_threshold(ALLOCATIONS)
    try:
        code = int(importlib.import_module(f"downstream.commands.{command}").main(argv))
        sys.stdout.flush()
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").split(".")[0]
        return _bug() if missing in ("", "downstream") else _fail(_how_to_get(command, missing), argv)
    except DownstreamError as exc:
        return _fail(str(exc), argv)
    except BrokenPipeError:  # the reader went away (`| head`)
        _silence()
        return OK
    except OSError as exc:  # a full disk, a folder without permission: not ours to fix
        return _fail(f"{exc.filename or 'output'}: {exc.strerror or exc}", argv)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as exc:  # argparse: --help is 0, misuse is 2
        if isinstance(exc.code, str):
            return _fail(exc.code, argv)
        return OK if exc.code is None else int(exc.code)
    except Exception:  # the boundary: whatever is left is a bug of ours
        return _bug()
    return code


def _prepare_streams() -> None:
    """Any text can be printed on any terminal: what its encoding lacks is spelled out."""
    codecs.register_error("spelled-out", _spelled_out)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # started with it closed
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (as long as we live)
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="spelled-out")


def _spelled_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_ASCII.get(c) or c.encode("ascii", "backslashreplace").decode("ascii") for c in text), error.end


def _how_to_get(command: str, module: str) -> str:
    problem = f"tools/{command}.py: the module '{module}' is not installed"
    inside = sys.prefix != sys.base_prefix
    if not inside and (ROOT / ".venv/bin/python").exists():
        return f"{problem} for {sys.executable}\n  next: run it with {ROOT / '.venv/bin/python'}"
    if module in EXTRAS:
        pip = f"{sys.prefix}/bin/pip" if inside else "python3 -m venv .venv && .venv/bin/pip"
        return f"{problem}\n  next: {pip} install -e '{ROOT}[{EXTRAS[module]}]'"
    return f"{problem}\n  next: cd {ROOT} && {SETUP}"


def _fail(message: str, argv: Sequence[str] | None) -> int:
    try:
        sys.stdout.flush()
    except OSError:  # what is still in the buffer cannot be written, now or at exit
        _silence()
    word = "\033[1;31merror:\033[0m" if colour_wanted(_colour_choice(argv), sys.stderr) else "error:"
    print(f"{word} {message}", file=sys.stderr)
    return FAILED


def _bug() -> int:
    import traceback

    traceback.print_exc()
    print("this is a bug in the overlay's tools; please report the lines above", file=sys.stderr)
    return BUG


def _silence() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not complain at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _colour_choice(argv: Sequence[str] | None) -> str:
    """--color as it was typed: an error may come before the options are parsed."""
    words = list(sys.argv[1:] if argv is None else argv)
    for word, following in zip(words, [*words[1:], ""], strict=False):
        choice = following if word == "--color" else word.removeprefix("--color=")
        if choice in ("always", "never") and word.startswith("--color"):
            return choice
    return "auto"


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """A parser for door *command* whose usage errors say how to go on."""
    return argparse.ArgumentParser(
        prog=f"tools/{command}.py",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_common_options(options: argparse.ArgumentParser) -> None:
    """--json, --color, -q, -v, --offline, --root: the same everywhere."""
    group = options.add_argument_group("common options")
    group.add_argument("--json", action="store_true", help="the answer as JSON (schema 1) on stdout")
    group.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: auto")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress, only what is not fine")
    group.add_argument("-v", "--verbose", action="store_true", help="say more about what is fine, too")
    group.add_argument("--offline", action="store_true", help="use only what the cache holds")
    group.add_argument(
        "--root",
        type=Path,
        default=ROOT,
        metavar="DIR",
        help="the overlay's folder (default: the one this tool lies in)",
    )


def colour_wanted(choice: str, stream: object) -> bool:
    """Whether to colour *stream*: --color wins, then NO_COLOR and TERM, then whether it is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(getattr(stream, "isatty", lambda: False)())
