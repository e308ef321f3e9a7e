from __future__ import annotations

import hashlib
import struct
import zipfile
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from downstream.patched import PatchedTree
from downstream.pins import Line, Pin
from downstream.wheels.archive import CENTRAL, END
from downstream.wheels.gate import GateReport, verify
from downstream.wheels.repack import repack
from downstream.wheels.rules import Rule
from downstream.wheels.writer import EPOCH

INFO = "attend-1.0+sm120.1.dist-info"
METADATA, WHEEL, RECORD = f"{INFO}/METADATA", f"{INFO}/WHEEL", f"{INFO}/RECORD"
SBOM, NOTICE = f"{INFO}/sboms/attend.cdx.json", f"{INFO}/licenses/NOTICE.sm120-overlay"
GATE, VERSION = "attend/gate.py", "attend/_version.py"


class House:
    """A built wheel, the release it came from, and a way to spoil it."""

    def __init__(self, upstream: Path, tree: PatchedTree, line: Line, folder: Path) -> None:
        self.upstream, self.tree, self.line = upstream, tree, line
        self.wheel = repack(upstream, tree, folder, line=line, epoch=EPOCH)

    def verify(self, **changed: Any) -> GateReport:
        return verify(self.wheel, self.upstream, changed.get("tree", self.tree), line=changed.get("line", self.line))

    def spoil(
        self, content: Mapping[str, bytes | None], *, keep_record: bool = False, modes: Mapping[str, int] | None = None
    ) -> None:
        """Rewrite the wheel with *content* (None: leave out), RECORD made to fit unless *keep_record*."""
        with zipfile.ZipFile(self.wheel) as archive:
            members = {entry.filename: archive.read(entry) for entry in archive.infolist()}
            usual = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        record = members.pop(RECORD)
        members |= {name: text for name, text in content.items() if text is not None}
        members = {name: text for name, text in members.items() if content.get(name, b"") is not None}
        if RECORD in content or keep_record:
            record = members.pop(RECORD, record)
        else:
            record = "".join(f'"{name}",{digest(text)},{len(text)}\n' for name, text in members.items()).encode()
            record += f"{RECORD},,\n".encode()
        with zipfile.ZipFile(self.wheel, "w") as archive:
            for name, text in [*members.items(), (RECORD, record)]:
                entry = zipfile.ZipInfo(name)
                entry.external_attr = (modes or {}).get(name, usual.get(name, 0o100644)) << 16
                archive.writestr(entry, text)


def digest(content: bytes) -> str:
    return "sha256=" + urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@pytest.fixture
def house(
    published: Callable[..., Any],
    line_of: Callable[..., Line],
    patched: Callable[..., PatchedTree],
    tmp_path: Path,
) -> House:
    base = published()
    needs = base.metadata.replace(b"Requires-Dist: click", b"Requires-Dist: click\nRequires-Dist: rest[x]==2.0")
    upstream = published(metadata=needs).write()
    line = line_of(upstream)
    own = line.pins["attend"]
    rest = replace(own, upstream=replace(own.upstream, name="rest", package="rest"), version=Version("2.0"))
    line = Line(name="stable", pins={"attend": own, "rest": rest})
    tree = patched(line, upstream, overlay={"attend/sm120.py": b"ours = True\n"})
    return House(upstream, tree, line, tmp_path / "out")


def read(house: House, member: str) -> bytes:
    with zipfile.ZipFile(house.wheel) as archive:
        return archive.read(member)


def swap(house: House, member: str, old: bytes, new: bytes) -> dict[str, bytes | None]:
    content = read(house, member)
    assert old in content
    return {member: content.replace(old, new)}


def test_a_wheel_as_built_passes(house: House) -> None:
    report = house.verify()
    assert report.violations == ()
    assert report.passed
    house.spoil({})
    assert house.verify().passed  # so what fails below fails for its own reason


SHELL = digest(b"#!/bin/sh\n")

