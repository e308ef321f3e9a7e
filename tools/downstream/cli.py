"""From a door to an exit code: the options every command shares, and what errors end in."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from downstream.errors import DownstreamError

OK = 0  # done, and clean
FINDINGS = 1  # done, and the answer is no
FAILED = 2  # could not do it
BUG = 3  # our fault
INTERRUPTED = 130

SETUP = "python3 -m venv .venv && .venv/bin/pip install -e ."


def door(command: str, argv: Sequence[str] | None = None) -> int:
    """Run ``downstream.commands.<command>`` and return the exit code (DESIGN 12)."""
    try:
        return _flushed(int(importlib.import_module(f"downstream.commands.{command}").main(argv)))
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").split(".")[0]
        if missing in ("", "downstream"):
            return _bug()
        return _fail(f"tools/{command}.py: the module '{missing}' is not installed\n  next: {SETUP}")
    except DownstreamError as exc:
        return _fail(str(exc))
    except BrokenPipeError:
        # The reader went away (`| head`); keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as exc:  # argparse: --help is 0, misuse is 2
        return exc.code if isinstance(exc.code, int) else FAILED
    except Exception:  # the boundary: whatever is left is a bug of ours
        return _bug()


def _flushed(code: int) -> int:
    sys.stdout.flush()
    return code


def _fail(message: str) -> int:
    sys.stdout.flush()
    word = "\033[1;31merror:\033[0m" if colour_wanted("auto", sys.stderr) else "error:"
    print(f"{word} {message}", file=sys.stderr)
    return FAILED


def _bug() -> int:
    traceback.print_exc()
    print("this is a bug in the overlay's tools; please report the lines above", file=sys.stderr)
    return BUG


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
        default=Path(__file__).resolve().parents[2],
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
