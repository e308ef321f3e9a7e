from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from downstream.patched import PatchedTree
from downstream.pins import Line
from downstream.wheels.sbom import file_name, pedigree_of, sbom, schema_errors

DIFF = b"--- a/attend/gate.py\n+++ b/attend/gate.py\n@@ -1 +1 @@\n-majors = [9, 10]\n+majors = [9, 10, 12]\n"


@pytest.fixture
def tree(
    published: Callable[..., Any], line_of: Callable[..., Line], patched: Callable[..., PatchedTree]
) -> PatchedTree:
    wheel = published().write()
    return patched(line_of(wheel), wheel, overlay={"attend/sm120.py": b"x\n"})


def component(raw: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(raw)["metadata"]["component"]
    return found


FILE = "attend-1.0-py3-none-any.whl"


def test_it_validates_and_names_ancestor_line_and_overlay(tree: PatchedTree) -> None:
    raw = sbom(tree, FILE)
    assert schema_errors(raw) == []
    found = component(raw)
    assert found["purl"] == "pkg:pypi/attend@1.0%2Bsm120.1"
    (ancestor,) = found["pedigree"]["ancestors"]
    assert ancestor["purl"] == f"pkg:pypi/attend@1.0?file_name={FILE}"
    assert ancestor["hashes"] == [{"alg": "SHA-256", "content": tree.pin.sha256[FILE]}]
    properties = {one["name"]: one["value"] for one in found["properties"]}
    assert properties["sm120-overlay:line"] == "stable"
    assert properties["sm120-overlay:revision"] == "1"
    assert properties["sm120-overlay:overlay"].startswith("attend/sm120.py sha256:73cb3858a687a8494ca3323053016282")


def test_one_patch_per_series_entry_in_its_order_with_its_text(tree: PatchedTree) -> None:
    names = ["z.patch", "a.patch", "sub/m.patch"]
    patches = {name: b"Subject: " + name.encode() + b"\n---\n" + DIFF for name in names}
    raw = sbom(replace(tree, patches=patches), FILE)
    assert pedigree_of(raw) == (
        (tree.pin.sha256[FILE],),
        tuple((f"patches/stable/attend/{name}", patches[name]) for name in names),
    )


@pytest.mark.parametrize(
    ("fields", "kind", "issues"),
    [
        (b"Forwarded: no\n", "unofficial", []),
        (b"Forwarded: not-needed\nOrigin: vendor\n", "unofficial", []),
        (
            b"Forwarded: https://github.com/o/attend/pull/7\nBug: https://github.com/o/attend/issues/3\n",
            "unofficial",
            ["attend#7", "attend#3"],
        ),
        (b"Origin: upstream, https://github.com/o/attend/commit/ab12\n", "cherry-pick", ["attend#ab12"]),
        (b"Origin: backport, https://github.com/o/attend/pull/9\n", "backport", ["attend#9"]),
        (b"Applied-Upstream: 1.1, https://github.com/o/attend/pull/9\n", "unofficial", ["attend#9"]),
        (b"Bug-Debian: https://bugs.debian.org/123\n", "unofficial", ["https://bugs.debian.org/123"]),
    ],
)
def test_dep3_fields_say_what_a_patch_is_and_resolves(
    tree: PatchedTree, fields: bytes, kind: str, issues: list[str]
) -> None:
    patch = b"Subject: admit SM120\n" + fields + b"---\n" + DIFF
    raw = sbom(replace(tree, patches={"x.patch": patch}), FILE)
    assert schema_errors(raw) == []
    (found,) = component(raw)["pedigree"]["patches"]
    assert found["type"] == kind
    assert sorted(one["id"] for one in found.get("resolves", [])) == sorted(issues)
    assert all(one["name"] == "admit SM120" for one in found.get("resolves", []))


def test_a_patch_that_is_no_utf8_is_kept_byte_for_byte(tree: PatchedTree) -> None:
    patch = b"Subject: caf\xe9\n---\n" + DIFF.replace(b"12]", b"12] # \xe9\r")
    raw = sbom(replace(tree, patches={"x.patch": patch}), FILE)
    assert schema_errors(raw) == []
    assert pedigree_of(raw)[1] == (("patches/stable/attend/x.patch", patch),)


def test_same_inputs_same_bytes_and_no_clock(tree: PatchedTree) -> None:
    raw = sbom(tree, FILE)
    assert raw == sbom(tree, FILE)
    document = json.loads(raw)
    assert "timestamp" not in document["metadata"]
    other = json.loads(sbom(replace(tree, pin=replace(tree.pin, revision=2)), FILE))
    assert document["serialNumber"] != other["serialNumber"]


def test_a_series_without_patches_has_a_pedigree_without_patches(tree: PatchedTree) -> None:
    raw = sbom(replace(tree, patches={}), FILE)
    assert schema_errors(raw) == []
    assert pedigree_of(raw)[1] == ()


@pytest.mark.parametrize("raw", [b"{}", b"[]", b"not json", b"\xff", b'{"metadata": {"component": {}}}'])
def test_what_is_no_sbom_of_ours_is_told_apart(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        pedigree_of(raw)
    assert schema_errors(raw)


def test_its_place_bears_the_packages_normalized_name() -> None:
    assert file_name("FlashInfer_Python") == "sboms/flashinfer-python.cdx.json"
