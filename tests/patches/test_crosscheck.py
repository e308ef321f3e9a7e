"""The second reading of a patch: it agrees with ours, and says so where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from downstream.errors import PatchError
from downstream.patches.crosscheck import crosscheck
from downstream.patches.parse import parse
from downstream.patches.text import Hunk, Patch

ODD = b"""--- a/f
+++ b/f
@@ -1,5 +1,5 @@ section
 a\x0c\x85
-b
+-- b
 \xe9
\t tab
 c
@@ -20 +20,2 @@
-last
\\ Pas de fin
+last\r
+++ more
--- a/g
+++ b/g
@@ -0,0 +1 @@
+g
"""


def test_unidiff_reads_what_we_read() -> None:
    crosscheck(parse(ODD, name="odd.patch"))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"old_start": 2}, "unidiff reads other lines"),
        ({"body": ((" ", b"a\n"), ("+", b"b\n"))}, "unidiff reads other lines"),
        ({"raw": b"@@ -1,9 +1,5 @@\n a\n"}, "unidiff cannot read it"),
        ({"raw": b"@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n-a\n+b\n"}, "unidiff reads another number of hunks"),
    ],
)
def test_a_difference_is_named_with_its_place(changes: dict[str, object], problem: str) -> None:
    patch = parse(ODD, name="odd.patch")
    first = patch.files[0]
    wrong: Hunk = replace(first.hunks[0], **changes)  # type: ignore[arg-type]
    spoilt: Patch = replace(patch, files=(replace(first, hunks=(wrong, *first.hunks[1:])), *patch.files[1:]))
    with pytest.raises(PatchError, match=problem) as caught:
        crosscheck(spoilt)
    assert caught.value.place == "odd.patch:3"
