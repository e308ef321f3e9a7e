"""The wheels of line ``stable``, built from what the configured index serves."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from downstream.patched import PatchedTree
from downstream.patched import build as patched_tree
from downstream.pins import Line, Pins, load
from downstream.trees import releases
from downstream.trees.cache import default_folder
from downstream.trees.open import wheel_files
from downstream.trees.session import Session
from downstream.wheels.build import Built, build_line
from downstream.wheels.manifest import write_beside
from downstream.wheels.runtime import edit_runtime_version
from downstream.wheels.writer import EPOCH

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
LINE = "stable"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(default_folder()) as session:
        yield session


@pytest.fixture(scope="module")
def pins() -> Pins:
    return load(ROOT)


@pytest.fixture(scope="module")
def line(pins: Pins) -> Line:
    return pins.line(LINE)


@pytest.fixture(scope="module")
def trees(pins: Pins, line: Line, session: Session) -> dict[str, PatchedTree]:
    return {name: patched_tree(pins, pin, session) for name, pin in line.pins.items()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dist")


@pytest.fixture(scope="module")
def built(line: Line, trees: Mapping[str, PatchedTree], session: Session, dist: Path) -> dict[str, Built]:
    """Both wheels of the line, each through the gate, with what stands beside them."""
    jobs = [(tree, wheel_files(tree.pin, session)) for tree in trees.values()]
    built = build_line(jobs, dist, line=line, epoch=EPOCH)
    write_beside(built, dist, line=line, epoch=EPOCH)
    return {one.pin.upstream.name: one for one in built}


@pytest.fixture(scope="module")
def installed(built: Mapping[str, Built], line: Line, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our flashinfer beside the stock flashinfer-cubin of the pin."""
    target = tmp_path_factory.mktemp("site")
    version = line.pins["flashinfer"].version
    pip("install", "--no-deps", "--target", target, built["flashinfer"].path, f"flashinfer-cubin=={version}")
    return target


def pip(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *map(str, words)], check=True)


def test_sglang_requires_our_flashinfer_and_the_stock_cubins(built: Mapping[str, Built], line: Line) -> None:
    flashinfer = line.pins["flashinfer"]
    with zipfile.ZipFile(built["sglang"].path) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    assert f"\nRequires-Dist: flashinfer_python=={flashinfer.local_version}\n" in text
    assert f"\nRequires-Dist: flashinfer_cubin=={flashinfer.version}\n" in text


# flashinfer/__init__.py imports torch and every kernel's binding; the version checks stand in jit/env.py,
# which needs none of it. So the packages above it are given without being run.
IMPORT = """
    import importlib.machinery, sys, types
    from pathlib import Path
    site = Path(sys.argv[1])
    sys.path.insert(0, str(site))
    sys.modules["torch"] = types.ModuleType("torch")
    for name in ("flashinfer", "flashinfer.jit"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(site.joinpath(*name.split(".")))]
    if len(sys.argv) > 2:
        sys.modules["flashinfer_jit_cache"] = cache = types.ModuleType("flashinfer_jit_cache")
        cache.__version__, cache.get_jit_cache_dir = sys.argv[2], lambda: "/jit-cache"
        cache.__spec__ = importlib.machinery.ModuleSpec("flashinfer_jit_cache", None)
    env = importlib.import_module("flashinfer.jit.env")
    print(env.flashinfer_version, env.FLASHINFER_CUBIN_DIR, env.FLASHINFER_WORKSPACE_DIR, sep="\\n")
"""


def import_env(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"FLASHINFER_CUDA_ARCH_LIST": "12.0f", "HOME": str(site), "PATH": os.defpath}
    script = [sys.executable, "-I", "-c", textwrap.dedent(IMPORT), str(site), *words]
    return subprocess.run(script, capture_output=True, text=True, check=False, env=environment)


def test_the_built_wheel_imports_beside_the_stock_cubins(installed: Path, line: Line) -> None:
    done = import_env(installed)
    assert done.returncode == 0, done.stderr
    version, cubins, workspace = done.stdout.splitlines()
    assert version == str(line.pins["flashinfer"].local_version)
    assert Path(cubins).is_relative_to(installed / "flashinfer_cubin")
    assert Path(workspace).parts[-2:] == (version, "120f")  # no JIT module of another build is ever found


