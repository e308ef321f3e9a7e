"""The bill of materials inside a wheel: its ancestor, and every patch with its text (CycloneDX 1.6, PEP 770)."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from packaging.utils import canonicalize_name
from packaging.version import Version

from downstream.patched import PatchedTree
from downstream.patches.header import Header
from downstream.patches.parse import parse

if TYPE_CHECKING:
    from cyclonedx.model.component import Component, Patch
    from cyclonedx.model.issue import IssueType
    from cyclonedx.validation.json import JsonStrictValidator
    from packageurl import PackageURL

FOLDER = "sboms"
PROPERTY = "sm120-overlay:"  # prefix of our properties: line, upstream, revision, overlay
TOOL = "sm120-overlay"
_SPACE = UUID("7f0c1d4e-5b7a-5d0f-9d2e-3f6f1b1f5120")  # of our serial numbers
_URL = re.compile(r"https?://[^\s,;<>]+")
_FORGE = re.compile(r"([^/]+)/(?:issues|pull|pulls|-/merge_requests|commit)/([0-9a-f]+)")


def file_name(package: str) -> str:
    """Return where in the dist-info folder the SBOM of *package* stands."""
    return f"{FOLDER}/{canonicalize_name(package)}.cdx.json"


def sbom(tree: PatchedTree, upstream_file: str) -> bytes:
    """Return the SBOM of a wheel made from *upstream_file* with *tree*'s series and overlay.

    Same inputs, same bytes: its serial number is derived from them, and it bears no time.
    """
    from cyclonedx.model import Property
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType, Pedigree
    from cyclonedx.model.tool import ToolRepository
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion

    pin = tree.pin
    properties = [("line", pin.line), ("upstream", pin.upstream.name), ("revision", str(pin.revision))]
    properties += [
        ("overlay", f"{path} sha256:{sha256(content).hexdigest()}") for path, content in tree.overlay.items()
    ]
    component = Component(
        type=ComponentType.LIBRARY,
        name=pin.upstream.package,
        version=str(pin.local_version),
        purl=_purl(pin.upstream.package, pin.local_version),
        bom_ref=f"{pin.upstream.package}@{pin.local_version}",
        pedigree=Pedigree(
            ancestors=[_ancestor(tree, upstream_file)],
            patches=[_patch(tree, entry, content) for entry, content in tree.patches.items()],
            notes=f"repacked from {upstream_file}; the patches in the order of the series",
        ),
        properties=[Property(name=PROPERTY + name, value=value) for name, value in properties],
    )
    tool = Component(type=ComponentType.APPLICATION, name=TOOL)
    bom = Bom(metadata=BomMetaData(component=component, tools=ToolRepository(components=[tool])))
    document = json.loads(make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string())
    return _sealed(document, tree)


def pedigree_of(raw: bytes) -> tuple[tuple[str, ...], tuple[tuple[str, bytes], ...]]:
    """Return the ancestors' sha256 and, in order, (patch file's path, its bytes) from an SBOM of ours.

    Raises ValueError where it has not the shape of one.
    """
    try:
        component = json.loads(raw)["metadata"]["component"]
        ancestors = component["pedigree"]["ancestors"]
        hashes = [
            entry["content"] for ancestor in ancestors for entry in ancestor["hashes"] if entry["alg"] == "SHA-256"
        ]
        patches = [
            (patch["diff"]["url"], _attached(patch["diff"]["text"]))
            for patch in component["pedigree"].get("patches", [])
        ]
    except (KeyError, TypeError) as exc:
        raise ValueError(f"has no {exc}") from exc
    return tuple(hashes), tuple(patches)


def component_of(raw: bytes) -> object:
    """Return what an SBOM of ours says of the wheel itself: name, version, pedigree, overlay."""
    return json.loads(raw)["metadata"]["component"]


def schema_errors(raw: bytes) -> list[str]:
    """Return what CycloneDX's strict JSON schema says against *raw*."""
    try:
        error = _validator().validate_str(raw.decode())
    except ValueError as exc:  # no UTF-8, or no JSON
        return [str(exc)]
    return [str(error).splitlines()[0]] if error is not None else []


