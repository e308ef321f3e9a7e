"""A wheel of ours against the published one: what differs, and whether series or overlay say so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import Version

from downstream.errors import WheelError
from downstream.patched import PatchedTree
from downstream.pins import Line
from downstream.wheels import sbom
from downstream.wheels.archive import Archive
from downstream.wheels.changes import siblings_of, version_member
from downstream.wheels.metadata import requirements, split
from downstream.wheels.notice import NAME as NOTICE
from downstream.wheels.notice import notice
from downstream.wheels.rules import Rule, Violation
from downstream.wheels.runtime import RuntimeVersion, edit_runtime_version, read_runtime_version

_REWRITTEN = ("METADATA", "WHEEL", "RECORD")
_GENERATOR = re.compile(r"sm120-overlay-repack \d+ from (.*)")  # any number: what an older writer made stays good


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Our wheel and upstream's, the names of their dist-info folders, and the tree that explains the difference."""

    ours: Archive
    theirs: Archive
    our_dist_info: str
    their_dist_info: str
    tree: PatchedTree
    line: Line


def compare(pair: Pair) -> Iterator[Violation]:
    """Yield every difference between the two wheels that series, overlay and local version do not explain."""
    yield from _members(pair)
    yield from _runtime_version(pair)
    yield from _metadata(pair)
    yield from _wheel_file(pair)
    yield from _bill(pair)
    yield from _notice(pair)


def explained(pair: Pair) -> Mapping[str, bytes | None]:
    """Return the members that series and overlay set (None: remove), the version file as they leave it."""
    layout = pair.tree.pin.upstream.layout
    members = {layout.to_wheel(path): content for path, content in pair.tree.changed.items()}
    return {member: content for member, content in members.items() if member is not None}


def _modes(pair: Pair) -> Mapping[str, int]:
    layout = pair.tree.pin.upstream.layout
    members = {layout.to_wheel(path): mode for path, mode in pair.tree.modes.items()}
    return {member: mode for member, mode in members.items() if member is not None}


def _members(pair: Pair) -> Iterator[Violation]:
    ours, theirs = dict(pair.ours.entries), pair.theirs.entries
    explanation = explained(pair)
    modes = _modes(pair)
    added = {
        f"{pair.our_dist_info}/licenses/{NOTICE}",
        f"{pair.our_dist_info}/{sbom.file_name(pair.tree.pin.upstream.package)}",
    }
    special = {version_member(pair.tree.pin), *(f"{pair.our_dist_info}/{name}" for name in _REWRITTEN), *added}
    expected: set[str] = set(added)
    for name, entry in theirs.items():
        ours_name = _renamed(name, pair)
        if name.removeprefix(f"{pair.their_dist_info}/") in ("RECORD.jws", "RECORD.p7s"):
            continue
        expected.add(ours_name)
        if name in explanation and explanation[name] is None:
            expected.discard(ours_name)
        elif ours_name not in ours:
            yield Violation(member=ours_name, rule=Rule.MISSING, detail="upstream has it, and no patch removes it")
        elif ours_name not in special and name not in explanation and not _equal(pair, ours_name, name):
            yield Violation(member=ours_name, rule=Rule.CHANGED, detail="differs from upstream's, no patch touches it")
        if ours_name in ours and ours[ours_name].mode != (modes[name] & 0o777 if name in modes else entry.mode):
            yield Violation(member=ours_name, rule=Rule.MODE, detail=f"is {ours[ours_name].mode:o}")
    for name, content in explanation.items():
        if content is None:
            continue
        expected.add(name)
        if name not in special and pair.ours.read(name) != content:
            yield Violation(member=name, rule=Rule.NOT_CHANGED, detail="is not what series and overlay make of it")
    for name in sorted(set(ours) - expected):
        yield Violation(member=name, rule=Rule.EXTRA, detail="neither upstream nor series nor overlay has it")


def _renamed(name: str, pair: Pair) -> str:
    top, slash, rest = name.partition("/")
    old, new = pair.their_dist_info.removesuffix(".dist-info"), pair.our_dist_info.removesuffix(".dist-info")
    for suffix in (".dist-info", ".data"):
        if top == old + suffix:
            return new + suffix + slash + rest
    return name


def _equal(pair: Pair, ours_name: str, theirs_name: str) -> bool:
    ours, theirs = pair.ours.entries[ours_name], pair.theirs.entries[theirs_name]
    if ours.method == theirs.method and pair.ours.raw(ours) == pair.theirs.raw(theirs):
        return True
    return pair.ours.read(ours_name) == pair.theirs.read(theirs_name)


def _runtime_version(pair: Pair) -> Iterator[Violation]:
    """The version file says our version, and is to the byte what the series leaves but for that."""
    member, pin = version_member(pair.tree.pin), pair.tree.pin
    source = pair.ours.read(member)
    left = explained(pair).get(member, pair.theirs.read(member))
    if source is None or left is None:
        return  # reported as missing
    try:
        found = read_runtime_version(source, place=member)
        before = read_runtime_version(left, place=member)
    except WheelError as exc:
        yield Violation(member=member, rule=Rule.VERSION, detail=exc.problem)
        return
    parts = None if before.parts is None else (*before.parts, str(pin.local_version.local))
    if found != RuntimeVersion(str(pin.local_version), parts):
        yield Violation(member=member, rule=Rule.VERSION, detail=f"says {found}, the wheel is {pin.local_version}")
    elif source != edit_runtime_version(left, place=member, local=pin.local_version):
        yield Violation(member=member, rule=Rule.CHANGED, detail="differs in more than its version")


