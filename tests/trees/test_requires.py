from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from downstream.errors import PinError, WheelError
from downstream.pins import Line, Pin, Upstream
from downstream.trees.layout import IDENTITY
from downstream.trees.open import digests
from downstream.trees.requires import demands, verify
from downstream.trees.session import Session
from downstream.trees.wheel import FileSource, WheelTree

SGLANG = Upstream(
    name="sglang", package="sglang", repository="", tag="v{version}", layout=IDENTITY, version_file="sglang/_version.py"
)


def tree_of(path: Path, metadata: bytes | None, make_zip: Callable[..., bytes], **more: bytes) -> WheelTree:
    members = {} if metadata is None else {"sglang-0.5.9.dist-info/METADATA": metadata}
    path.write_bytes(make_zip(members | more | {"sglang/__init__.py": b""}))
    return WheelTree(FileSource(path), IDENTITY, "sglang 0.5.9")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["flashinfer_python==0.6.3"], {"flashinfer-python": "==0.6.3"}),
        (["Flashinfer.Python[cu13] (==0.6.12)"], {"flashinfer-python": "==0.6.12"}),
        (["flashinfer-python>=0.6; sys_platform == 'linux'", "torch"], {"flashinfer-python": ">=0.6"}),
        (["flashinfer-python==0.6.3; extra == 'all'"], {}),
        (["flashinfer-python>=0.6", "flashinfer-python<0.7"], {"flashinfer-python": "<0.7,>=0.6"}),
        (["flashinfer-python"], {"flashinfer-python": ""}),
        (["flashinfer-cubin==0.6.3"], {}),
        ([], {}),
    ],
)
def test_what_metadata_demands_of_siblings(
    tmp_path: Path, make_zip: Callable[..., bytes], upstream: Upstream, lines: list[str], expected: dict[str, str]
) -> None:
    head = "".join(f"Requires-Dist: {line}\n" for line in lines)
    text = f"Metadata-Version: 2.4\nName: sglang\n{head}\nRequires-Dist: flashinfer-python==9\n"
    assert demands(tree_of(tmp_path / "x.whl", text.encode(), make_zip), [upstream]) == expected


@pytest.mark.parametrize("metadata", [None, b"Requires-Dist: flashinfer python 0.6\n"])
def test_metadata_that_cannot_be_read_is_told(
    tmp_path: Path, make_zip: Callable[..., bytes], upstream: Upstream, metadata: bytes | None
) -> None:
    with pytest.raises(WheelError) as caught:
        demands(tree_of(tmp_path / "x.whl", metadata, make_zip), [upstream])
    assert caught.value.place == "sglang 0.5.9"


@pytest.mark.parametrize(
    ("recorded", "fine"),
    [
        ({"flashinfer-python": "==0.6.3"}, True),
        ({"flashinfer_python": "==0.6.3"}, True),
        ({"flashinfer-python": "==0.6.4"}, False),
        ({}, False),
    ],
)
def test_a_pin_records_what_its_published_wheel_demands(
    index: Any,
    session: Callable[..., Session],
    make_zip: Callable[..., bytes],
    make_wheel: Callable[..., bytes],
    upstream: Upstream,
    files: Any,
    recorded: dict[str, str],
    fine: bool,
) -> None:
    head = b"Metadata-Version: 2.4\nName: sglang\nRequires-Dist: flashinfer_python==0.6.3\n\n"
    sglang = make_zip({"sglang-0.5.9.dist-info/METADATA": head})
    index.publish("sglang", {"sglang-0.5.9-py3-none-any.whl": sglang})
    flashinfer = make_wheel(files, version="0.6.3", metadata="Requires-Dist: torch\n")
    index.publish("flashinfer-python", {"flashinfer_python-0.6.3-py3-none-any.whl": flashinfer})
    one = session()
    pins = {
        one_upstream.name: Pin(
            line="stable",
            upstream=one_upstream,
            version=Version(version),
            revision=1,
            sha256=digests(one_upstream, Version(version), one),
            requires=recorded if one_upstream is SGLANG else {},
        )
        for one_upstream, version in ((SGLANG, "0.5.9"), (upstream, "0.6.3"))
    }
    line = Line(name="stable", pins=pins)
    if fine:
        verify(line, one)
        return
    with pytest.raises(PinError) as caught:
        verify(line, one)
    assert "but the METADATA of sglang 0.5.9 says flashinfer-python==0.6.3" in caught.value.problem
