from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

import pytest

from downstream.errors import WheelError
from downstream.wheels.archive import open_archive
from downstream.wheels.rules import RefusedError, Rule
from downstream.wheels.writer import EPOCH, ArchiveWriter, timestamp, whole


def write_zip(path: Path, *members: tuple[str, int], content: bytes = b"x") -> Path:
    """Zip members whatever they are called: (name, mode)."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, mode in members:
            entry = zipfile.ZipInfo("placeholder")
            entry.filename = name  # the constructor would mend it
            entry.external_attr = mode << 16
            archive.writestr(entry, content)
    return path


REGULAR = 0o100644


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("members", "rule", "named"),
    [
        ([("a/x.py", REGULAR), ("a/x.py", REGULAR)], Rule.DUPLICATE, "a/x.py"),
        ([("a/Gate.py", REGULAR), ("a/gate.py", REGULAR)], Rule.CASE_CLASH, "a/gate.py"),
        ([("a/\u00c9.py", REGULAR), ("a/e\u0301.py", REGULAR)], Rule.CASE_CLASH, "a/e\u0301.py"),
        ([("a", REGULAR), ("a/x.py", REGULAR)], Rule.FILE_AND_FOLDER, "a"),
        ([("../etc/x", REGULAR)], Rule.PARENT_PATH, "../etc/x"),
        ([("a/../../x", REGULAR)], Rule.PARENT_PATH, "a/../../x"),
        ([("a\\x.py", REGULAR)], Rule.BACKSLASH, "a\\x.py"),
        ([("/etc/x", REGULAR)], Rule.ABSOLUTE, "/etc/x"),
        ([("C:/x", REGULAR)], Rule.ABSOLUTE, "C:/x"),
        ([("a//x", REGULAR)], Rule.EMPTY_PART, "a//x"),
        ([("./x", REGULAR)], Rule.EMPTY_PART, "./x"),
        ([("a/\x1b[31m", REGULAR)], Rule.CONTROL_CHARACTER, "a/\x1b[31m"),
        ([("a/link", 0o120777)], Rule.SYMLINK, "a/link"),
        ([("a/pipe", 0o010644)], Rule.SPECIAL_FILE, "a/pipe"),
        ([("a/folder-as-file", 0o040755)], Rule.SPECIAL_FILE, "a/folder-as-file"),
    ],
    ids=lambda value: value.value if isinstance(value, Rule) else "",
)
def test_a_bad_member_is_refused_by_name_and_rule(
    tmp_path: Path, members: list[tuple[str, int]], rule: Rule, named: str
) -> None:
    path = write_zip(tmp_path / "w.zip", *members)
    with pytest.raises(RefusedError) as refused:
        open_archive(path)
    assert (refused.value.violations[0].member, refused.value.violations[0].rule) == (named, rule)
    assert named in str(refused.value)
    assert rule.value in str(refused.value)


def test_other_compression_and_encryption_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"x")
    with pytest.raises(RefusedError, match=r"w\.zip: a: compression-method: method 14"):
        open_archive(path)
    raw = bytearray(write_zip(path, ("a", REGULAR)).read_bytes())
    raw[raw.rindex(b"PK\1\2") + 8] |= 1
    path.write_bytes(raw)
    with pytest.raises(RefusedError, match="encrypted"):
        open_archive(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"no zip at all" * 100])
def test_what_is_no_zip_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.zip"
    path.write_bytes(content)
    with pytest.raises(WheelError, match=r"w\.zip"):
        open_archive(path)


def test_a_local_header_that_names_another_file_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "w.zip", ("good.py", REGULAR))
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"good.py", b"evil.py", 1))
    archive = open_archive(path)
    with pytest.raises(RefusedError, match=r"good\.py: header-mismatch"):
        archive.raw(archive.entries["good.py"])


def test_a_local_header_with_another_size_is_refused(tmp_path: Path) -> None:
    """An installer that streams reads local headers only, and would install something else."""
    path = write_zip(tmp_path / "w.zip", ("good.py", REGULAR), content=b"0123456789")
    raw = bytearray(path.read_bytes())
    raw[18] = raw[22] = 4  # compressed size, size
    path.write_bytes(raw)
    archive = open_archive(path)
    with pytest.raises(RefusedError, match=r"good\.py: header-mismatch"):
        archive.raw(archive.entries["good.py"])


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damaged_content_is_refused(tmp_path: Path, compression: int) -> None:
    path = tmp_path / "w.zip"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("a", b"0123456789" * 50)
    raw = bytearray(path.read_bytes())
    raw[40] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(RefusedError, match="a: content-damaged"):
        open_archive(path).read("a")


def test_a_directory_cut_short_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "w.zip", ("a", REGULAR), ("b", REGULAR))
    raw = path.read_bytes()
    first = raw.index(b"PK\1\2")
    path.write_bytes(raw[:first] + raw[raw.index(b"PK\1\2", first + 4) :])
    with pytest.raises(RefusedError, match="not-a-zip"):
        open_archive(path)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, EPOCH),
        ("0", EPOCH),  # 1970
        ("-5", EPOCH),
        ("315532800", EPOCH),
        ("1767225600", 1767225600),
        ("4354819198", 4354819198),
        ("99999999999999", 4354819198),
    ],
)
def test_source_date_epoch_is_clamped_to_what_zip_can_say(text: str | None, seconds: int) -> None:
    assert timestamp(text) == seconds
    out = io.BytesIO()
    writer = ArchiveWriter(out, epoch=timestamp(text))
    writer.store("a", b"x")
    writer.finish()
    year = zipfile.ZipFile(out).infolist()[0].date_time[0]
    assert 1980 <= year <= 2107


@pytest.mark.parametrize("text", ["", "yesterday", "1.5", "0x10"])
def test_source_date_epoch_that_is_no_number_is_an_error(text: str) -> None:
    with pytest.raises(WheelError, match=r"SOURCE_DATE_EPOCH: .* is no number"):
        timestamp(text)


@pytest.mark.parametrize("limit", [0xFFFFFFFF, 300, 40, 1])
def test_sizes_and_offsets_beyond_the_limit_go_to_zip64(tmp_path: Path, limit: int) -> None:
    """The limit is lowered so that every field of the 64-bit records is written; zipfile is the reader."""
    source = tmp_path / "source.zip"
    with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("copied", b"0123456789" * 100)
    theirs = open_archive(source)
    target = tmp_path / "target.zip"
    with whole(target) as stream:
        writer = ArchiveWriter(stream, epoch=EPOCH, zip64_from=limit)
        writer.store("first", b"1" * 50)
        writer.copy(theirs.entries["copied"], "renamed", theirs.raw(theirs.entries["copied"]))
        writer.store("last", b"3" * 500, mode=0o755)
        writer.finish()
    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["first", "renamed", "last"]
        assert archive.read("renamed") == b"0123456789" * 100
        assert archive.getinfo("last").external_attr >> 16 == 0o100755
    ours = open_archive(target)
    assert [ours.read(name) for name in ours.entries] == [b"1" * 50, b"0123456789" * 100, b"3" * 500]


def test_a_member_copied_by_its_header_is_as_one_written_anew(tmp_path: Path) -> None:
    """The writer takes over what it can of a header; that must not show."""
    source = tmp_path / "source.zip"
    with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a.py", "long/name.py", "\u00e9.py"):
            archive.writestr(name, name * 50)
        archive.writestr("stored", b"x", zipfile.ZIP_STORED)
    theirs = open_archive(source)
    written = []
    for entries in (theirs.entries.values(), [entry._replace(head=b"") for entry in theirs.entries.values()]):
        out = io.BytesIO()
        writer = ArchiveWriter(out, epoch=1767225600)
        for entry in entries:
            writer.copy(entry, entry.name, theirs.raw(entry))
            writer.copy(entry, f"renamed/{entry.name}", theirs.raw(entry))
        writer.finish()
        written.append(out.getvalue())
    assert written[0] == written[1]
    assert zipfile.ZipFile(io.BytesIO(written[0])).testzip() is None


def test_a_write_that_the_system_cuts_short_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def members(stream: BinaryIO) -> None:
        writer = ArchiveWriter(stream, epoch=EPOCH)
        for number in range(5):
            writer.store(f"{number}", bytes([number]) * 1000)
        writer.finish()

    memory = io.BytesIO()
    members(memory)
    whole_write, whole_writev = os.write, os.writev
    for most in (1, 37, 1030, 2500):
        monkeypatch.setattr(os, "writev", lambda fd, pieces, most=most: whole_write(fd, b"".join(pieces)[:most]))
        monkeypatch.setattr(os, "write", lambda fd, piece, most=most: whole_write(fd, piece[: max(most, 100)]))
        with whole(tmp_path / "w.zip") as stream:
            members(stream)
        assert (tmp_path / "w.zip").read_bytes() == memory.getvalue()
    monkeypatch.setattr(os, "writev", whole_writev)


def test_more_members_than_sixteen_bits_count(tmp_path: Path) -> None:
    out = io.BytesIO()
    writer = ArchiveWriter(out, epoch=EPOCH)
    for number in range(66_000):
        writer.store(f"{number}", b"")
    writer.finish()
    path = tmp_path / "many.zip"
    path.write_bytes(out.getvalue())
    assert len(zipfile.ZipFile(out).infolist()) == 66_000
    assert len(open_archive(path).entries) == 66_000


@pytest.mark.slow
def test_a_member_over_four_gibibytes_is_copied_as_it_is(tmp_path: Path) -> None:
    size = (4 << 30) + 11
    source = tmp_path / "source.zip"
    with zipfile.ZipFile(source, "w") as archive, archive.open("big", "w", force_zip64=True) as member:
        piece = bytes(1 << 20)
        for _ in range(4096):
            member.write(piece)
        member.write(b"eleven byte")
    theirs = open_archive(source)
    assert theirs.entries["big"].size == size
    target = tmp_path / "target.zip"
    with whole(target) as stream:
        writer = ArchiveWriter(stream, epoch=EPOCH)
        writer.copy(theirs.entries["big"], "big", theirs.raw(theirs.entries["big"]))
        writer.store("after", b"x")
        writer.finish()
    source.unlink()
    with zipfile.ZipFile(target) as archive:
        assert archive.getinfo("big").file_size == size
        assert archive.getinfo("after").header_offset > size
        assert archive.testzip() is None


def test_names_that_are_no_ascii_are_flagged_as_utf8(tmp_path: Path) -> None:
    out = io.BytesIO()
    writer = ArchiveWriter(out, epoch=EPOCH)
    writer.store("a/\u00e9.py", b"x")
    writer.finish()
    path = tmp_path / "w.zip"
    path.write_bytes(out.getvalue())
    assert zipfile.ZipFile(path).namelist() == ["a/\u00e9.py"]
    assert open_archive(path).read("a/\u00e9.py") == b"x"


def test_a_streamed_archive_is_read_without_its_data_descriptors(tmp_path: Path) -> None:
    """Written to a pipe, zipfile leaves sizes out of local headers."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.content = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, piece: object) -> int:
            taken = bytes(piece)  # type: ignore[call-overload]
            self.content += taken
            return len(taken)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"abc" * 100)
    path = tmp_path / "w.zip"
    path.write_bytes(bytes(pipe.content))
    ours = open_archive(path)
    assert ours.read("a") == b"abc" * 100
    assert zlib.decompress(ours.raw(ours.entries["a"]), -15) == b"abc" * 100


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "w.whl"
    target.write_bytes(b"old")

    def interrupted() -> None:
        with whole(target) as stream:
            stream.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in tmp_path.iterdir()] == ["w.whl"]
    assert target.read_bytes() == b"old"


