"""Machine code as cuobjdump lists it: per kernel its instructions, waits, triggers and a digest of its bytes."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from downstream.errors import ToolchainError
from downstream.kernels.toolchain import Toolchain, environment

WAIT = "ACQBULK"  # griddepcontrol.wait
TRIGGER = "PREEXIT"  # griddepcontrol.launch_dependents

MEANT_EMPTY = ("EmptyKernel",)  # CUB asks the runtime about it and never launches it

_TARGET = re.compile(r"^\s*code for (sm_\d+[af]?)$")
_FUNCTION = re.compile(r"^\s*Function : (\S+)$")
_LINE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);\s*/\* (0x[0-9a-f]+) \*/")
_MORE = re.compile(r"^\s+/\* (0x[0-9a-f]+) \*/$")

# A kernel without a body is made of these: set the stack pointer up, exit, and a branch to itself as a stop.
_FRAME = frozenset({"EXIT", "BRA", "RET", "NOP"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel's machine code for one target. Counts are of instructions other than NOP."""

    name: str  # mangled
    instructions: int
    body: int  # those beyond stack set-up, exit and the closing branch
    waits: int
    triggers: int
    digest: str  # sha256 of the encoded instructions

    @property
    def empty(self) -> bool:
        return self.body == 0

    @property
    def family(self) -> str:
        return family(self.name)


def family(mangled: str) -> str:
    """Return the innermost name of an Itanium-mangled function, without template and parameters.

    ``_ZN10flashinfer3foo3barILi1EEEvv`` is ``bar``; what is not mangled stays as it is.
    """
    if not mangled.startswith("_Z"):
        return mangled
    rest = mangled[2:].removeprefix("N").removeprefix("L")
    name = ""
    while found := re.match(r"(\d+)", rest):
        length = int(found[1])
        name = rest[found.end() : found.end() + length]
        rest = rest[found.end() + length :]
    return name or mangled


def listing(toolchain: Toolchain, binary: Path) -> dict[str, dict[str, Kernel]]:
    """Disassemble *binary* (a cubin, object or library): target -> mangled name -> Kernel.

    A target that has no kernel (a unit that its flags leave nothing of) is there, and empty. Raises
    ToolchainError where cuobjdump fails or knows no target in it.
    """
    command = [str(toolchain.cuobjdump), "-sass", str(binary)]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1 << 20
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        found = parse(process.stdout)
        complaint = process.stderr.read().strip()
    if process.returncode or not found:
        problem = complaint.splitlines()[-1] if complaint else "lists no machine code"
        raise ToolchainError(binary.name, f"cuobjdump: {problem}")
    return found


def parse(lines: Iterable[str]) -> dict[str, dict[str, Kernel]]:
    """Read ``cuobjdump -sass`` text."""
    found: dict[str, dict[str, Kernel]] = {}
    for target, name, body in _functions(lines):
        kernels = found.setdefault(target, {})
        if name:
            kernels[name] = _kernel(name, body)
    return found


def _functions(lines: Iterable[str]) -> Iterator[tuple[str, str, list[tuple[str, str, str]]]]:
    """Yield target, name and code of each function; each target once more without, so that none is missed."""
    target, name = "", ""
    body: list[tuple[str, str, str]] = []  # opcode, operands, encoding
    for line in lines:
        if code := _LINE.match(line):
            body.append((code[1], code[2], code[3]))
        elif more := _MORE.match(line):
            if body:
                opcode, operands, encoding = body[-1]
                body[-1] = (opcode, operands, f"{encoding} {more[1]}")
        elif function := _FUNCTION.match(line):
            if name:
                yield target, name, body
            name, body = function[1], []
        elif heading := _TARGET.match(line):
            if name:
                yield target, name, body
            target, name, body = heading[1], "", []
            yield target, "", []
    if name:
        yield target, name, body


def _kernel(name: str, body: list[tuple[str, str, str]]) -> Kernel:
    opcodes = [opcode.split(".")[0] for opcode, _, _ in body]
    # The first write of R1 is the stack pointer's.
    frame = [operands.lstrip().startswith("R1,") and opcode in ("LDC", "MOV") for opcode, operands, _ in body]
    return Kernel(
        name=name,
        instructions=sum(opcode != "NOP" for opcode in opcodes),
        body=sum(opcode not in _FRAME and not stack for opcode, stack in zip(opcodes, frame, strict=True)),
        waits=opcodes.count(WAIT),
        triggers=opcodes.count(TRIGGER),
        digest=hashlib.sha256("\n".join(encoding for _, _, encoding in body).encode()).hexdigest(),
    )


def to_json(kernels: Mapping[str, Kernel]) -> list[dict[str, Any]]:
    return [asdict(kernels[name]) for name in sorted(kernels)]


def from_json(entries: Iterable[Mapping[str, Any]]) -> dict[str, Kernel]:
    return {entry["name"]: Kernel(**entry) for entry in entries}