SPOILED: dict[str, tuple[Callable[[House], Mapping[str, bytes | None]], str, Rule]] = {
    "a file no patch touches": (lambda h: {"attend/__init__.py": b"evil\n"}, "attend/__init__.py", Rule.CHANGED),
    "a patched file left stock": (lambda h: {GATE: b"majors = [9, 10]\n"}, GATE, Rule.NOT_CHANGED),
    "an overlay file changed": (lambda h: {"attend/sm120.py": b"ours = 0\n"}, "attend/sm120.py", Rule.NOT_CHANGED),
    "a file lost": (lambda h: {"attend/tool.sh": None}, "attend/tool.sh", Rule.MISSING),
    "a patched file lost": (lambda h: {GATE: None}, GATE, Rule.MISSING),
    "an overlay file lost": (lambda h: {"attend/sm120.py": None}, "attend/sm120.py", Rule.NOT_CHANGED),
    "a file more": (lambda h: {"attend/extra.py": b""}, "attend/extra.py", Rule.EXTRA),
    "a pth file more": (lambda h: {"attend.pth": b"import os\n"}, "attend.pth", Rule.EXTRA),
    "native code more": (lambda h: {"attend/_C.so": b"\x7fELF"}, "attend/_C.so", Rule.NATIVE_IN_PURE),
    "a path that leaves": (lambda h: {"../x.py": b""}, "../x.py", Rule.PARENT_PATH),
    "a case clash": (lambda h: {"attend/Gate.py": b""}, "attend/Gate.py", Rule.CASE_CLASH),
    "a signature": (lambda h: {f"{INFO}/RECORD.jws": b"{}"}, f"{INFO}/RECORD.jws", Rule.SIGNATURE),
    "runtime version stock": (lambda h: swap(h, VERSION, b"1.0+sm120.1", b"1.0"), VERSION, Rule.VERSION),
    "runtime version of another build": (lambda h: swap(h, VERSION, b"sm120.1", b"sm120.10"), VERSION, Rule.VERSION),
    "code behind the version": (
        lambda h: swap(h, VERSION, b'"1.0+sm120.1"', b'"1.0+sm120.1"; import evil'), VERSION, Rule.CHANGED),
    "another line that says version": (lambda h: swap(h, VERSION, b'"abc"', b'"abd"'), VERSION, Rule.CHANGED),
    "version file changed elsewhere": (lambda h: swap(h, VERSION, b"Build", b"Evil"), VERSION, Rule.CHANGED),
    "METADATA version stock": (lambda h: swap(h, METADATA, b"1.0+sm120.1", b"1.0"), METADATA, Rule.VERSION),
    "METADATA of another package": (lambda h: swap(h, METADATA, b"Name: attend", b"Name: b"), METADATA, Rule.METADATA),
    "METADATA that is none": (lambda h: swap(h, METADATA, b"Name: attend\n", b""), METADATA, Rule.METADATA),
    "METADATA folded": (lambda h: swap(h, METADATA, b" an email", b"\n  an email"), METADATA, Rule.METADATA),
    "METADATA body changed": (lambda h: swap(h, METADATA, b"# attend", b"# other"), METADATA, Rule.METADATA),
    "another requirement": (lambda h: swap(h, METADATA, b": click", b": clack"), METADATA, Rule.METADATA),
    "a requirement lost": (lambda h: swap(h, METADATA, b"Requires-Dist: click\n", b""), METADATA, Rule.METADATA),
    "sibling stock": (lambda h: swap(h, METADATA, b"==2.0+sm120.1", b"==2.0"), METADATA, Rule.REQUIREMENT),
    "sibling of other build": (lambda h: swap(h, METADATA, b"2.0+sm120.1", b"2.0+sm120.9"), METADATA, Rule.REQUIREMENT),
    "sibling without its extra": (lambda h: swap(h, METADATA, b"rest[x]", b"rest"), METADATA, Rule.REQUIREMENT),
    "no licence file header": (lambda h: swap(h, METADATA, b"License-File: NOT", b"X: NOT"), METADATA, Rule.NOTICE),
    "licence file header twice": (
        lambda h: swap(h, METADATA, b"License-File: NOT", b"License-File: NOTICE.sm120-overlay\nLicense-File: NOT"),
        METADATA, Rule.METADATA),
    "another header that names the notice": (
        lambda h: swap(h, METADATA, b"Dynamic", b"Home-page: NOTICE.sm120-overlay\nDynamic"), METADATA, Rule.METADATA),
    "a notice that says more": (lambda h: {NOTICE: read(h, NOTICE) + b"Not free.\n"}, NOTICE, Rule.NOTICE),
    "a notice that is silent": (lambda h: swap(h, NOTICE, b"  attend/gate.py\n", b""), NOTICE, Rule.NOTICE),
    "no notice": (lambda h: {NOTICE: None}, NOTICE, Rule.NOTICE),
    "WHEEL tags": (lambda h: swap(h, WHEEL, b"py3-none-any", b"py2-none-any"), WHEEL, Rule.TAGS),
    "WHEEL purelib": (lambda h: swap(h, WHEEL, b"Purelib: true", b"Purelib: false"), WHEEL, Rule.TAGS),
    "WHEEL generator": (lambda h: swap(h, WHEEL, b"sm120-overlay-repack 1 from ", b""), WHEEL, Rule.METADATA),
    "WHEEL without generator": (
        lambda h: {WHEEL: b"".join(line for line in read(h, WHEEL).splitlines(keepends=True) if b"Gen" not in line)},
        WHEEL, Rule.METADATA),
    "WHEEL with a body": (lambda h: {WHEEL: read(h, WHEEL) + b"more\n"}, WHEEL, Rule.TAGS),
    "no WHEEL": (lambda h: {WHEEL: None}, WHEEL, Rule.DIST_INFO),
    "no SBOM": (lambda h: {SBOM: None}, SBOM, Rule.SBOM),
    "SBOM that is none": (lambda h: swap(h, SBOM, b'"specVersion"', b'"spec"'), SBOM, Rule.SBOM),
    "SBOM with another diff": (lambda h: swap(h, SBOM, b"[9, 10, 12]", b"[9, 10]"), SBOM, Rule.SBOM),
    "SBOM of another build": (
        lambda h: swap(h, SBOM, b'"version": "1.0+sm120.1"', b'"version": "1.0+sm120.2"'), SBOM, Rule.SBOM),
    "SBOM of another package": (lambda h: swap(h, SBOM, b"pypi/attend@", b"pypi/other@"), SBOM, Rule.SBOM),
    "SBOM with another overlay": (lambda h: swap(h, SBOM, b"sm120.py sha256", b"sm121.py sha256"), SBOM, Rule.SBOM),
    "SBOM of another ancestor": (
        lambda h: swap(h, SBOM, h.tree.pin.sha256[h.upstream.name].encode(), b"0" * 64), SBOM, Rule.SBOM),
    "RECORD hash": (lambda h: swap(h, RECORD, SHELL.encode(), digest(b"").encode()), "attend/tool.sh", Rule.RECORD),
    "RECORD row lost": (
        lambda h: swap(h, RECORD, f"attend/tool.sh,{SHELL},10\n".encode(), b""), "attend/tool.sh", Rule.RECORD),
    "RECORD row twice": (
        lambda h: {RECORD: read(h, RECORD) + f"attend/tool.sh,{SHELL},10\n".encode()}, "attend/tool.sh", Rule.RECORD),
    "RECORD row for nothing": (lambda h: {RECORD: b"attend/g.py,,\n" + read(h, RECORD)}, "attend/g.py", Rule.RECORD),
    "RECORD hexadecimal": (
        lambda h: swap(h, RECORD, SHELL.encode(), b"sha256=" + b"ab" * 32), "attend/tool.sh", Rule.RECORD),
    "RECORD that is no text": (lambda h: {RECORD: b"\xff\xfe"}, RECORD, Rule.RECORD),
}  # fmt: skip


