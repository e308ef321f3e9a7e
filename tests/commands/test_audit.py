"""tools/audit.py, as somebody runs it: scopes, outputs, exit codes, the ledger."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from downstream.trees.cache import default_folder
from downstream.trees.session import Session

STOCK = "attend-1.0-py3-none-any.whl"
INFO = "attend-1.0.dist-info"
HEADER = b"""\
__global__ void lamport_kernel(float* out) {
#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200))
  out[0] = 1;
#endif
}
__device__ void sm90() {
#if __CUDA_ARCH__ == 900
  asm("wgmma.fence.sync.aligned;");
#endif
#if __CUDA_ARCH__ >= 800
  fast();
#endif
}
"""
COMM = b"""\
def gen_comm_module():
    return flags(
        supported_major_versions=[9, 10]
    )
"""
FILES = {
    "attend/_version.py": b'__version__ = "1.0"\n',
    "attend/comm.py": COMM,
    "attend/data/include/all_reduce.cuh": HEADER,
    f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: attend\nVersion: 1.0\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: g (1)\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{INFO}/RECORD": b"attend/_version.py,,\nattend/comm.py,,\nattend/data/include/all_reduce.cuh,,\n",
}
PATCH = b"""\
Subject: admit SM120
Author: A <a@example.org>
Forwarded: no
Last-Update: 2026-01-01
---
--- a/attend/comm.py
+++ b/attend/comm.py
@@ -1,4 +1,4 @@
 def gen_comm_module():
     return flags(
-        supported_major_versions=[9, 10]
+        supported_major_versions=[9, 10, 12]
     )