FAR = 2**64 - 2  # fits its field and no address space


def zip64_end(place: int) -> bytes:
    """The end of an archive whose zip64 record is said to be at *place*."""
    return b"PK\6\7" + struct.pack("<LQL", 0, place, 1) + b"PK\5\6" + struct.pack("<4H2LH", 0, 0, 1, 1, 46, 0, 0)


def wide_member(size: int, compressed: int, offset: int) -> bytes:
    """An archive that is a directory alone: one member, its sizes and place in a zip64 field."""
    extra = struct.pack("<2H3Q", 1, 24, size, compressed, offset)
    numbers = (0, 0, 0xFFFFFFFF, 0xFFFFFFFF, 1, len(extra), 0, 0, 0, 0, 0xFFFFFFFF)
    entry = b"PK\1\2" + struct.pack("<4B4H3L5H2L", 45, 3, 45, 0, 0, 0, 0, *numbers) + b"a" + extra
    return entry + b"PK\5\6" + struct.pack("<4H2LH", 0, 0, 1, 1, len(entry), 0, 0)


@pytest.mark.parametrize(
    ("found", "content"),
    [
        ("a zip64 record beyond any address", zip64_end(FAR)),
        ("a zip64 record outside the file", zip64_end(10_000)),
        ("a member beyond any address", wide_member(1, 1, FAR)),
        ("a member that ends beyond any address", wide_member(FAR, FAR, 0)),
    ],
)
def test_what_fuzzing_found_is_refused(tmp_path: Path, found: str, content: bytes) -> None:
    path = tmp_path / "w.zip"
    path.write_bytes(content)
    with pytest.raises(RefusedError):
        open_archive(path).read("a")


def test_a_member_that_inflates_to_more_than_it_says_costs_no_more_than_a_piece(tmp_path: Path) -> None:
    path = tmp_path / "w.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(60 << 20))
    raw = path.read_bytes().replace(struct.pack("<L", 60 << 20), struct.pack("<L", 5))
    path.write_bytes(raw)
    tracemalloc.start()
    try:
        with pytest.raises(RefusedError, match="a: content-damaged"):
            open_archive(path).read("a")
        assert tracemalloc.get_traced_memory()[1] < 44 << 20
    finally:
        tracemalloc.stop()