@cache
def _validator() -> JsonStrictValidator:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6)  # reads its schema once, which costs more than to use it


def patch_path(tree: PatchedTree, entry: str) -> str:
    """Return the patch file's path in our repository, which is how the SBOM names it."""
    return f"patches/{tree.pin.line}/{tree.pin.upstream.name}/{entry}"


def _ancestor(tree: PatchedTree, upstream_file: str) -> Component:
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType

    pin = tree.pin
    return Component(
        type=ComponentType.LIBRARY,
        name=pin.upstream.package,
        version=str(pin.version),
        purl=_purl(pin.upstream.package, pin.version, file_name=upstream_file),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=pin.sha256[upstream_file])],
    )


def _patch(tree: PatchedTree, entry: str, content: bytes) -> Patch:
    from cyclonedx.model import AttachedText, Encoding, XsUri
    from cyclonedx.model.component import Diff, Patch, PatchClassification

    try:
        text = AttachedText(content=content.decode(), content_type="text/x-patch")
    except UnicodeDecodeError:
        encoded = b64encode(content).decode()
        text = AttachedText(content=encoded, content_type="text/x-patch", encoding=Encoding.BASE_64)
    header = Header.parse(parse(content, name=entry).header)
    origin = (header.origin or "").lower()
    kind = PatchClassification.UNOFFICIAL
    if origin.startswith("upstream"):
        kind = PatchClassification.CHERRY_PICK
    elif origin.startswith("backport"):
        kind = PatchClassification.BACKPORT
    return Patch(type=kind, diff=Diff(text=text, url=XsUri(patch_path(tree, entry))), resolves=_issues(header))


def _issues(header: Header) -> Iterator[IssueType]:
    """Yield what the DEP-3 fields say is resolved or discussed, each URL once."""
    from cyclonedx.model import XsUri
    from cyclonedx.model.issue import IssueClassification, IssueType, IssueTypeSource

    urls: dict[str, None] = {}
    for field in header.fields:
        name = field.name.lower()
        if name in ("bug", "origin", "forwarded", "applied-upstream") or name.startswith("bug-"):
            urls.update(dict.fromkeys(url.rstrip(".)") for url in _URL.findall(field.value)))
    for url in urls:
        found = _FORGE.search(url)
        yield IssueType(
            type=IssueClassification.DEFECT,
            id=f"{found[1]}#{found[2]}" if found else url,
            name=header.subject,
            source=IssueTypeSource(url=XsUri(url)),
        )


def _sealed(document: dict[str, Any], tree: PatchedTree) -> bytes:
    """Return the document without its clock, patches in series order, and a serial number made from the rest."""
    del document["metadata"]["timestamp"]
    del document["serialNumber"]
    pedigree = document["metadata"]["component"]["pedigree"]
    if tree.patches:
        order = {patch_path(tree, entry): at for at, entry in enumerate(tree.patches)}
        pedigree["patches"].sort(key=lambda patch: order[patch["diff"]["url"]])
    body = json.dumps(document, sort_keys=True, ensure_ascii=False)
    document["serialNumber"] = uuid5(_SPACE, body).urn
    return (json.dumps(document, sort_keys=True, ensure_ascii=False, indent=1) + "\n").encode()


def _purl(package: str, version: Version, **qualifiers: str) -> PackageURL:
    from packageurl import PackageURL

    return PackageURL(type="pypi", name=canonicalize_name(package), version=str(version), qualifiers=qualifiers or None)


def _attached(text: dict[str, str]) -> bytes:
    from base64 import b64decode

    return b64decode(text["content"]) if text.get("encoding") == "base64" else text["content"].encode()
