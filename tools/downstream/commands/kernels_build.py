"""tools/kernels.py build, merge: modules built ahead of time, and shards joined to one wheel."""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from downstream.arches import parse_targets
from downstream.cli import OK, add_common_options
from downstream.errors import UsageError
from downstream.report.terminal import progress

if TYPE_CHECKING:
    from downstream.kernels.modules import Built
    from downstream.kernels.parts import Part
    from downstream.kernels.toolchain import Toolchain
    from downstream.wheels.jitcache import JitCache

TARGETS = "12.0f,12.1a"
LAUNCHERS = ("sccache", "ccache")


def add_commands(commands: Any) -> None:
    text = "build modules ahead of time and pack them as flashinfer-jit-cache; on many machines, by --shard and merge"
    build = commands.add_parser("build", help=text.partition(";")[0], description=text, allow_abbrev=False)
    build.add_argument("--line", metavar="LINE", help="default: the first of VERSIONS.toml")
    build.add_argument("--modules", metavar="LIST", help="by generator: gen_NAME_module (default: trtllm_comm)")
    build.add_argument("--targets", default=TARGETS, metavar="LIST", help=f"default: {TARGETS}")
    build.add_argument("--shard", default="1/1", metavar="I/N", help="build every N-th module only; join with merge")
    build.add_argument("--jobs", type=int, metavar="N", help="compiles at once (default: by free memory)")
    build.add_argument("--launcher", choices=LAUNCHERS, help="put this compiler cache before nvcc")
    build.add_argument("--wheel", type=Path, metavar="FILE", help="the patched FlashInfer (default: it is built)")
    build.add_argument("--torch", metavar="SPEC", help="the torch of the build environment, for pip")
    build.add_argument("--python", type=Path, metavar="FILE", help="an interpreter that is one already: none is made")
    build.add_argument("--may-be-empty", action="append", default=[], metavar="MODULE", help=argparse.SUPPRESS)
    build.add_argument("--out", type=Path, metavar="DIR", help="default: dist/<line>")
    add_cuda_home(build)
    add_common_options(build)
    text = "join the shards of one build to a wheel; refuses parts whose toolchain, series or targets differ"
    merge = commands.add_parser("merge", help=text.partition(";")[0], description=text, allow_abbrev=False)
    merge.add_argument("parts", nargs="+", type=Path, metavar="DIR")
    merge.add_argument("--out", type=Path, default=Path("dist"), metavar="DIR", help="default: dist")
    add_common_options(merge)


def add_cuda_home(options: argparse.ArgumentParser) -> None:
    options.add_argument("--cuda-home", type=Path, metavar="DIR", help="a CUDA 13.0 toolkit to use, not the pinned one")


def toolchain_of(options: argparse.Namespace) -> Toolchain:
    from downstream.kernels.toolchain import pinned, system
    from downstream.trees.cache import default_folder

    if options.cuda_home is not None:
        return system(options.cuda_home)
    bar = progress(quiet=options.quiet)
    return pinned(options.root, default_folder(), offline=options.offline, progress=bar)


def run(options: argparse.Namespace) -> int:
    return _build(options) if options.command == "build" else _merge(options)


