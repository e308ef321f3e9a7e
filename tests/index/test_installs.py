"""The requirement table: what pip and uv make of a requirement, asked of one URL that shadows stock FlashInfer.

Where the two differ, or where the answer surprises, the README says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from downstream.index.folder import IndexFolder
from downstream.index.public import PublicIndex, Route
from downstream.index.publish import publish, reserve, yank

Installed = Callable[[], dict[str, str]]
Run = Callable[..., object]

PAIR = {"flashinfer-python": "0.6.3+sm120.1", "sglang": "0.5.9+sm120.1", "flashinfer-cubin": "0.6.3"}
STOCK = {"flashinfer-python": "0.6.3", "sglang": "0.5.9", "flashinfer-cubin": "0.6.3"}
OURS = {"flashinfer-python": "0.6.3+sm120.1"}
NEXT = {"flashinfer-python": "0.6.3+sm120.2"}
NOTHING: dict[str, str] = {}


@dataclass(frozen=True)
class Indexes:
    """URLs: our index with the public one behind it, the same after a yank, and the public one alone."""

    ours: str
    yanked: str  # +sm120.1 is yanked
    replaced: str  # +sm120.1 is yanked, +sm120.2 is there
    public: str
    mixed: str  # patched sglang beside stock FlashInfer only
    hashes: dict[str, str]  # version -> sha256 of flashinfer-python


@pytest.fixture(scope="module")
def indexes(
    tmp_path_factory: pytest.TempPathFactory,
    wheel: Callable[..., Path],
    serving: Callable[..., AbstractContextManager[str]],
) -> Iterator[Indexes]:
    from contextlib import ExitStack

    folder = tmp_path_factory.mktemp("indexes")
    stock = [wheel(folder, "flashinfer-python", version) for version in ("0.6.2", "0.6.3")]
    stock_sglang = wheel(folder, "sglang", "0.5.9", requires=["flashinfer_python==0.6.3", "flashinfer_cubin==0.6.3"])
    patched = [wheel(folder, "flashinfer-python", f"0.6.3+sm120.{number}") for number in (1, 2)]
    requires = ["flashinfer_python==0.6.3+sm120.1", "flashinfer_cubin==0.6.3"]
    sglang = wheel(folder, "sglang", "0.5.9+sm120.1", requires=requires)
    cubin = wheel(folder, "flashinfer-cubin", "0.6.3")
    foreign = wheel(folder, "flashinfer-jit-cache", "9.9")  # anybody may register a name that the public index lacks
    publish([*stock, stock_sglang, cubin, foreign], folder / "public")
    publish([patched[0], sglang], folder / "ours")
    reserve(folder / "ours", ["flashinfer-jit-cache"])
    publish([patched[0], sglang], folder / "yanked")
    publish([*patched, sglang], folder / "replaced")
    for name in ("yanked", "replaced"):
        yank(folder / name, "flashinfer-python", "0.6.3+sm120.1", reason="bad kernels")
    publish([sglang], folder / "mixed")
    offers = [*IndexFolder(folder / "public").page("flashinfer-python").offers]
    offers += IndexFolder(folder / "ours").page("flashinfer-python").offers
    with ExitStack() as stack:
        public = stack.enter_context(serving(folder / "public"))
        urls = {
            name: stack.enter_context(serving(folder / name, PublicIndex(url=public, route=Route.REDIRECT)))
            for name in ("ours", "yanked", "replaced", "mixed")
        }
        yield Indexes(public=public, hashes={str(offer.version): offer.sha256 for offer in offers}, **urls)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A requirement, where it is asked, and what is installed then; None means that the client refuses."""

    name: str
    requirement: str
    index: str = "ours"
    before: str = ""  # installed first, from the public index
    options: tuple[str, ...] = ()
    pip: dict[str, str] | None
    uv: dict[str, str] | None
    says: str = ""  # in what the client prints


REFUSED = None
TABLE = [
    Row(name="the pair", requirement="sglang", pip=PAIR, uv=PAIR),
    Row(name="a bare name", requirement="flashinfer-python", pip=OURS, uv=OURS),
    Row(name="exact local version", requirement="flashinfer-python==0.6.3+sm120.1", pip=OURS, uv=OURS),
    Row(name="==0.6.3 takes ours", requirement="flashinfer-python==0.6.3", pip=OURS, uv=OURS),
    Row(name=">=0.6.2 takes ours", requirement="flashinfer-python>=0.6.2", pip=OURS, uv=OURS),
    Row(name="===0.6.3 is only stock", requirement="flashinfer-python===0.6.3", pip=REFUSED, uv=REFUSED),
    Row(name="stock of another release", requirement="flashinfer-python==0.6.2", pip=REFUSED, uv=REFUSED),
    Row(name="a revision that is not there", requirement="flashinfer-python==0.6.3+sm120.10", pip=REFUSED, uv=REFUSED),
    Row(name="stock before, sglang replaces it", requirement="sglang", before="flashinfer-python", pip=PAIR, uv=PAIR),
    Row(
        name="stock before, ==0.6.3 is satisfied by it",
        requirement="flashinfer-python==0.6.3",
        before="flashinfer-python",
        pip={"flashinfer-python": "0.6.3"},
        uv={"flashinfer-python": "0.6.3"},
    ),
    Row(
        name="stock before, --upgrade replaces it",
        requirement="flashinfer-python==0.6.3",
        before="flashinfer-python",
        options=("--upgrade",),
        pip=OURS,
        uv=OURS,
    ),
    Row(name="the stock pair before, sglang is satisfied", requirement="sglang", before="sglang", pip=STOCK, uv=STOCK),
    Row(
        name="the stock pair before, --upgrade replaces both",
        requirement="sglang",
        before="sglang",
        options=("--upgrade",),
        pip=PAIR,
        uv=PAIR,
    ),
    Row(name="yanked, a bare name", requirement="flashinfer-python", index="yanked", pip=REFUSED, uv=REFUSED),
    Row(name="yanked, >=", requirement="flashinfer-python>=0.6.2", index="yanked", pip=REFUSED, uv=REFUSED),
    Row(
        name="yanked, exact",
        requirement="flashinfer-python==0.6.3+sm120.1",
        index="yanked",
        pip=OURS,
        uv=OURS,
        says="bad kernels",
    ),
    # uv forgives a yank only to a requirement of yours, not to one of a package: yank both halves, or neither.
    Row(
        name="yanked, required exactly by sglang",
        requirement="sglang",
        index="yanked",
        pip=PAIR,
        uv=REFUSED,
        says="bad kernels",
    ),
    Row(
        name="yanked, required exactly by sglang and by you",
        requirement="sglang flashinfer-python==0.6.3+sm120.1",
        index="yanked",
        pip=PAIR,
        uv=PAIR,
        says="bad kernels",
    ),
    Row(name="yanked and replaced", requirement="flashinfer-python", index="replaced", pip=NEXT, uv=NEXT),
    Row(
        name="yanked and replaced, ==0.6.3", requirement="flashinfer-python==0.6.3", index="replaced", pip=NEXT, uv=NEXT
    ),
    Row(name="patched sglang, only stock FlashInfer", requirement="sglang", index="mixed", pip=REFUSED, uv=REFUSED),
    Row(name="a reserved name", requirement="flashinfer-jit-cache", pip=REFUSED, uv=REFUSED),
]


