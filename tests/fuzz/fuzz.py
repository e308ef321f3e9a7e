"""A long fuzzing session: what reads bytes of others must answer or refuse, lose no byte, and never hang.

    .venv/bin/pip install -e '.[fuzz]'
    .venv/bin/python tests/fuzz/fuzz.py patch -max_total_time=300 CORPUS

The words after the target are libFuzzer's. A folder named there is where inputs
that reached new code are kept; without one nothing is. What it finds becomes a
row in the table test of what was fuzzed.
"""

from __future__ import annotations

import mmap
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
with atheris.instrument_imports(include=["downstream"]):
    from downstream.errors import DownstreamError
    from downstream.guards.directives import scan
    from downstream.patches.crosscheck import crosscheck
    from downstream.patches.header import Header, with_field
    from downstream.patches.parse import parse_tolerant
    from downstream.placing.enclosing import functions
    from downstream.placing.push import push
    from downstream.trees import central, directory
    from downstream.trees.tree import MemoryTree
    from downstream.wheels.archive import Archive

LINES = b"".join(b"%d\n" % number for number in range(40))
RENAME = rb"""diff --git a/f b/g
old mode 100644
new mode 100755
similarity index 90%
rename from f
rename to g
--- a/f
+++ b/g
@@ -38,3 +38,2 @@
 37
-38
 39
\ No newline at end of file
"""
SYMLINK = rb"""diff --git "a/\303\251" "b/\303\251"
new file mode 120000
--- /dev/null
+++ "b/\303\251"
@@ -0,0 +1 @@
+f
"""
PATCHES = (
    b"Subject: x\nForwarded: no\n\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@ x\n 0\n-1\n+one\n 2\n-- \n2.1\n",
    RENAME,
    SYMLINK,
    b"Index: f\n===\ndiff -u a/f b/f\n--- a/f\t1970-01-01 00:00:00 +0000\n+++ b/f\n@@ -0,0 +1 @@\n+x\r\n",
    b"GIT binary patch\nBinary files a/x and b/x differ\n*** a\n--- b\n***************\n1,2c1,2\n< a\n---\n> b\n",
)
SOURCES = (
    b"#if defined(A) && (B >= 900) // x\n#elif !C /* y\n */ + 1\n#else\n#endif\n",
    b'auto s = R"x(\n#if 0\n)x"; char c = \'"\'; %: if 1 \\\n + 2\n#endif\n',
    b'#ifndef A\n#define A(x) \\\n  x\n#include <y>\n#undef A\n#endif // u8R"(\n__global__ void k() { if (a) { } }\n',
)


def read_patch(raw: bytes) -> None:
    """Every byte is owned, a hunk holds what it counts and what unidiff reads, and placing answers whatever it is."""
    try:
        parsed = parse_tolerant(raw, name="x.patch")
    except DownstreamError:
        return
    assert parsed.patch.to_bytes() == raw
    crosscheck(parsed.patch)
    for file in parsed.patch.files:
        for hunk in file.hunks:
            assert (len(hunk.old), len(hunk.new)) == (hunk.old_count, hunk.new_count)
    tree = MemoryTree({"f": LINES, "g.c": LINES})
    push([parsed], tree)
    push([parsed], MemoryTree({"f": LINES[4:]}), base=tree)
    header = Header.parse(parsed.patch.header)
    for name in ("Forwarded", "Last-Update"):
        changed = with_field(parsed.patch.header, name, "no")
        assert Header.parse(changed).get(name) == "no", header


def scan_directives(raw: bytes) -> None:
    """Lines ascend and lie within the file; arms lie within their chain."""
    text = raw.decode("utf-8", "replace")
    source = scan(text)
    for branch in source.branches():
        assert 1 <= branch.directive.line <= branch.directive.last_line <= max(source.lines, 1), branch
        assert branch.end_line <= source.lines, branch
    functions("x.cu", tuple(raw.splitlines(keepends=True)))


def read_wheel(raw: bytes) -> None:
    """Both readers answer or refuse; the kept list of members is the one that was read."""
    try:
        found = central.parse(len(raw), raw, name="x.whl")
        if isinstance(found, directory.Directory):
            again = directory.Directory.from_bytes(found.to_bytes())
            assert again is not None
            assert [(name, again.get(name)) for name in again] == [(name, found.get(name)) for name in found]
            for name in found:
                entry = found.get(name)
                assert entry is not None
                directory.extract(name, entry, raw[entry.start : entry.stop], name="x.whl")
    except DownstreamError:
        pass
    if not raw:
        return
    content = mmap.mmap(-1, len(raw))
    content[:] = raw
    try:
        archive = Archive("x.whl", content)
        for name in archive.entries:
            archive.read(name)
    except DownstreamError:
        pass


def _wheels() -> tuple[bytes, ...]:
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for number, method in enumerate((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)):
            path = Path(folder) / f"{number}.whl"
            with zipfile.ZipFile(path, "w", method) as wheel:
                wheel.writestr("a/b.py", b"x = 1\n" * 4)
                with wheel.open("a.dist-info/RECORD", "w", force_zip64=bool(number)) as member:
                    member.write(b"a/b.py,,\n")
            made.append(path.read_bytes())
    return tuple(made)


TARGETS: dict[str, tuple[Callable[[bytes], None], Callable[[], tuple[bytes, ...]]]] = {
    "patch": (read_patch, lambda: PATCHES),
    "directives": (scan_directives, lambda: SOURCES),
    "wheel": (read_wheel, _wheels),
}


def main(words: list[str]) -> None:
    if len(words) < 2 or words[1] not in TARGETS:
        sys.exit(f"usage: {words[0]} {{{','.join(TARGETS)}}} [LIBFUZZER OPTIONS] [CORPUS]")
    target, seeds = TARGETS[words[1]]
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds()):
            (Path(folder) / f"{number}").write_bytes(seed)
        given = words[2:] if any(not word.startswith("-") for word in words[2:]) else [*words[2:], f"{folder}/new"]
        (Path(folder) / "new").mkdir()
        limits = ["-timeout=20", "-rss_limit_mb=2048", "-max_len=4096"]
        atheris.Setup([words[0], *limits, *given, folder], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