def _build(options: argparse.Namespace) -> int:
    from downstream.kernels import parts
    from downstream.kernels.compile import workers_for
    from downstream.kernels.environment import TORCH, installed_wheel, interpreter
    from downstream.kernels.modules import DEFAULT, build, parse_shard
    from downstream.pins import load
    from downstream.trees.cache import default_folder

    shard = parse_shard(options.shard)
    wanted = tuple(sorted(set((options.modules or ",".join(DEFAULT)).replace(",", " ").split())))
    targets = parse_targets(options.targets)
    mine = shard.of(wanted)
    if not mine:
        raise UsageError("--shard", f"{shard} of {len(wanted)} modules is nothing", "ask for fewer shards")
    line = options.line or next(iter(load(options.root).lines))
    out = options.out or Path("dist") / line
    bar = progress(quiet=options.quiet)
    toolchain = toolchain_of(options)
    cache = default_folder()
    python = options.python or interpreter(
        options.root, cache, torch=options.torch or TORCH, offline=options.offline, progress=bar
    )
    with tempfile.TemporaryDirectory(prefix="kernels-build-") as name:
        wheel = options.wheel or patched_wheel(options, line, Path(name))
        place = out / f"kernels-{shard.index}-of-{shard.count}" if shard.count > 1 else Path(name) / "modules"
        inherited = os.environ.get("PYTHONPATH", "") if options.python else ""
        built = build(
            installed_wheel(python, wheel, cache, inherited=inherited),
            toolchain,
            mine,
            targets,
            place,
            jobs=options.jobs or workers_for(),
            launcher=options.launcher or "",
            may_be_empty=options.may_be_empty,
            progress=bar,
        )
        part = parts.Part(
            version=built.version,
            cuda=toolchain.version,
            toolchain=toolchain.identity,
            source=hashlib.sha256(wheel.read_bytes()).hexdigest(),
            targets=tuple(map(str, targets)),
            wanted=wanted,
            machine=platform.machine(),
            shard=shard,
            modules=built.modules,
        )
        packed = None
        if shard.count > 1:
            parts.write(part, place)
        else:
            packed = _packed(part, out)
        return _tell(options, part, built, packed, place)


def patched_wheel(options: argparse.Namespace, line: str, folder: Path) -> Path:
    """Build the patched FlashInfer of *line* into *folder*; return the wheel."""
    from downstream.patched import build as patched_tree
    from downstream.pins import load
    from downstream.trees.cache import default_folder
    from downstream.trees.open import wheel_files
    from downstream.trees.session import Session
    from downstream.wheels.build import build
    from downstream.wheels.writer import timestamp

    pins = load(options.root)
    pin = pins.pin(line, "flashinfer")
    with Session(default_folder(), offline=options.offline, progress=progress(quiet=options.quiet)) as session:
        tree = patched_tree(pins, pin, session)
        epoch = timestamp(os.environ.get("SOURCE_DATE_EPOCH"))
        (built,) = build(wheel_files(pin, session), tree, folder, line=pins.line(line), epoch=epoch)
    return built.path


def _packed(part: Part, out: Path) -> JitCache:
    from downstream.wheels.jitcache import pack
    from downstream.wheels.writer import timestamp

    return pack(part, out, epoch=timestamp(os.environ.get("SOURCE_DATE_EPOCH")))


def _merge(options: argparse.Namespace) -> int:
    from downstream.kernels import parts

    whole = parts.merge([parts.read(folder) for folder in options.parts])
    packed = _packed(whole, options.out)
    return _tell(options, whole, None, packed, options.out)


def _tell(options: argparse.Namespace, part: Part, built: Built | None, packed: JitCache | None, place: Path) -> int:
    if options.json:
        import json

        from downstream.report import json as report_json

        document = {"schema": report_json.SCHEMA, "command": f"kernels {options.command}", "ok": True}
        facts = json.loads(replace(part).manifest())
        wheel = {"file": packed.path.name, "platform": packed.platform, "outside": packed.outside} if packed else None
        sys.stdout.write(report_json.dumps({**document, "part": facts, "wheel": wheel}))
        return OK
    print(packed.path if packed else place)
    if options.quiet:
        return OK
    for module in part.modules:
        counts = ", ".join(f"{count} for {target}" for target, count in module.kernels.items())
        print(f"  {module.name}: {module.size / 1e6:.1f} MB, kernels: {counts}; none empty")
    if packed:
        print(f"  auditwheel grants {packed.platform}; the machine brings {', '.join(packed.outside) or 'nothing'}")
    if built:
        print(f"  {built.seconds:.0f} s, {built.peak / 1e9:.2f} GB in the largest compiler, {part.toolchain}")
    return OK
