from __future__ import annotations

import pytest
from packaging.metadata import Metadata
from packaging.utils import canonicalize_name
from packaging.version import Version

from downstream.errors import WheelError
from downstream.wheels.metadata import Sibling, edit_metadata, edit_wheel, requirements, split

LOCAL = Version("1.0+sm120.2")
SIBLINGS = {canonicalize_name("flashinfer-python"): Sibling(upstream=Version("0.7.2"), local=Version("0.7.2+sm120.3"))}


def metadata(*headers: bytes, version: bytes = b"2.4", body: bytes = b"\ntext\n") -> bytes:
    head = [b"Metadata-Version: " + version, b"Name: attend", b"Version: 1.0", *headers]
    return b"\n".join(head) + b"\n" + body


def edited(raw: bytes) -> bytes:
    return edit_metadata(raw, place="METADATA", local=LOCAL, siblings=SIBLINGS, license_file="NOTICE")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"flashinfer_python==0.7.2", b"flashinfer_python==0.7.2+sm120.3"),
        (b"flashinfer_python[cu13]==0.7.2", b"flashinfer_python[cu13]==0.7.2+sm120.3"),
        (b"FlashInfer.Python [cu12,cu13] (>=0.7,<0.8)", b"FlashInfer.Python [cu12,cu13]==0.7.2+sm120.3"),
        (b"flashinfer-python", b"flashinfer-python==0.7.2+sm120.3"),
        (
            b'flashinfer_python==0.7.2 ; platform_machine == "x86_64"',
            b'flashinfer_python==0.7.2+sm120.3 ; platform_machine == "x86_64"',
        ),
        (
            b"flashinfer_python[cu13]==0.7.2; extra == 'all'",
            b"flashinfer_python[cu13]==0.7.2+sm120.3; extra == 'all'",
        ),
        (b"flashinfer_cubin==0.7.2", b"flashinfer_cubin==0.7.2"),  # stock: it holds no code of ours
        (b"flashinfer-python-extras==1", b"flashinfer-python-extras==1"),
        (b'torch>=2.8; extra == "flashinfer_python"', b'torch>=2.8; extra == "flashinfer_python"'),
    ],
)
def test_only_siblings_are_required_exactly_and_keep_extras_and_markers(before: bytes, after: bytes) -> None:
    raw = metadata(b"Requires-Dist: " + before, b"Provides-Extra: all")
    assert b"\nRequires-Dist: " + after + b"\n" in edited(raw)


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        (b"flashinfer_python==0.6.3", "this line pins flashinfer_python 0.7.2"),
        (b"flashinfer_python @ https://example.org/f.whl", "requires flashinfer_python by URL"),
        (b"flashinfer python", "is no requirement"),
    ],
)
def test_a_requirement_that_cannot_be_met_is_an_error(requirement: bytes, problem: str) -> None:
    with pytest.raises(WheelError, match=problem):
        edited(metadata(b"Requires-Dist: " + requirement))


LICENCE = (
    b"License:                                  Apache License\n"
    b"                                   Version 2.0, January 2004\n"
    b"        \n"
    b"           1. Definitions. \x0c \xe2\x80\xa8 and a line so long that any email library would fold it\n"
    b"Requires-Dist: click"
)


@pytest.mark.parametrize("version", [b"2.1", b"2.2", b"2.3", b"2.4", b"2.5"])
def test_all_else_stays_byte_for_byte_and_metadata_version_too(version: bytes) -> None:
    raw = metadata(LICENCE, b"Author: J\xc3\xb6rg <j@x.y>", version=version, body=b"\nVersion: 3\n\nlone\rCR\n\x85\n")
    result = edited(raw)
    notice = b"License-File: NOTICE\n"
    assert (notice in result) == (version >= b"2.4")
    assert result.replace(notice, b"").replace(b"Version: 1.0+sm120.2\n", b"Version: 1.0\n") == raw
    assert b"Metadata-Version: " + version + b"\n" in result


def test_the_notice_follows_the_licence_files_there_are() -> None:
    raw = metadata(b"License-File: LICENSE", b"License-File: licenses/OTHER", b"Requires-Dist: click")
    names = [(header.name, header.value) for header in split(edited(raw))[0]]
    at = names.index(("license-file", "NOTICE"))
    assert names[at - 1] == ("license-file", "licenses/OTHER")
    assert Metadata.from_email(edited(raw)).license_files == ["LICENSE", "licenses/OTHER", "NOTICE"]


def test_headers_that_end_with_the_file_stay_headers() -> None:
    raw = b"Metadata-Version: 2.4\nName: attend\nVersion: 1.0\nSummary: no line end"
    assert edited(raw) == (
        b"Metadata-Version: 2.4\nName: attend\nVersion: 1.0+sm120.2\nSummary: no line end\nLicense-File: NOTICE\n"
    )


def test_crlf_headers_keep_their_line_ends() -> None:
    raw = b"Metadata-Version: 2.4\r\nName: attend\r\nVersion: 1.0\r\nRequires-Dist: flashinfer-python\r\n\r\nbody\r\n"
    assert edited(raw) == (
        b"Metadata-Version: 2.4\r\nName: attend\r\nVersion: 1.0+sm120.2\r\n"
        b"Requires-Dist: flashinfer-python==0.7.2+sm120.3\r\nLicense-File: NOTICE\r\n\r\nbody\r\n"
    )


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (metadata().replace(b"Version: 1.0", b"Version: 1.1"), "is version 1.1, the pin is 1.0"),
        (metadata().replace(b"Version: 1.0\n", b"Version: one\n"), "is none"),
        (metadata(b"Version: 1.0"), "has 2 Version lines"),
        (metadata(version=b"two"), "Metadata-Version"),
    ],
)
def test_a_version_that_is_not_the_pins_is_an_error(raw: bytes, problem: str) -> None:
    with pytest.raises(WheelError, match=problem):
        edited(raw)


def test_the_split_of_metadata_loses_nothing() -> None:
    raw = metadata(LICENCE, body=b"\n\nbody\n\n")
    headers, body = split(raw)
    assert b"".join(header.raw for header in headers) + body == raw


def test_wheel_says_who_wrote_it_and_what_it_was_made_from() -> None:
    raw = b"Wheel-Version: 1.0\nGenerator: setuptools (80.0)\nTag: py3-none-any\n\n"
    assert edit_wheel(raw, place="WHEEL", generator="ours 1") == (
        b"Wheel-Version: 1.0\nGenerator: ours 1 from setuptools (80.0)\nTag: py3-none-any\n\n"
    )
    with pytest.raises(WheelError, match="0 Generator lines"):
        edit_wheel(b"Wheel-Version: 1.0\n", place="WHEEL", generator="ours 1")


def test_requirements_are_read_in_order() -> None:
    raw = metadata(b"Requires-Dist: b", b"Requires-Dist: a>1")
    assert [str(one) for one in requirements(raw, "METADATA")] == ["b", "a>1"]