def test_cubins_of_another_release_are_refused(installed: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(installed / "flashinfer", site / "flashinfer", copy_function=os.link)
    (site / "flashinfer_cubin").mkdir()
    (site / "flashinfer_cubin" / "__init__.py").write_text('__version__ = "0.6.4"\n')
    done = import_env(site)
    assert "RuntimeError: flashinfer-cubin version (0.6.4) does not match" in done.stderr


@pytest.mark.parametrize(
    ("suffix", "accepted"),
    [
        ("", True),
        (".cu130", True),
        ("0", False),  # sm120.1 is not sm120.10
        ("0.cu130", False),
        (None, False),  # the published one: compiled without our patches
    ],
)
def test_only_a_jit_cache_of_this_very_build_is_accepted(
    installed: Path, line: Line, suffix: str | None, accepted: bool
) -> None:
    pin = line.pins["flashinfer"]
    version = f"{pin.version}+cu130" if suffix is None else f"{pin.local_version}{suffix}"
    done = import_env(installed, version)
    assert (done.returncode == 0) == accepted, done.stderr
    if not accepted:
        assert f"RuntimeError: flashinfer-jit-cache version ({version}) does not match" in done.stderr


def test_the_wheel_is_what_the_patched_sdist_builds(
    built: Mapping[str, Built], trees: Mapping[str, PatchedTree], session: Session, tmp_path: Path
) -> None:
    """The other route: the release's source distribution, patched, built by its own backend."""
    tree = trees["flashinfer"]
    pin, layout = tree.pin, tree.pin.upstream.layout
    release = releases.known(pin.upstream.package, pin.version, session=session)
    assert release is not None
    sdist = next(file for file in release.files if file.name.endswith(".tar.gz"))
    archive = tmp_path / sdist.name
    session.download(sdist.url, archive, sha256=sdist.sha256 or "", size=sdist.size)
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    source = tmp_path / sdist.name.removesuffix(".tar.gz")
    for path, content in tree.changed.items():
        if layout.to_wheel(path) is None:
            continue
        file = source / path
        assert (file.read_bytes() if file.exists() else None) == tree.base.read(path), path
        if content is None:
            file.unlink()
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    version_file = source / pin.upstream.version_file
    version_file.write_bytes(edit_runtime_version(version_file.read_bytes(), place="", local=pin.local_version))
    pip("wheel", "--no-deps", "--wheel-dir", tmp_path / "out", source)
    (other,) = (tmp_path / "out").iterdir()
    assert other.name == built["flashinfer"].path.name
    assert code_of(other) == code_of(built["flashinfer"].path)


WHOLE = """
    import flashinfer
    from flashinfer.jit import env
    from flashinfer.jit.comm import gen_trtllm_comm_module
    print(flashinfer.__version__, env.FLASHINFER_CUBIN_DIR)
    print(*gen_trtllm_comm_module().extra_cuda_cflags)
"""


@pytest.mark.slow
def test_the_whole_package_imports_with_its_real_dependencies(
    built: Mapping[str, Built], line: Line, tmp_path: Path
) -> None:
    """Two gigabytes: torch, the CUTLASS DSL and the cubins, in an environment of its own."""
    pin = line.pins["flashinfer"]
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [
        python,
        "-m",
        "pip",
        "-q",
        "install",
        built["flashinfer"].path,
        f"flashinfer-cubin=={pin.version}",
        "torch",
    ]
    subprocess.run(list(map(str, install)), check=True)
    environment = os.environ | {"FLASHINFER_CUDA_ARCH_LIST": "12.0f", "HOME": str(tmp_path)}
    script = [str(python), "-c", textwrap.dedent(WHOLE)]
    done = subprocess.run(script, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    said, flags = done.stdout.splitlines()[-2:]
    assert said.startswith(f"{pin.local_version} {tmp_path / 'venv'}")
    assert "arch=compute_120f,code=sm_120f" in flags


def code_of(wheel: Path) -> dict[str, str]:
    """Return the digest of every member outside the dist-info folder."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name and not name.endswith("/")]
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in names}


def test_the_door_builds_the_same_bytes_elsewhere(built: Mapping[str, Built], tmp_path: Path) -> None:
    out = tmp_path / "else" / "where"
    door = [sys.executable, str(ROOT / "tools" / "wheels.py"), "--out", str(out), "--json"]
    done = subprocess.run(door, capture_output=True, text=True, check=True, umask=0o077, cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert answer["ok"]
    wanted = {one.path.name: one.sha256 for one in built.values()}
    assert {row["file"]: row["sha256"] for row in answer["wheels"]} == wanted
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.glob("*.whl")} == wanted
    verify = [sys.executable, str(ROOT / "tools" / "wheels.py"), "verify", *map(str, out.glob("*.whl"))]
    assert subprocess.run(verify, check=False, stdout=subprocess.DEVNULL).returncode == 0


def test_a_stock_wheel_under_our_name_is_refused_by_the_door(line: Line, session: Session, tmp_path: Path) -> None:
    pin = line.pins["flashinfer"]
    (stock,) = wheel_files(pin, session)
    fake = tmp_path / stock.name.replace(str(pin.version), str(pin.local_version), 1)
    shutil.copyfile(stock, fake)
    door = [sys.executable, str(ROOT / "tools" / "wheels.py"), "verify", str(fake)]
    done = subprocess.run(door, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.search(r"dist-info: dist-info: is not the file name's name and version", done.stdout)