@pytest.mark.parametrize("case", SPOILED)
def test_what_was_spoiled_is_named_with_its_rule(house: House, case: str) -> None:
    spoil, member, rule = SPOILED[case]
    house.spoil(spoil(house))
    report = house.verify()
    assert (member, rule) in [(violation.member, violation.rule) for violation in report.violations]
    assert not report.passed


@pytest.mark.parametrize(
    ("member", "mode", "rule"),
    [
        ("attend/tool.sh", 0o100644, Rule.MODE),  # the exec bit is lost
        (GATE, 0o100755, Rule.MODE),
        (GATE, 0o100664, Rule.MODE),  # the builder's umask
        (GATE, 0o120777, Rule.SYMLINK),
    ],
)
def test_modes_are_held_against_upstreams(house: House, member: str, mode: int, rule: Rule) -> None:
    house.spoil({}, modes={member: mode})
    assert (member, rule) in [(violation.member, violation.rule) for violation in house.verify().violations]


def test_a_wheel_that_was_only_renamed_is_refused(house: House) -> None:
    stock = house.wheel
    stock.write_bytes(house.upstream.read_bytes())
    rules = {violation.rule for violation in house.verify().violations}
    assert Rule.DIST_INFO in rules


def test_a_name_that_lost_its_suffix_is_refused(house: House) -> None:
    house.wheel = house.wheel.rename(house.wheel.with_name("attend-1.0-py3-none-any.whl"))
    violations = house.verify().violations
    assert {Rule.DIST_INFO, Rule.FILE_NAME} <= {violation.rule for violation in violations}


@pytest.mark.parametrize("name", ["attend.whl", "attend-1.0+sm120.1-any.whl"])
def test_a_file_name_that_is_none_is_refused(house: House, name: str) -> None:
    house.wheel = house.wheel.rename(house.wheel.with_name(name))
    assert [violation.rule for violation in house.verify().violations] == [Rule.FILE_NAME]


