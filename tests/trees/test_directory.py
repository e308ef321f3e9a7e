from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downstream.errors import WheelError
from downstream.trees.central import parse
from downstream.trees.directory import Directory, extract
from downstream.trees.tree import EXECUTABLE, REGULAR, SYMLINK


def directory_of(raw: bytes) -> Directory:
    found = parse(len(raw), raw, name="x.whl")
    assert isinstance(found, Directory)
    return found


def content_of(raw: bytes, member: str) -> bytes:
    entry = directory_of(raw).get(member)
    assert entry is not None
    return extract(member, entry, raw[entry.start : entry.stop], name="x.whl")


def test_members_with_their_place_and_mode(make_zip: Callable[..., bytes]) -> None:
    modes = {"a/run": 0o100755, "a/link": 0o120777, "b": 0o100664}
    raw = make_zip({"b": b"bee", "a/run": b"#!", "a/link": b"run", "a/": b""}, modes=modes)
    found = directory_of(raw)
    assert list(found) == ["a/link", "a/run", "b"]
    assert len(found) == 3
    assert "b" in found
    assert "a/" not in found
    assert [entry.mode for name in found if (entry := found.get(name))] == [SYMLINK, EXECUTABLE, REGULAR]
    assert content_of(raw, "b") == b"bee"
    assert found.get("c") is None


def test_a_member_made_on_dos_has_a_plain_mode() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        member = zipfile.ZipInfo("a.txt")
        member.create_system = 0
        member.external_attr = 0x20
        archive.writestr(member, b"x")
    entry = directory_of(buffer.getvalue()).get("a.txt")
    assert entry is not None
    assert entry.mode == REGULAR


NAMES = st.text(st.characters(min_codepoint=33, exclude_characters="/\\:\x7f", exclude_categories=["Cs"]), min_size=3)


@given(st.dictionaries(NAMES, st.binary(max_size=2000), max_size=6))
def test_a_directory_survives_the_cache(files: dict[str, bytes]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(f"d/{name}", content)
    raw = buffer.getvalue()
    found = Directory.from_bytes(directory_of(raw).to_bytes())
    assert found is not None
    assert found.size == len(raw)
    assert list(found) == sorted(f"d/{name}" for name in files)
    assert {name: content_of(raw, f"d/{name}") for name in files} == files


@pytest.mark.parametrize("raw", [b"", b"x", b"dir0" + b"\0" * 40])
def test_another_form_in_the_cache_is_no_directory(raw: bytes) -> None:
    assert Directory.from_bytes(raw) is None


def test_the_tail_alone_tells_where_to_go_on(make_zip: Callable[..., bytes]) -> None:
    raw = make_zip({f"folder/{n}": bytes(range(n)) for n in range(50)}, comment=b"a comment")
    for length in (30, 200, 1000):
        start = parse(len(raw), raw[-length:], name="x.whl")
        assert isinstance(start, int)
        assert 0 <= start < len(raw) - length
        found = parse(len(raw), raw[start:], name="x.whl")
        assert isinstance(found, Directory)
        assert len(found) == 50


@pytest.mark.parametrize("cut", [1, 10, 22, 60, 500])
def test_a_truncated_zip_is_told(make_zip: Callable[..., bytes], cut: int) -> None:
    raw = make_zip({f"f{n}": b"x" * n for n in range(30)})[:-cut]
    with pytest.raises(WheelError) as caught:
        parse(len(raw), raw, name="x.whl")
    assert caught.value.place == "x.whl"
    assert "is no complete zip file" in caught.value.problem


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/.", "a\\b", "C:/x", "a\nb", "a\0b", "\x7f", ".."]
)
def test_an_unsafe_name_is_refused(name: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("placeholder-name-of-12"[: max(len(name), 2)], b"x")
    plain = "placeholder-name-of-12"[: max(len(name), 2)]
    raw = buffer.getvalue().replace(plain.encode(), name.encode().ljust(len(plain), b"/"))
    with pytest.raises(WheelError, match="unsafe name"):
        parse(len(raw), raw, name="x.whl")


def test_a_name_twice_is_refused(make_zip: Callable[..., bytes]) -> None:
    raw = make_zip({"one.py": b"1", "two.py": b"2"}).replace(b"two.py", b"one.py")
    with pytest.raises(WheelError, match=r"holds 'one.py' twice"):
        parse(len(raw), raw, name="x.whl")


def test_a_folder_may_be_named_twice(make_zip: Callable[..., bytes]) -> None:
    raw = make_zip({"one/": b"", "two/": b"", "one/a": b"a"}).replace(b"two/", b"one/")
    assert list(directory_of(raw)) == ["one/a"]


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_another_compression_is_refused(method: int) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("a.py", b"x")
    with pytest.raises(WheelError, match="compression method"):
        parse(len(buffer.getvalue()), buffer.getvalue(), name="x.whl")


def test_an_encrypted_member_is_refused(make_zip: Callable[..., bytes]) -> None:
    raw = bytearray(make_zip({"a.py": b"x"}))
    raw[raw.rindex(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(WheelError, match="is encrypted"):
        parse(len(raw), bytes(raw), name="x.whl")


TEXT = b"some text that deflates, some text that deflates\n" * 20


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda span: span[:10], "its header is cut"),
        (lambda span: b"PK\x05\x06" + span[4:], "there is no header where the directory says"),
        (lambda span: span.replace(b"a.py", b"b.py", 1), "its header names b'b.py'"),
        (lambda span: span[:-5], "its content is cut"),
        (lambda span: span[:50] + b"\xff\xff\xff" + span[53:], ""),
    ],
    ids=["header", "magic", "name", "content", "bytes"],
)
def test_a_damaged_member_is_told(
    make_zip: Callable[..., bytes], damage: Callable[[bytes], bytes], problem: str
) -> None:
    raw = make_zip({"a.py": TEXT})
    entry = directory_of(raw).get("a.py")
    assert entry is not None
    with pytest.raises(WheelError) as caught:
        extract("a.py", entry, damage(raw[entry.start : entry.stop]), name="x.whl")
    assert caught.value.place == "x.whl:a.py"
    assert problem in caught.value.problem


