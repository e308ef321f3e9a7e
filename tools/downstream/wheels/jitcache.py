"""The flashinfer-jit-cache wheel: built modules under the names and import contract of upstream's own package."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from downstream.errors import ToolchainError, WriteError
from downstream.kernels.parts import MANIFEST, Part
from downstream.wheels.record import Row, row, write_rows
from downstream.wheels.writer import ArchiveWriter

PACKAGE = "flashinfer_jit_cache"
# FlashInfer asks for these three names (jit/env.py); the folder holds <name>/<name>.so.
_INIT = '''\
"""FlashInfer's modules compiled ahead of time for SM12x, by sm120-overlay."""

from pathlib import Path

from ._build_meta import __git_version__ as __git_version__
from ._build_meta import __version__ as __version__

jit_cache_dir = Path(__file__).parent / "jit_cache"


def get_jit_cache_dir() -> str:
    """Return the folder of the compiled modules."""
    return str(jit_cache_dir)


__all__ = ["get_jit_cache_dir"]
'''
# What a module links with and the machine it runs on brings: the CUDA runtime that torch loads, and the driver.
_OUTSIDE = ("libcudart.so.13", "libcuda.so.1")


@dataclass(frozen=True, slots=True, kw_only=True)
class JitCache:
    """The wheel that was written, and what its libraries need."""

    path: Path
    platform: str  # the platform tag that auditwheel grants
    outside: tuple[str, ...]  # libraries the machine must bring


def version_for(flashinfer: str, cuda: str) -> Version:
    """Return the package's version: FlashInfer's with the CUDA label, which its version rule asks for.

    ``0.6.3+sm120.1`` and ``13.0.88`` give ``0.6.3+sm120.1.cu130``.
    """
    major, minor = cuda.split(".")[:2]
    joint = "." if "+" in flashinfer else "+"
    return Version(f"{flashinfer}{joint}cu{major}{minor}")


def pack(part: Part, folder: Path, *, epoch: int) -> JitCache:
    """Write the wheel of *part* (a whole build) into *folder*, tagged as auditwheel grants it.

    Same modules, same bytes. Raises WriteError, and ToolchainError where
    auditwheel is missing or a library needs what no machine brings.
    """
    with tempfile.TemporaryDirectory(prefix="jit-cache-") as name:
        draft = _written(
            part, Path(name), "linux_x86_64" if part.machine == "x86_64" else f"linux_{part.machine}", epoch
        )
        platform, outside = granted(draft)
        if unknown := [library for library in outside if library not in _OUTSIDE]:
            raise ToolchainError(draft.name, f"needs {', '.join(unknown)}, which a wheel may not take for granted")
        return JitCache(path=_written(part, folder, platform, epoch), platform=platform, outside=outside)


def granted(wheel: Path) -> tuple[str, tuple[str, ...]]:
    """Return the platform tag that the symbols in *wheel* allow, and the libraries outside any such policy."""
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        step = "pip install 'sm120-overlay[kernels]'" if "No module named" in ran.stderr else ""
        last = (ran.stderr.strip() or "it said nothing").splitlines()[-1]
        raise ToolchainError(wheel.name, f"auditwheel: {last}", step)
    said = json.loads(ran.stdout)
    return said["sym_tag"], tuple(sorted(said["external_libs"]))


def _written(part: Part, folder: Path, platform: str, epoch: int) -> Path:
    version = version_for(part.version, part.cuda)
    info = f"{PACKAGE}-{version}.dist-info"
    path = folder / f"{PACKAGE}-{version}-cp39-abi3-{platform}.whl"
    meta = f'"""What this build is."""\n\n__version__ = "{version}"\n__git_version__ = "{part.source}"\n'
    members: list[tuple[str, bytes]] = [
        (f"{PACKAGE}/__init__.py", _INIT.encode()),
        (f"{PACKAGE}/_build_meta.py", meta.encode()),
        (f"{PACKAGE}/{MANIFEST}", part.manifest()),
        *((f"{PACKAGE}/jit_cache/{one.name}/{one.name}.so", one.path.read_bytes()) for one in part.modules),
        (f"{info}/METADATA", _metadata(part, version).encode()),
        (f"{info}/WHEEL", _wheel(platform).encode()),
    ]
    rows: list[Row] = []
    draft = path.with_name(f".{path.name}.part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as stream:
            writer = ArchiveWriter(stream, epoch=epoch)
            for name, content in members:
                writer.store(name, content, mode=0o755 if name.endswith(".so") else 0o644)
                rows.append(row(name, [content]))
            record = f"{info}/RECORD"
            writer.store(record, write_rows(rows, record))
            writer.finish()
        draft.replace(path)
    except OSError as exc:
        raise WriteError(
            str(path), f"cannot be written: {exc.strerror}", "make room there, or name another --out"
        ) from exc
    finally:
        with contextlib.suppress(OSError):  # not there, or its folder is not
            draft.unlink()
    return path


def _metadata(part: Part, version: Version) -> str:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {PACKAGE.replace('_', '-')}",
        f"Version: {version}",
        "Summary: FlashInfer modules compiled ahead of time for SM12x",
        "License-Expression: Apache-2.0",
        "Requires-Python: >=3.9",
        f"Requires-Dist: flashinfer-python=={part.version}",
        "Description-Content-Type: text/plain",
        "",
        "Modules of FlashInfer (Apache-2.0, the FlashInfer team), compiled from its patched sources by sm120-overlay;",
        "not a release of theirs. The modules and their targets:",
        *_told(part),
        "",
    ]
    return "\n".join(lines)


def _told(part: Part) -> Iterable[str]:
    for module in part.modules:
        yield f"  {module.name}: " + ", ".join(f"{count} kernels for {to}" for to, count in module.kernels.items())


def _wheel(platform: str) -> str:
    return f"Wheel-Version: 1.0\nGenerator: sm120-overlay\nRoot-Is-Purelib: false\nTag: cp39-abi3-{platform}\n"