# A run of pip costs ten of uv: the default tests hold uv to all of the table, and pip to the rows that matter most.
OFTEN = {"the pair", "patched sglang, only stock FlashInfer", "yanked, a bare name", "===0.6.3 is only stock"}
ROWS = [
    pytest.param(row, client, id=f"{client}: {row.name}", marks=() if often else pytest.mark.slow)
    for row in TABLE
    for client, often in (("uv", True), ("pip", row.name in OFTEN))
]


@pytest.mark.parametrize(("row", "client"), ROWS)
def test_a_requirement_is_met_by_our_build_or_not_at_all(
    row: Row, client: str, indexes: Indexes, installed: Installed, request: pytest.FixtureRequest
) -> None:
    run = request.getfixturevalue(client)
    if row.before:
        run("install", "--index-url", indexes.public, row.before)
        assert set(installed().items()) <= set(STOCK.items())
        assert installed()
    before = installed()
    done = run("install", "--index-url", getattr(indexes, row.index), *row.options, *row.requirement.split())
    expected = row.pip if client == "pip" else row.uv
    assert (done.returncode == 0) is (expected is not None), done.stderr
    assert installed() == (before if expected is None else expected)
    assert row.says in done.stdout + done.stderr


@pytest.mark.parametrize("client", [pytest.param("pip", marks=pytest.mark.slow), "uv"])
@pytest.mark.parametrize(
    ("version", "digest_of", "clients"),
    [
        ("0.6.3+sm120.1", "0.6.3+sm120.1", "pip uv"),
        ("0.6.3+sm120.1", "0.6.3", ""),
        ("0.6.3", "0.6.3", ""),  # a lock file made from stock
        ("0.6.3", "0.6.3+sm120.1", "pip"),  # uv wants the hash beside the very version that it picks
    ],
    ids=["ours", "our version, stock's hash", "stock's version and hash", "stock's version, our hash"],
)
def test_hash_mode_takes_our_bytes_or_nothing(
    client: str,
    version: str,
    digest_of: str,
    clients: str,
    indexes: Indexes,
    installed: Installed,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(f"flashinfer-python=={version} --hash=sha256:{indexes.hashes[digest_of]}\n")
    run = request.getfixturevalue(client)
    done = run("install", "--index-url", indexes.ours, "--require-hashes", "-r", str(lock))
    works = client in clients.split()
    assert (done.returncode == 0) is works, done.stderr
    assert installed() == (OURS if works else NOTHING)


SLOW = pytest.mark.slow
TWO = [
    # pip takes the highest version of all; uv the first index that has the name, extra ones before the default.
    pytest.param("pip", ("--index-url", "public", "--extra-index-url", "ours"), "flashinfer-python", OURS, marks=SLOW),
    pytest.param(
        "pip", ("--index-url", "ours", "--extra-index-url", "public"), "flashinfer-python==0.6.3", OURS, marks=SLOW
    ),
    pytest.param(
        "pip", ("--index-url", "yanked", "--extra-index-url", "public"), "flashinfer-python==0.6.3", STOCK, marks=SLOW
    ),
    ("uv", ("--default-index", "ours", "--index", "public"), "flashinfer-python", STOCK),
    ("uv", ("--default-index", "ours", "--index", "public"), "sglang==0.5.9+sm120.1", None),
    ("uv", ("--default-index", "public", "--index", "ours"), "flashinfer-python", OURS),
    ("uv", ("--default-index", "public", "--index", "yanked"), "flashinfer-python", None),
]


@pytest.mark.parametrize(("client", "options", "requirement", "expected"), TWO)
def test_two_indexes_are_a_trap(
    client: str,
    options: tuple[str, ...],
    requirement: str,
    expected: dict[str, str] | None,
    indexes: Indexes,
    installed: Installed,
    request: pytest.FixtureRequest,
) -> None:
    words = [getattr(indexes, word, word) if not word.startswith("-") else word for word in options]
    done = request.getfixturevalue(client)("install", *words, requirement)
    assert (done.returncode == 0) is (expected is not None), done.stderr
    assert installed() == {name: version for name, version in (expected or {}).items() if name == "flashinfer-python"}
