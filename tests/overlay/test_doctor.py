"""The doctor, run as a command on environments laid out by hand: what it says of each, and how it exits."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

VERSION = "0.6.3+sm120.1"
DOMAIN_SBOM = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "metadata": {
        "component": {
            "type": "library",
            "name": "flashinfer-python",
            "version": VERSION,
            "pedigree": {
                "ancestors": [
                    {
                        "type": "library",
                        "name": "flashinfer-python",
                        "version": "0.6.3",
                        "purl": "pkg:pypi/flashinfer-python@0.6.3?file_name=flashinfer_python-0.6.3-py3-none-any.whl",
                    }
                ],
                "patches": [
                    {"type": "unofficial", "diff": {"url": "patches/stable/flashinfer/one.patch"}},
                    {"type": "unofficial", "resolves": [{"type": "defect", "name": "two"}]},
                ],
            },
        }
    },
}


def recorded(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f'"{name}",sha256={digest},{len(content)}'


def library(*targets: str) -> bytes:
    """A shared library with GPU code for *targets*, e.g. ``sm_120f``, and nothing else."""
    images = b""
    for target in targets:
        kind, _, number = target.partition("_")
        flags = {"a": 1 << 20, "f": 1 << 21}.get(number[-1], 0)
        images += struct.pack("<HHIQ", 2 if kind == "sm" else 1, 0x101, 64, 8) + bytes(12)
        images += struct.pack("<IQQ", int(number.rstrip("af")), 0, flags).ljust(36, b"\0") + bytes(8)
    code = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(images)) + images
    names = b"\0.nv_fatbin\0.shstrtab\0".ljust(24, b"\0")
    table = 64 + len(code) + len(names)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    rows = [(0, 0, 0), (1, 64, len(code)), (12, 64 + len(code), len(names))]
    sections = b"".join(struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, at, size, 0, 0, 8, 0) for name, at, size in rows)
    return head + code + names + sections


@dataclass
class Host:
    """A site-packages folder, a home, and the doctor in it."""

    site: Path
    home: Path
    doctor: ModuleType

    def add(
        self, name: str, version: str, files: Mapping[str, bytes] | None = None, *, requires: tuple[str, ...] = ()
    ) -> None:
        """Lay out an installed distribution, as an installer would."""
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        metadata = "\n".join([*lines, *(f"Requires-Dist: {one}" for one in requires), ""]).encode()
        everything = {**(files or {}), f"{info}/METADATA": metadata}
        for path, content in everything.items():
            (self.site / path).parent.mkdir(parents=True, exist_ok=True)
            (self.site / path).write_bytes(content)
        rows = [recorded(path, content) for path, content in everything.items()]
        (self.site / info / "RECORD").write_text("\n".join([*rows, f"{info}/RECORD,,", ""]))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
        environment = {**kept, "HOME": str(self.home), "PYTHONPATH": str(self.site)}
        command = [sys.executable, "-S", str(self.site / "flashinfer" / "sm120"), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def findings(self, *targets: tuple[int, int]) -> dict[str, list[dict[str, Any]]]:
        """Examine the host from within this process; the findings by check."""
        found: dict[str, list[dict[str, Any]]] = {}
        for finding in self.doctor.examine([str(self.site)], copy=False, targets=list(targets)) or []:
            found.setdefault(finding.check, []).append(vars(finding) | {"level": finding.level.value})
        return found

    def level(self, check: str) -> str:
        """The worst level of *check*."""
        levels: list[str] = [finding["level"] for finding in self.findings()[check]]
        return max(levels, key=["ok", "note", "unknown", "problem"].index)


@pytest.fixture
def host(tmp_path: Path, sm120: Path, module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host with the whole pair installed as it should be, without GPU and torch."""
    made = Host(site=tmp_path / "site", home=tmp_path / "home", doctor=module("doctor"))
    made.home.mkdir()
    monkeypatch.setenv("HOME", str(made.home))
    for name in ("FLASHINFER_CUDA_ARCH_LIST", "FLASHINFER_DISABLE_VERSION_CHECK", "FLASHINFER_WORKSPACE_BASE"):
        monkeypatch.delenv(name, raising=False)

    def no_driver(*_: object) -> None:
        raise module("driver").DriverError("there is none")

    # The machine that runs the tests may have a GPU; tests/overlay/test_driver.py has drivers of its own.
    monkeypatch.setattr(module("hardware"), "Driver", no_driver)
    monkeypatch.setattr(module("hardware"), "from_nvidia_smi", list)
    ours = {f"flashinfer/sm120/{path.name}": path.read_bytes() for path in sorted(sm120.glob("*.py"))}
    made.add(
        "flashinfer-python",
        VERSION,
        {
            **ours,
            "flashinfer/__init__.py": b'raise ImportError("the doctor must not import the package")\n',
            "flashinfer/_build_meta.py": f'"""Build metadata."""\n__version__ = "{VERSION}"\n'.encode(),
            "flashinfer/data/csrc/a, b.cu": b"// a comma in the path\n",
            f"flashinfer_python-{VERSION}.dist-info/sboms/flashinfer-python.cdx.json": json.dumps(DOMAIN_SBOM).encode(),
        },
    )
    made.add("sglang", "0.5.9+sm120.1", requires=(f"flashinfer_python=={VERSION}", "torch==2.9.1"))
    made.add("flashinfer-cubin", "0.6.3")
    return made


