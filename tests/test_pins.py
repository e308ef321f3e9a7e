from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from downstream.errors import PinError
from downstream.pins import FILE, load, moved

ROOT = Path(__file__).parents[1]
DIGEST = "0123456789abcdef" * 4

TEXT = f"""\
# A comment at the top.
schema = 1

[upstreams.flashinfer]
package = "flashinfer-python"
repository = "https://example.org/flashinfer"
tag = "v{{version}}"
version-file = "flashinfer/_build_meta.py"

[upstreams.flashinfer.layout]
"flashinfer/" = "flashinfer/"
"include/" = "flashinfer/data/include/"

[upstreams.sglang]
package = "sglang"
repository = "https://example.org/sglang"
tag = "v{{version}}"
version-file = "python/sglang/_version.py"
layout = {{ "python/" = "" }}

# The pair that is shipped.
[lines.stable.flashinfer]
version = "0.6.3"  # the last with thirteen guards
revision = 1

[lines.stable.flashinfer.sha256]
# from the index
"flashinfer_python-0.6.3-py3-none-any.whl" = "{DIGEST}"

[lines.stable.sglang]
version = "0.5.9"
revision = 2

[lines.stable.sglang.sha256]
"sglang-0.5.9-py3-none-any.whl" = "{DIGEST}"

[lines.stable.sglang.requires]
flashinfer-python = "==0.6.3"  # exactly
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / FILE).write_text(TEXT)
    return tmp_path


def edit(root: Path, old: str, new: str) -> Path:
    text = (root / FILE).read_text()
    assert old in text
    (root / FILE).write_text(text.replace(old, new))
    return root


def test_the_projects_own_pins_are_sound() -> None:
    pins = load(ROOT)
    line = pins.line("stable")
    assert {name: str(pin.version) for name, pin in line.pins.items()} == {"flashinfer": "0.6.3", "sglang": "0.5.9"}
    assert line.unsatisfied() == ()
    assert line.pins["sglang"].requires == {"flashinfer-python": "==0.6.3"}
    assert all(pin.sha256 for pin in line.pins.values())


def test_a_pin_and_what_follows_from_it(root: Path) -> None:
    pins = load(root)
    pin = pins.pin("stable", "sglang")
    assert str(pin) == "stable/sglang 0.5.9"
    assert str(pin.local_version) == "0.5.9+sm120.2"
    assert pin.upstream.tag_of(pin.version) == "v0.5.9"
    assert pin.upstream.layout.to_wheel("python/sglang/a.py") == "sglang/a.py"
    assert pins.series_folder(pin) == root / "patches" / "stable" / "sglang"
    assert pins.overlay_folder(pin.upstream) == root / "overlay" / "sglang"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("schema = 1", "schema = 2", "schema is 2, this tool reads 1"),
        ("schema = 1", "", "schema is None"),
        ("schema = 1", "schema = ", "Invalid value"),
        ('version = "0.6.3"', 'version = "nightly-20260101"', "'nightly-20260101' is no version (PEP 440)"),
        ('version = "0.6.3"', "version = 0.6", "'version' must be a str, it is 0.6"),
        ('version = "0.6.3"', 'version = "0.6.3+sm120.1"', "must have no local part"),
        ("revision = 1", "revision = 0", "revision be 1 or more"),
        ("revision = 1", "revision = true", "'revision' must be a int, it is True"),
        (DIGEST, DIGEST.upper(), "is not 64 lower-case hex digits"),
        (DIGEST, DIGEST[1:], "is not 64 lower-case hex digits"),
        ('"sglang-0.5.9-', '"torch-0.5.9-', "torch-0.5.9-py3-none-any.whl is no file of package sglang"),
        ("[lines.stable.sglang]", "[lines.stable.vllm]", "names an upstream that [upstreams] lacks"),
        ('tag = "v{version}"', 'tag = "v"', "'tag' must contain {version}"),
        ('package = "sglang"', "", "'package' must be a str, it is None"),
        ('layout = { "python/" = "" }', "", "'layout' must be a dict"),
        ("flashinfer-python = ", "nested = { a = 1 }\nflashinfer-python = ", "requires of nested is no specifier"),
        ('"==0.6.3"', '"exactly 0.6.3"', "requires of flashinfer-python is no specifier"),
    ],
)
def test_a_fault_is_told_with_its_place(root: Path, old: str, new: str, problem: str) -> None:
    with pytest.raises(PinError) as caught:
        load(edit(root, old, new))
    assert FILE in caught.value.place
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    ("required", "pinned", "fine"),
    [
        ("==0.6.3", "0.6.3", True),
        ("==0.6.3", "0.6.4", False),
        ("==0.6.3", "0.6.3.post1", False),
        (">=0.6,<0.7", "0.6.12", True),
        (">=0.6.4", "0.6.3", False),
        (">=0.6.4", "0.6.5rc1", True),
        ("==0.6.*", "0.6.3", True),
        ("!=0.6.3", "0.6.3", False),
        ("", "0.6.3", True),
    ],
)
def test_the_pins_of_a_line_must_satisfy_each_other(root: Path, required: str, pinned: str, fine: bool) -> None:
    edit(root, '"==0.6.3"', f'"{required}"')
    edit(root, 'version = "0.6.3"', f'version = "{pinned}"')
    if fine:
        load(root)
        return
    with pytest.raises(PinError) as caught:
        load(root)
    assert f"sglang 0.5.9 requires flashinfer-python{required}, not {pinned}" in caught.value.problem
    assert caught.value.next_step
    (sentence,) = load(root, satisfied=False).line("stable").unsatisfied()
    assert sentence in caught.value.problem


def test_a_requirement_is_matched_by_normalised_name(root: Path) -> None:
    edit(root, "flashinfer-python = ", "Flashinfer_Python = ")
    edit(root, 'version = "0.6.3"', 'version = "0.6.4"')
    with pytest.raises(PinError, match=r"requires Flashinfer_Python==0\.6\.3, not 0\.6\.4"):
        load(root)


def test_a_requirement_on_something_else_binds_nobody(root: Path) -> None:
    edit(root, "flashinfer-python = ", "torch = ")
    assert load(root).line("stable").unsatisfied() == ()


def test_a_line_or_an_upstream_that_is_none_is_told(root: Path) -> None:
    pins = load(root)
    with pytest.raises(PinError, match="choose one of: stable"):
        pins.line("next")
    with pytest.raises(PinError, match="choose one of: flashinfer, sglang"):
        pins.pin("stable", "vllm")


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"[[["])
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    with pytest.raises(PinError) as caught:
        load(tmp_path)
    assert caught.value.place == str(tmp_path / FILE)
    assert caught.value.next_step


def test_moving_a_pin_changes_its_lines_only(root: Path) -> None:
    digests = {"flashinfer_python-0.6.12-py3-none-any.whl": "f" * 64}
    text = moved(TEXT, "stable", "flashinfer", Version("0.6.12"), digests, 3)
    before, after = TEXT.splitlines(), text.splitlines()
    assert [line for line in after if line not in before] == [
        'version = "0.6.12"  # the last with thirteen guards',
        "revision = 3",
        f'"flashinfer_python-0.6.12-py3-none-any.whl" = "{"f" * 64}"',
    ]
    assert [line for line in before if line.startswith("#")] == [line for line in after if line.startswith("#")]
    (root / FILE).write_text(text)
    pin = load(root, satisfied=False).pin("stable", "flashinfer")
    assert (str(pin.version), pin.revision, dict(pin.sha256)) == ("0.6.12", 3, digests)


def test_moving_both_pins_keeps_the_line_satisfied(root: Path) -> None:
    wheels = [f"sglang-0.5.23-cp31{minor}-cp31{minor}-manylinux_2_34_x86_64.whl" for minor in (1, 2, 3)]
    text = moved(
        TEXT, "stable", "flashinfer", Version("0.7.2"), {"flashinfer_python-0.7.2-py3-none-any.whl": DIGEST}, 1
    )
    required = {"flashinfer-python": "==0.7.2"}
    text = moved(text, "stable", "sglang", Version("0.5.23"), dict.fromkeys(wheels, DIGEST), 1, required)
    (root / FILE).write_text(text)
    pin = load(root).pin("stable", "sglang")
    assert list(pin.sha256) == wheels
    assert pin.requires == required
    assert 'flashinfer-python = "==0.7.2"  # exactly' in text


def test_moving_a_pin_to_where_it_is_changes_nothing() -> None:
    digests = {"flashinfer_python-0.6.3-py3-none-any.whl": DIGEST}
    assert moved(TEXT, "stable", "flashinfer", Version("0.6.3"), digests, 1) == TEXT
    own = (ROOT / FILE).read_text()
    pin = load(ROOT).pin("stable", "sglang")
    assert moved(own, "stable", "sglang", pin.version, pin.sha256, pin.revision, pin.requires) == own


def test_requirements_appear_where_there_were_none(root: Path) -> None:
    digests = {"flashinfer_python-0.6.3-py3-none-any.whl": DIGEST}
    text = moved(TEXT, "stable", "flashinfer", Version("0.6.3"), digests, 1, {"sglang": ">=0.5"})
    (root / FILE).write_text(text)
    assert load(root).pin("stable", "flashinfer").requires == {"sglang": ">=0.5"}
    assert moved(TEXT, "stable", "flashinfer", Version("0.6.3"), digests, 1, {}) == TEXT


def test_crlf_stays() -> None:
    text = moved(TEXT.replace("\n", "\r\n"), "stable", "flashinfer", Version("0.6.4"), {}, 1)
    assert text.replace("\r\n", "").count("\n") == 0


@pytest.mark.parametrize(("line", "upstream"), [("next", "sglang"), ("stable", "vllm")])
def test_moving_a_pin_that_is_none_is_told(line: str, upstream: str) -> None:
    with pytest.raises(PinError) as caught:
        moved(TEXT, line, upstream, Version("1"), {}, 1)
    assert f"[lines.{line}.{upstream}]" in caught.value.problem


def test_moving_in_a_file_that_is_no_toml_is_told() -> None:
    with pytest.raises(PinError):
        moved("[[[", "stable", "sglang", Version("1"), {}, 1)