"""
VERSIONS = """\
schema = 1
[upstreams.attend]
package = "attend"
repository = "https://example.org/attend"
tag = "v{{version}}"
version-file = "attend/_version.py"
[upstreams.attend.layout]
"attend/" = "attend/"
"include/" = "attend/data/include/"
[lines.stable.attend]
version = "1.0"
revision = 1
sha256 = {{ "{name}" = "{digest}" }}
"""
SUSPECT = "include/all_reduce.cuh:2: suspect, empty-kernel"

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An overlay of one line, its release already in the cache."""
    monkeypatch.setenv("SM120_OVERLAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    stock = tmp_path / STOCK
    with zipfile.ZipFile(stock, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    digest = hashlib.sha256(stock.read_bytes()).hexdigest()
    with Session(default_folder(), offline=True) as session:
        kept = session.cache.folder / "files" / digest
    kept.mkdir(parents=True)
    shutil.copyfile(stock, kept / STOCK)
    root = tmp_path / "overlay"
    series = root / "patches" / "stable" / "attend"
    series.mkdir(parents=True)
    (series / "series").write_bytes(b"admit.patch\n")
    (series / "admit.patch").write_bytes(PATCH)
    (root / "VERSIONS.toml").write_text(VERSIONS.format(name=STOCK, digest=digest))
    return root


@pytest.fixture
def run(root: Path, ask: Callable[..., Any]) -> Run:
    def call(*words: str) -> tuple[int, str]:
        said = ask("audit", *words, "--offline", "--root", root)
        return said.code, said.out + said.err

    return call


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "tree"


def documents(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line_shows_what_the_series_takes_away_and_what_nobody_looked_at(run: Run) -> None:
    code, text = run()
    assert code == 1
    assert f"  {SUSPECT}: (defined(__CUDA_ARCH__)" in text
    assert "in kernel lamport_kernel; admits both SM90 and SM100" in text
    assert "taken away by the series (1)\n  admit.patch: 1 guard\n" in text
    assert text.endswith("1 to have been looked at: 0 in the ledger, 1 UNREVIEWED\n")


def test_a_complete_ledger_makes_it_fine_and_a_lost_entry_does_not(run: Run, root: Path, tmp_path: Path) -> None:
    ledger = root / "patches" / "stable" / "attend" / "guards.toml"
    code, text = run("review", "--template", "--reviewer", "me")
    assert code == 0
    assert "\n# suspect, empty-kernel: in lamport_kernel; admits both SM90 and SM100; active on sm_90" in text
    assert re.search(r"^#      \d #if \(defined\(__CUDA_ARCH__\)", text, re.MULTILINE)
    filled = tmp_path / "filled.toml"
    filled.write_text(text.replace('reason = ""', 'reason = "tested by hand"'))
    code, text = run("review", "--from", str(filled))
    assert (code, text) == (0, f"stable/attend 1.0: 1 entries added, 0 guards unreviewed\nwrote {ledger}\n")
    code, text = run()
    assert code == 0
    assert text.endswith("1 to have been looked at: all in the ledger\n")
    assert "suspect:" not in text
    assert "ledger: " in run("-v")[1]
    ledger.write_text("schema = 1\n")
    assert run()[0] == 1


def test_a_terminal_is_asked_for_each_reason(run: Run, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[str] = iter(["measured", "elect.sync assembles"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert run("review", "--reviewer", "me")[0] == 0
    text = (root / "patches" / "stable" / "attend" / "guards.toml").read_text()
    assert 'reason = "measured"\nhardware = "elect.sync assembles"\nreviewer = "me"\n' in text
    assert run("-q") == (0, "")


def test_a_pipe_is_told_how_to_review(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    code, text = run("review")
    assert code == 2
    assert "next: use --template and --from" in text


def test_entries_whose_guard_is_gone_are_reported_and_pruned(run: Run, root: Path) -> None:
    ledger = root / "patches" / "stable" / "attend" / "guards.toml"
    ledger.write_text(
        "schema = 1\n"
        "[[guard]]\npaths = ['include/*']\ncovers = 2\nreason = 'r'\nreviewer = 'me'\ndate = 2026-01-01\n"
        "[[guard]]\nfingerprint = 'feedfacecafe'\nreason = 'r'\nreviewer = 'me'\ndate = 2026-01-01\n"
    )
    code, text = run()
    assert code == 1
    assert "ledger: include/* says it covers 2, it matches 1: look at them again" in text
    assert "ledger: the guard of feedfacecafe is gone: tools/audit.py review --prune" in text
    assert "is gone" not in run("--paths", "include/*")[1]  # what was not looked for
    assert run("review", "--prune")[0] == 0
    assert "feedface" not in ledger.read_text()
    assert run()[0] == 0


def test_json_is_schema_1_and_always_the_same(run: Run, unpacked: Path) -> None:
    code, text = run("--tree", str(unpacked), "--json")
    assert code == 1
    found = documents(text)
    assert (found["schema"], found["command"], found["ok"]) == (1, "audit", False)
    assert [guard["path"] for guard in found["guards"]] == ["attend/comm.py", *["include/all_reduce.cuh"] * 2]
    wanted = {
        "path": "include/all_reduce.cuh",
        "line": 2,
        "end_line": 3,
        "kind": "preprocessor",
        "condition": "(defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200))",
        "arches": {
            "sm_90": "active",
            "sm_100": "active",
            "sm_103": "active",
            "sm_120": "inactive",
            "sm_121": "inactive",
        },
        "excluded": True,
        "whole_kernel": True,
        "class": "suspect",
        "effect": "empty-kernel",
        "function": "lamport_kernel",
        "covered_by": None,
        "wheel_path": "attend/data/include/all_reduce.cuh",
    }
    assert {key: found["guards"][1][key] for key in wanted} == wanted
    assert found["guards"][2]["class"] == "hardware"
    assert run("--tree", str(unpacked), "--json")[1] == text


def test_all_lists_guards_that_are_no_findings_too(run: Run, unpacked: Path) -> None:
    found = documents(run("--tree", str(unpacked), "--json", "--all")[1])["guards"]
    plain = [guard for guard in found if guard["class"] is None]
    assert [(guard["line"], guard["excluded"], guard["effect"]) for guard in plain] == [(10, False, None)]
    assert "include/all_reduce.cuh:10: __CUDA_ARCH__ >= 800" in run("--tree", str(unpacked), "--all")[1]


@pytest.mark.parametrize("kind", ["folder", "wheel", "repository"])
def test_trees_of_every_kind_give_the_same_guards(run: Run, unpacked: Path, tmp_path: Path, kind: str) -> None:
    spec, extra = str(unpacked), []
    if kind == "wheel":
        spec = str(tmp_path / STOCK)
    if kind == "repository":
        repository = tmp_path / "repository"
        shutil.copytree(unpacked / "attend", repository / "attend")
        shutil.move(repository / "attend" / "data" / "include", repository / "include")
        spec = str(repository)
        extra = ["--upstream", "attend"]
    found = documents(run("--tree", spec, *extra, "--json")[1])["guards"]
    assert [(guard["path"], guard["line"]) for guard in found] == [
        ("attend/comm.py", 3),
        ("include/all_reduce.cuh", 2),
        ("include/all_reduce.cuh", 7),
    ]


def test_paths_and_architectures_narrow_the_question(run: Run, unpacked: Path) -> None:
    words = ("--tree", str(unpacked), "--json")
    assert len(documents(run(*words, "--paths", "attend/*")[1])["guards"]) == 1
    found = documents(run(*words, "--reference", "sm_90a", "--target", "120f,121a")[1])["guards"]
    assert list(found[1]["arches"]) == ["sm_90a", "sm_120f", "sm_121a"]


def test_the_installed_package_of_another_python_is_read(run: Run, unpacked: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    site = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    shutil.copytree(unpacked, site, dirs_exist_ok=True)
    code, text = run("--installed", "--python", str(tmp_path / "venv" / "bin" / "python"))
    assert code == 1
    assert SUSPECT in text


def test_markdown_has_a_table_of_what_nobody_looked_at(run: Run) -> None:
    code, text = run("--markdown")
    assert code == 1
    assert text.startswith("### ❌ guards of stable/attend 1.0 patched\n")
    assert "| `include/all_reduce.cuh:2` | suspect | empty-kernel | `lamport_kernel` |" in text
    assert "<details><summary>1 guard taken away by the series</summary>" in text


def test_sarif_has_a_result_per_finding_and_a_rule_per_class(run: Run, sarif_schema: dict[str, Any]) -> None:
    code, text = run("--sarif")
    assert code == 1
    log = documents(text)
    jsonschema.validate(log, sarif_schema)
    (sarif,) = log["runs"]
    assert log["version"] == "2.1.0"
    results = sarif["results"]
    assert [(each["ruleId"], each["level"]) for each in results] == [("suspect", "error"), ("hardware", "note")]
    region = results[0]["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["endLine"]) == (2, 3)
    rules = [rule["id"] for rule in sarif["tool"]["driver"]["rules"]]
    assert all(rules[each["ruleIndex"]] == each["ruleId"] for each in results)


def test_diff_tells_new_from_gone(run: Run, unpacked: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    shutil.copytree(unpacked, newer)
    header = newer / "attend" / "data" / "include" / "all_reduce.cuh"
    header.write_bytes(b"\n" + HEADER.replace(b" && (__CUDA_ARCH__ < 1200)", b""))
    code, text = run("--diff", str(unpacked), str(newer))
    assert code == 0
    assert "gone (1)\n  include/all_reduce.cuh:2: suspect" in text
    assert text.partition("\n")[0].endswith(": 0 new, 1 gone, 0 moved, 1 where they were")
    code, text = run("--diff", str(newer), str(unpacked), "--json")
    assert (code, documents(text)["ok"], len(documents(text)["guards"])) == (1, False, 1)
    assert "#### New" in run("--diff", str(newer), str(unpacked), "--markdown")[1]


def test_diff_tells_many_guards_of_a_file_together(run: Run, unpacked: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    shutil.copytree(unpacked, newer)
    (newer / "attend" / "catalogue.py").write_text(
        "".join(f"part_{number} = built(supported_major_versions=[9, 10])\n" for number in range(5))
    )
    code, text = run("--diff", str(unpacked), str(newer))
    assert code == 1
    assert "attend/catalogue.py: suspect, build-refused: 5 guards, lines 1 to 5\n" in text
    assert "attend/catalogue.py:3: suspect" in run("--diff", str(unpacked), str(newer), "-v")[1]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--json", "--sarif"), "stdout holds one format"),
        (("--tree", "x", "--installed"), "are different scopes"),
        (("--tree", "nowhere"), "nowhere: does not exist"),
        (("--python", "x"), "add --installed"),
        (("--target", "sm_1"), "is no GPU architecture"),
        (("--toolkit", "x"), "is no CUDA version"),
        (("--line", "next"), "has no line 'next'"),
        (("--diff", "1.0", "2.0"), "add --upstream attend"),
        (("--diff", "here", "there", "--upstream", "attend"), "is neither a tree nor a version"),
        (("review", "--tree", "x"), "has no ledger of its own"),
        (("review", "--prune", "--paths", "include/*"), "cannot be told from a part of the audit"),
    ],
)
def test_a_request_without_a_meaning_is_refused(run: Run, words: tuple[str, ...], problem: str) -> None:
    code, text = run(*words)
    assert code == 2
    assert problem in text


def test_a_broken_ledger_is_named(run: Run, root: Path) -> None:
    (root / "patches" / "stable" / "attend" / "guards.toml").write_text("schema = 1\n[[guard]]\nreason = 'x'\n")
    code, text = run()
    assert code == 2
    assert "guards.toml: [[guard]] 1: lacks 'reviewer'" in text


def test_the_bundle_runs_on_nothing_but_python(run: Run, unpacked: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "audit-remote.py"
    code, text = run("bundle", "--out", str(bundle))
    assert code == 0
    assert f"ssh host python3 - --installed < {bundle}" in text
    first = bundle.read_bytes()
    run("bundle", "--out", str(bundle))
    assert bundle.read_bytes() == first
    command = [sys.executable, "-I", "-S", "-", "--installed", "--json"]
    # -I -S: no project, no site-packages; the packages are found where this file puts them.
    path = f"import sys; sys.path.insert(0, {str(unpacked)!r})\n".encode()
    result = subprocess.run(command, input=path + first, capture_output=True, check=False)
    assert result.returncode == 1, result.stderr.decode()
    guards = json.loads(result.stdout)["guards"]
    assert [(guard["path"], guard["line"], guard["class"]) for guard in guards] == [
        ("attend/comm.py", 3, "suspect"),
        ("include/all_reduce.cuh", 2, "suspect"),
        ("include/all_reduce.cuh", 7, "hardware"),
    ]
    assert b"left out here: tree-sitter" in result.stderr
