"""``doctor``: what this environment holds, and whether it can serve on SM120.

Exit code 0: no problems; 1: problems; 2: nothing could be examined, or a
wrong command line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from . import advice, build, hardware, modules
from .finding import Finding, Level

FINE, PROBLEMS, FAILED = 0, 1, 2
SCHEMA = 1
PROGRAM = "python -m flashinfer.sm120"


def examine(paths: list[str], *, copy: bool, targets: list[modules.Capability]) -> list[Finding] | None:
    """Return every finding about the environment whose import path is *paths*, None where it has no FlashInfer.

    *targets* are the capabilities that modules must have code for; without any,
    those of the SM12x GPUs that are there, else 12.0.
    """
    installed = build.installation(paths)
    if installed is None:
        return None
    about_gpus, gpus, driver = hardware.gpus()
    peers = hardware.peers(driver, gpus, copy=copy)
    wanted = targets or sorted({(gpu.major, gpu.minor) for gpu in gpus if gpu.is_sm12x}) or [(12, 0)]
    return [
        *build.identity(installed, paths),
        *build.files(installed),
        *build.siblings(installed, paths),
        _torch(),
        *modules.aot(installed, paths, wanted),
        *modules.jit(installed),
        *about_gpus,
        peers,
        *advice.variables(installed, os.environ),
        advice.flags(paths, gpus, peers, os.environ),
    ]


def _torch() -> Finding:
    # Looked for, never imported: importing it takes seconds, and fails on hosts where the doctor must not.
    if modules.torch_installed():
        return Finding("torch", Level.OK, "torch is installed (not imported)")
    text = "torch is not installed: whether FlashInfer imports here cannot be said"
    return Finding("torch", Level.UNKNOWN, text, "fine on a build host; a serving host needs it")


def main(argv: Sequence[str]) -> int:
    """Run the command line *argv* and return the exit code."""
    if argv[:1] == [hardware.COPY] and len(argv) == 3:
        return hardware.copy_between(int(argv[1]), int(argv[2]))
    options = _parser().parse_args(argv)
    # The first entry is the folder that was run, or the current one: neither is where packages are installed.
    # Python 3.11 leaves out the current one where -P or PYTHONSAFEPATH says so, but never the folder.
    paths = sys.path if getattr(sys.flags, "safe_path", False) else sys.path[1:]
    findings = examine(paths, copy=options.copy, targets=options.target or [])
    if findings is None:
        text = "flashinfer-python is not installed in this environment: nothing to examine"
        print(f"error: {text}\n  next: run it with the Python that serves ({sys.executable} ran it)", file=sys.stderr)
        return FAILED
    code = PROBLEMS if any(finding.level is Level.PROBLEM for finding in findings) else FINE
    try:
        print(_json(findings, code) if options.json else _text(findings, quiet=options.quiet), flush=True)
    except OSError as error:
        # Keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # that is a reader that went away (`| head`)
            print(f"error: the findings cannot be written ({error})", file=sys.stderr)
            return FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, allow_abbrev=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    doctor = commands.add_parser("doctor", help="examine this environment", description=__doc__, allow_abbrev=False)
    doctor.add_argument("--json", action="store_true", help="the findings as JSON (schema 1)")
    doctor.add_argument("--copy", action="store_true", help="copy between all GPU pairs and compare")
    doctor.add_argument(
        "--target",
        action="append",
        type=_capability,
        metavar="12.0",
        help="what modules must have code for; repeatable",
    )
    doctor.add_argument("-q", "--quiet", action="store_true", help="only problems")
    return parser


def _capability(text: str) -> modules.Capability:
    major, dot, minor = text.partition(".")
    if not (dot and major.isdigit() and minor.isdigit()):
        raise argparse.ArgumentTypeError(f"'{text}' is no compute capability like 12.0")
    return int(major), int(minor)


def _json(findings: list[Finding], code: int) -> str:
    rows = [
        {
            "check": finding.check,
            "level": finding.level.value,
            "text": finding.text,
            "advice": finding.advice,
            "facts": finding.facts,
        }
        for finding in findings
    ]
    return json.dumps({"schema": SCHEMA, "command": "doctor", "ok": code == FINE, "findings": rows}, indent=2)


def _text(findings: list[Finding], *, quiet: bool) -> str:
    shown = [finding for finding in findings if not quiet or finding.level is Level.PROBLEM]
    width = max((len(finding.check) for finding in shown), default=0)
    lines = []
    for finding in shown:
        lines.append(f"{finding.level.value:8}{finding.check:{width}}  {finding.text}")
        if finding.advice:
            lines.append(f"{'':8}{'':{width}}  next: {finding.advice}")
    counts = [f"{sum(finding.level is level for finding in findings)} {level.value}" for level in Level]
    return "\n".join([*lines, ", ".join(counts)])