def _metadata(pair: Pair) -> Iterator[Violation]:
    member = f"{pair.our_dist_info}/METADATA"
    ours, theirs = pair.ours.read(member), pair.theirs.read(f"{pair.their_dist_info}/METADATA")
    if ours is None or theirs is None:
        return
    siblings = siblings_of(pair.tree.pin, pair.line)
    (our_headers, our_body), (their_headers, their_body) = split(ours), split(theirs)
    noted = [h for h in our_headers if h.name == "license-file" and h.value == NOTICE]
    ours_rest = [h.raw for h in our_headers if h.name not in ("version", "requires-dist") and h not in noted]
    theirs_rest = [h.raw for h in their_headers if h.name not in ("version", "requires-dist")]
    if len(noted) > 1 or (ours_rest, our_body) != (theirs_rest, their_body):
        yield Violation(member=member, rule=Rule.METADATA, detail="differs in more than Version and requirements")
    new, old = requirements(ours, member), requirements(theirs, member)
    if len(new) != len(old):
        yield Violation(
            member=member, rule=Rule.METADATA, detail=f"has {len(new)} requirements, upstream has {len(old)}"
        )
        return
    for ours_one, theirs_one in zip(new, old, strict=True):
        sibling = siblings.get(canonicalize_name(theirs_one.name))
        if sibling is None:
            if str(ours_one) != str(theirs_one):
                yield Violation(member=member, rule=Rule.METADATA, detail=f"requires {ours_one}, upstream {theirs_one}")
        elif str(ours_one.specifier) != f"=={sibling.local}" or _shape(ours_one) != _shape(theirs_one):
            detail = f"requires {ours_one}, must be {theirs_one.name}=={sibling.local}, extras and marker kept"
            yield Violation(member=member, rule=Rule.REQUIREMENT, detail=detail)


def _shape(requirement: object) -> tuple[object, ...]:
    return tuple(getattr(requirement, name) for name in ("name", "extras", "marker", "url"))


def _wheel_file(pair: Pair) -> Iterator[Violation]:
    member = f"{pair.our_dist_info}/WHEEL"
    ours, our_body = split(pair.ours.read(member) or b"")
    theirs, their_body = split(pair.theirs.read(f"{pair.their_dist_info}/WHEEL") or b"")
    ours_rest = [h.raw for h in ours if h.name != "generator"]
    if (ours_rest, our_body) != ([h.raw for h in theirs if h.name != "generator"], their_body):
        yield Violation(member=member, rule=Rule.TAGS, detail="differs from upstream's in more than its generator")
    said = [_GENERATOR.fullmatch(h.value) for h in ours if h.name == "generator"]
    if [found and found[1] for found in said] != [h.value for h in theirs if h.name == "generator"]:
        yield Violation(member=member, rule=Rule.METADATA, detail="its generator is not ours from upstream's")


def _bill(pair: Pair) -> Iterator[Violation]:
    pin = pair.tree.pin
    member = f"{pair.our_dist_info}/{sbom.file_name(pin.upstream.package)}"
    raw = pair.ours.read(member)
    if raw is None:
        return  # reported as missing
    try:
        ancestors, patches = sbom.pedigree_of(raw)
    except ValueError as exc:
        yield Violation(member=member, rule=Rule.SBOM, detail=str(exc))
        return
    if ancestors != (pin.sha256[pair.theirs.name],):
        yield Violation(member=member, rule=Rule.SBOM, detail=f"its ancestor is not {pair.theirs.name}")
    if patches != tuple((sbom.patch_path(pair.tree, entry), text) for entry, text in pair.tree.patches.items()):
        yield Violation(member=member, rule=Rule.SBOM, detail="its patches are not those of the series")
    if sbom.component_of(raw) != sbom.component_of(sbom.sbom(pair.tree, pair.theirs.name)):
        yield Violation(
            member=member, rule=Rule.SBOM, detail="does not say of the package what pin, series and overlay do"
        )


def _notice(pair: Pair) -> Iterator[Violation]:
    member = f"{pair.our_dist_info}/licenses/{NOTICE}"
    text = pair.ours.read(member) or b""
    named = {line.strip() for line in text.decode("utf-8", "surrogateescape").splitlines()}
    touched: dict[str, bytes | None] = {**dict.fromkeys(_modes(pair), b""), **explained(pair)}
    touched[version_member(pair.tree.pin)] = b""
    for name in sorted(touched.keys() - named):
        yield Violation(member=member, rule=Rule.NOTICE, detail=f"does not name {name}")
    if text != notice(pair.tree, pair.theirs.name, touched, frozenset(pair.theirs.entries)):
        yield Violation(member=member, rule=Rule.NOTICE, detail="is not the one that pin, series and overlay make")
    headers = split(pair.ours.read(f"{pair.our_dist_info}/METADATA") or b"")[0]
    dated = next((Version(h.value) for h in headers if h.name == "metadata-version"), Version("0"))
    listed = any(h.name == "license-file" and h.value == NOTICE for h in headers)
    if listed != (dated >= Version("2.4")):
        yield Violation(
            member=f"{pair.our_dist_info}/METADATA",
            rule=Rule.NOTICE,
            detail=f"License-File {NOTICE} belongs to 2.4 and later",
        )