def test_the_next_revisions_wheel_is_not_this_ones(house: House) -> None:
    pin: Pin = replace(house.tree.pin, revision=2)
    line = Line(name="stable", pins=dict(house.line.pins) | {"attend": pin})
    report = house.verify(tree=replace(house.tree, pin=pin), line=line)
    assert Rule.FILE_NAME in {violation.rule for violation in report.violations}


def test_another_upstream_file_is_refused(house: House) -> None:
    house.upstream.write_bytes(house.upstream.read_bytes() + b"\0")
    assert [violation.rule for violation in house.verify().violations] == [Rule.OTHER_BASE]


def test_times_that_differ_are_refused(house: House) -> None:
    with zipfile.ZipFile(house.wheel) as archive:
        members = {entry.filename: (entry, archive.read(entry)) for entry in archive.infolist()}
    with zipfile.ZipFile(house.wheel, "w") as archive:
        for number, (entry, content) in enumerate(members.values()):
            entry.date_time = (2026, 1, 1 + number % 2, 0, 0, 0)
            archive.writestr(entry, content)
    assert [violation.rule for violation in house.verify().violations] == [Rule.DETERMINISM]


def test_members_out_of_order_are_refused(house: House) -> None:
    with zipfile.ZipFile(house.wheel) as archive:
        members = [(entry, archive.read(entry)) for entry in archive.infolist()]
    with zipfile.ZipFile(house.wheel, "w") as archive:
        for entry, content in [members[1], members[0], *members[2:]]:
            archive.writestr(entry, content)
    (violation,) = house.verify().violations
    assert (violation.member, violation.rule) == (members[1][0].filename, Rule.DETERMINISM)


def in_front(archive: bytearray) -> None:
    archive[:0] = b"#!/bin/sh\n"


def at_the_end(archive: bytearray) -> None:
    archive += b"more"


def as_a_comment(archive: bytearray) -> None:
    archive[-2:] = len(b"more").to_bytes(2, "little") + b"more"


def before_the_directory(archive: bytearray) -> None:
    at = len(archive) - END.size + 16
    begin = int.from_bytes(archive[at : at + 4], "little")
    archive[at : at + 4] = (begin + 4).to_bytes(4, "little")
    archive[begin:begin] = b"more"


def as_another_name(archive: bytearray) -> None:
    """Give the first member Info-ZIP's Unicode path: some readers believe the name, some the extra field."""
    at = len(archive) - END.size + 12
    size, begin = struct.unpack_from("<2L", archive, at)
    length = int.from_bytes(archive[begin + 28 : begin + 30], "little")
    name = begin + CENTRAL.size
    field = struct.pack("<BL", 1, zlib.crc32(archive[name : name + length])) + b"evil.py"
    field = struct.pack("<2H", 0x7075, len(field)) + field
    archive[at : at + 4] = (size + len(field)).to_bytes(4, "little")
    archive[name + length : name + length] = field
    archive[begin + 30 : begin + 32] = len(field).to_bytes(2, "little")


@pytest.mark.parametrize("hide", [in_front, at_the_end, as_a_comment, before_the_directory, as_another_name])
def test_bytes_that_are_no_members_are_refused(house: House, hide: Callable[[bytearray], None]) -> None:
    archive = bytearray(house.wheel.read_bytes())
    hide(archive)
    house.wheel.write_bytes(archive)
    assert {violation.rule for violation in house.verify().violations} & {Rule.NO_MEMBER, Rule.NOT_A_ZIP}


@pytest.mark.parametrize("cut", [0, 10, 1000])
def test_a_damaged_file_is_an_answer_not_a_crash(house: House, cut: int) -> None:
    house.wheel.write_bytes(house.wheel.read_bytes()[:cut])
    assert not house.verify().passed


def test_every_byte_flipped_is_found(house: House) -> None:
    """Some bits mean nothing (a zip's version fields); whatever an installer would read does."""
    whole = house.wheel.read_bytes()
    begin = whole.index(b"majors = [9, 10, 12]")
    for at in range(begin, begin + 21):
        house.wheel.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert not house.verify().passed


@given(at=st.integers(0, 10_000), mask=st.integers(1, 255))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
def test_a_flipped_byte_is_an_answer_never_a_crash(house: House, at: int, mask: int) -> None:
    whole = house.wheel.read_bytes()
    at %= len(whole)
    try:
        house.wheel.write_bytes(whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])
        for violation in house.verify().violations:
            assert violation.rule in Rule
            assert violation.detail
    finally:
        house.wheel.write_bytes(whole)