def test_a_member_that_unpacks_to_more_than_it_says_is_refused(make_zip: Callable[..., bytes]) -> None:
    raw = make_zip({"a.py": b"\0" * 3_000_000})
    entry = directory_of(raw).get("a.py")
    assert entry is not None
    lie = entry._replace(size=10, crc=zlib.crc32(b"\0" * 10))
    with pytest.raises(WheelError, match="checksum"):
        extract("a.py", lie, raw[entry.start : entry.stop], name="x.whl")


def test_a_zip_behind_other_bytes_is_read(make_zip: Callable[..., bytes], tmp_path: Path) -> None:
    raw = b"#!/bin/sh\n" + make_zip({"a.py": TEXT})
    assert content_of(raw, "a.py") == TEXT


SOUND = {"flashinfer/a.py": b"a" * 100, "flashinfer/b.cuh": bytes(range(256)), "x.dist-info/RECORD": b""}


@given(st.data())
def test_no_damage_does_more_than_be_told(drawn: st.DataObject) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in SOUND.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    raw = bytearray(buffer.getvalue())
    for _ in range(drawn.draw(st.integers(1, 4))):
        raw[drawn.draw(st.integers(0, len(raw) - 1))] = drawn.draw(st.integers(0, 255))
    cut = drawn.draw(st.integers(0, len(raw)))
    for damaged in (bytes(raw), bytes(raw[:cut]), bytes(raw[cut:])):
        with suppress(WheelError):
            found = parse(len(damaged), damaged, name="x.whl")
            if not isinstance(found, Directory):
                continue
            for name in found:
                entry = found.get(name)
                assert entry is not None
                content = extract(name, entry, damaged[entry.start : entry.stop], name="x.whl")
                assert len(content) == entry.size


def test_a_size_beyond_any_address_is_refused(make_zip: Callable[..., bytes]) -> None:
    raw = make_zip({"a": b"x" * 100})
    entry = directory_of(raw).get("a")
    assert entry is not None
    with pytest.raises(WheelError, match="checksum"):
        extract("a", entry._replace(size=2**64 - 1), raw[entry.start : entry.stop], name="x.whl")