def test_a_sound_environment_has_no_problems(host: Host) -> None:
    found = host.findings()
    levels = {check: [finding["level"] for finding in findings] for check, findings in found.items()}
    assert levels == {
        "build": ["ok"],
        "files": ["ok"],
        "sglang": ["ok"],
        "cubin": ["ok"],
        "jit-cache": ["note"],
        "torch": [found["torch"][0]["level"]],
        "aot": ["ok"],
        "jit": ["ok"],
        "gpus": ["unknown"],
        "peers": ["unknown"],
        "flags": ["unknown"],
    }
    facts = found["build"][0]["facts"]
    assert facts["patches"] == ["patches/stable/flashinfer/one.patch", "two"]
    assert facts["ancestor"].startswith("pkg:pypi/flashinfer-python@0.6.3")
    assert f"flashinfer-python {VERSION}: flashinfer-python 0.6.3 with 2 patches" in found["build"][0]["text"]


def test_the_text_names_every_check_and_quiet_only_problems(host: Host) -> None:
    done = host.run("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"\d+ ok, \d+ note, 0 problem, \d+ unknown", done.stdout.splitlines()[-1])
    assert "ok      build" in done.stdout
    assert host.run("doctor", "-q").stdout.splitlines() == done.stdout.splitlines()[-1:]
    (host.site / "flashinfer/_build_meta.py").write_text('__version__ = "0.6.3"\n')
    done = host.run("doctor", "-q")
    assert done.returncode == 1
    assert "problem files" in done.stdout
    assert "problem build" in done.stdout
    assert "ok      " not in done.stdout


Change = Callable[[Host], None]


def damaged(path: str, content: bytes | None) -> Change:
    def damage(host: Host) -> None:
        target = host.site / path
        target.unlink()
        if content is not None:
            target.write_bytes(content)

    return damage


def without(name: str) -> Change:
    def remove(host: Host) -> None:
        for folder in host.site.glob(f"{name}-*.dist-info"):
            shutil.rmtree(folder)

    return remove


def instead(name: str, version: str, *requires: str) -> Change:
    def install(host: Host) -> None:
        without(name.replace("-", "_"))(host)
        host.add(name, version, requires=requires)

    return install


def stock(host: Host) -> None:
    without("flashinfer_python")(host)
    host.add("flashinfer-python", "0.6.3", {"flashinfer/_build_meta.py": b'__version__ = "0.6.3"\n'})


def latin_1_neighbour(host: Host) -> None:
    host.add("another", "1.0")
    (host.site / "another-1.0.dist-info/METADATA").write_bytes(b"Name: another\nVersion: 1.0\nAuthor: Ren\xe9\n")


def cached(version: str, source: str) -> Change:
    def build(host: Host) -> None:
        folder = host.home / ".cache/flashinfer" / version / "120f/cached_ops/trtllm_comm"
        folder.mkdir(parents=True)
        (folder / "trtllm_comm.so").write_bytes(b"?")
        source_folder = source.format(site=host.site)
        (folder / "build.ninja").write_text(f"common_cflags = $\n  -isystem {source_folder}/flashinfer/data/include\n")

    return build


SBOM = f"flashinfer_python-{VERSION}.dist-info/sboms/flashinfer-python.cdx.json"
FLASHINFER = f"flashinfer_python=={VERSION}"


@pytest.mark.parametrize(
    ("change", "check", "level", "says"),
    [
        (stock, "build", "problem", "is not an SM120 build"),
        (damaged(SBOM, None), "build", "problem", "no SBOM"),
        (damaged(SBOM, b"{"), "build", "problem", "no SBOM"),
        (damaged(SBOM, b'{"metadata": {"component": {}}}'), "build", "problem", "no SBOM"),
        (damaged("flashinfer/_build_meta.py", b'__version__ = "0.6.3"\n'), "build", "problem", "says 0.6.3"),
        (damaged("flashinfer/_build_meta.py", None), "build", "problem", "cannot be read"),
        (lambda host: host.add("flashinfer-python", "0.6.3"), "build", "problem", "is recorded 2 times"),
        (
            damaged("flashinfer/data/csrc/a, b.cu", b"edited"),
            "files",
            "problem",
            "1 changed: flashinfer/data/csrc/a, b.cu",
        ),
        (damaged("flashinfer/data/csrc/a, b.cu", None), "files", "problem", "1 missing: flashinfer/data/csrc/a, b.cu"),
        (damaged(f"flashinfer_python-{VERSION}.dist-info/RECORD", None), "files", "unknown", "has no RECORD"),
        (damaged(f"flashinfer_python-{VERSION}.dist-info/RECORD", b"\xff"), "files", "unknown", "has no RECORD"),
        (
            damaged(f"flashinfer_python-{VERSION}.dist-info/METADATA", b"\xff"),
            "build",
            "problem",
            "(version unknown) is not an SM120",
        ),
        (
            damaged(f"flashinfer_python-{VERSION}.dist-info/METADATA", None),
            "build",
            "problem",
            "(version unknown) is not an SM120",
        ),
        (damaged("flashinfer/_build_meta.py", b"\xff"), "build", "problem", "cannot be read"),
        (damaged("sglang-0.5.9+sm120.1.dist-info/METADATA", b"\xff"), "sglang", "problem", "version unknown"),
        (damaged("sglang-0.5.9+sm120.1.dist-info/METADATA", b""), "sglang", "problem", "version unknown"),
        (latin_1_neighbour, "build", "ok", "with 2 patches"),
        (instead("sglang", "0.5.9", "flashinfer_python==0.6.3"), "sglang", "problem", "is not an SM120 build"),
        (
            instead("sglang", "0.5.9+sm120.1", "flashinfer_python==0.6.3+sm120.10"),
            "sglang",
            "problem",
            "requires flashinfer-python 0.6.3+sm120.10",
        ),
        (instead("sglang", "0.5.9+sm120.1", "torch"), "sglang", "problem", "does not require an exact"),
        (instead("sglang", "0.5.23+sm120.1", f"flashinfer_python[cu13]=={VERSION}"), "sglang", "ok", "exactly"),
        (without("sglang"), "sglang", "note", "is not installed"),
        (instead("flashinfer-cubin", VERSION), "cubin", "ok", "pairs with it"),
        (instead("flashinfer-cubin", "0.6.30"), "cubin", "problem", "does not pair"),
        (instead("flashinfer-cubin", "0.6.3+sm120.10"), "cubin", "problem", "does not pair"),
        (without("flashinfer_cubin"), "cubin", "note", "downloaded when first used"),
        (instead("flashinfer-jit-cache", VERSION), "jit-cache", "ok", "pairs with it"),
        (instead("flashinfer-jit-cache", f"{VERSION}.cu130"), "jit-cache", "ok", "pairs with it"),
        (instead("flashinfer-jit-cache", f"{VERSION}0"), "jit-cache", "problem", "was not built from"),
        (instead("flashinfer-jit-cache", "0.6.3+cu130"), "jit-cache", "problem", "was not built from"),
        (instead("flashinfer-jit-cache", "0.6.30+cu130"), "jit-cache", "problem", "was not built from"),
        (cached(VERSION, "{site}"), "jit", "ok", "holds 1 modules of this build"),
        (cached(VERSION, "/elsewhere/site-packages"), "jit", "problem", "another installation's sources: trtllm_comm"),
        (cached("0.6.3", "{site}"), "jit", "note", "1 modules (0.6.3) of other builds"),
        (cached("0.5.3", "{site}"), "jit", "ok", "holds 0 modules"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(host: Host, change: Change, check: str, level: str, says: str) -> None:
    change(host)
    findings = host.findings()[check]
    matching = [finding for finding in findings if says in finding["text"]]
    assert [finding["level"] for finding in matching] == [level], findings
    if level == "problem":
        assert matching[0]["advice"]


@pytest.mark.parametrize(
    ("variables", "level", "says"),
    [
        ({"FLASHINFER_CUDA_ARCH_LIST": "9.0a 10.0a"}, "problem", "without code for SM120"),
        ({"FLASHINFER_CUDA_ARCH_LIST": "12.0"}, "problem", "without a suffix"),
        ({"FLASHINFER_CUDA_ARCH_LIST": "9.0a 12.0f"}, None, ""),
        ({"FLASHINFER_DISABLE_VERSION_CHECK": "1"}, "note", "will not notice"),
    ],
)
def test_variables_that_cause_trouble_are_named(
    host: Host, variables: dict[str, str], level: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    findings = host.findings().get("environment", [])
    assert [finding["level"] for finding in findings] == ([level] if level else [])
    assert all(says in finding["text"] for finding in findings)


def test_without_flashinfer_there_is_nothing_to_examine(host: Host) -> None:
    without("flashinfer_python")(host)
    done = host.run("doctor")
    assert done.returncode == 2
    assert "flashinfer-python is not installed" in done.stderr
    assert "next: run it with the Python that serves" in done.stderr


def test_the_json_document_holds_every_finding(host: Host) -> None:
    done = host.run("doctor", "--json", "--target", "12.1")
    document = json.loads(done.stdout)
    assert (done.returncode, document["schema"], document["command"], document["ok"]) == (0, 1, "doctor", True)
    assert {finding["check"] for finding in document["findings"]} == set(host.findings())
    assert set(document["findings"][0]) == {"check", "level", "text", "advice", "facts"}


@pytest.mark.parametrize("arguments", [[], ["operate"], ["doctor", "--target", "sm_120"]])
def test_misuse_exits_two(host: Host, arguments: list[str]) -> None:
    assert host.run(*arguments).returncode == 2


def test_a_reader_that_goes_away_is_no_error(host: Host) -> None:
    command = [sys.executable, "-S", str(host.site / "flashinfer/sm120"), "doctor"]
    environment = {"PYTHONPATH": str(host.site), "HOME": str(host.home)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.stderr is not None
        assert running.stderr.read() == b""
    assert running.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_findings_that_cannot_be_written_exit_two(host: Host) -> None:
    command = [sys.executable, "-S", str(host.site / "flashinfer/sm120"), "doctor"]
    environment = {"PYTHONPATH": str(host.site), "HOME": str(host.home)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the findings cannot be written")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("safe", ["", "1"])
def test_a_path_without_the_current_folder_hides_no_installation(host: Host, safe: str) -> None:
    (host.site / "flashinfer/__init__.py").write_bytes(b"")
    environment = {"PYTHONPATH": str(host.site), "HOME": str(host.home), "PYTHONSAFEPATH": safe}
    command = [sys.executable, "-S", "-m", "flashinfer.sm120", "doctor"]
    done = subprocess.run(command, env=environment, cwd=host.home, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "1 changed: flashinfer/__init__.py" in done.stdout


@pytest.mark.slow
def test_it_runs_on_the_oldest_python_that_flashinfer_supports(sm120: Path) -> None:
    checked = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10", "flashinfer/sm120"]
    done = subprocess.run(checked, cwd=sm120.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


AOT = "flashinfer/data/aot/trtllm_comm/trtllm_comm.so"
CACHE = "flashinfer_jit_cache/jit_cache/trtllm_comm/trtllm_comm.so"


@pytest.mark.parametrize(
    ("modules", "target", "level", "says"),
    [
        ({AOT: ["sm_120f"]}, "12.1", "ok", "1 ahead-of-time modules have code for 12.1"),
        ({AOT: ["sm_120a"]}, "12.0", "ok", "have code for 12.0"),
        ({AOT: ["sm_120a"]}, "12.1", "problem", "1 of 1 ahead-of-time modules have no code for 12.1: trtllm_comm"),
        ({CACHE: ["sm_90a", "sm_100a"]}, "12.0", "problem", "no code for 12.0: trtllm_comm"),  # the published jit-cache
        ({CACHE: ["sm_90a", "compute_90"]}, "12.0", "ok", "have code"),  # the driver compiles plain PTX
        ({CACHE: []}, "12.0", "ok", "have code"),  # host code only
        (
            {CACHE: ["sm_120f"], CACHE.replace("trtllm_comm", "fused_moe_90"): ["sm_90a"]},
            "12.0",
            "ok",
            "1 are for other GPUs",
        ),
        (
            {CACHE.replace("trtllm_comm", "gemm_sm100"): ["sm_100a"]},
            "12.0",
            "note",
            "all 1 ahead-of-time modules are for other",
        ),
    ],
)
def test_modules_without_code_for_the_gpu_are_named(
    host: Host, modules: dict[str, list[str]], target: str, level: str, says: str
) -> None:
    for name, targets in modules.items():
        (host.site / name).parent.mkdir(parents=True, exist_ok=True)
        (host.site / name).write_bytes(library(*targets))
    major, minor = map(int, target.split("."))
    (finding,) = host.findings((major, minor))["aot"]
    assert (finding["level"], says in finding["text"]) == (level, True), finding


def test_a_module_that_cannot_be_read_is_a_problem(host: Host) -> None:
    (host.site / AOT).parent.mkdir(parents=True)
    (host.site / AOT).write_bytes(library("sm_120")[:-40])
    assert host.level("aot") == "problem"


PATCH = Path(__file__).resolve().parents[2] / "patches/stable/flashinfer/answer-the-doctor-before-torch.patch"


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        (["-m", "flashinfer.sm120", "doctor", "-q"], True),
        (["-mflashinfer.sm120", "doctor", "-q"], True),
        (["-X", "utf8", "-m", "flashinfer.sm120", "doctor", "-q"], True),
        (["-c", "import flashinfer", "flashinfer.sm120"], False),
        (["-c", "import flashinfer.sm120"], False),
        (["-m", "flashinfer", "flashinfer.sm120"], False),
        (["-m", "flashinfer.cli", "-m", "flashinfer.sm120"], False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_series_lets_the_doctor_answer_where_the_package_does_not_import(
    host: Host, words: list[str], answers: bool
) -> None:
    added = [line[1:] for line in PATCH.read_text().splitlines() if line.startswith("+") and not line.startswith("+++")]
    heavy = "raise ImportError('as without torch')"
    init = host.site / "flashinfer" / "__init__.py"
    init.write_text("\n".join([*added, heavy, ""]))
    (host.site / "flashinfer" / "__main__.py").write_text("")
    record = next(host.site.glob("flashinfer_python-*.dist-info")) / "RECORD"
    lines = [line for line in record.read_text().splitlines() if "flashinfer/__init__.py" not in line]
    record.write_text("\n".join([*lines, recorded("flashinfer/__init__.py", init.read_bytes()), ""]))
    environment = {"HOME": str(host.home), "PYTHONPATH": str(host.site)}
    done = subprocess.run(
        [sys.executable, "-S", *words], env=environment, cwd=host.home, capture_output=True, text=True, check=False
    )
    assert ("0 problem" in done.stdout) is answers, done.stderr
    assert ("as without torch" in done.stderr) is not answers
    assert (done.returncode == 0) is answers
