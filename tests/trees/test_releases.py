from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from downstream.errors import NetworkError, OfflineError, TreeError
from downstream.trees.releases import known, latest, listing, releases
from downstream.trees.session import Session

PACKAGE = "flashinfer-python"
PAGE = f"/simple/{PACKAGE}/"


def names(*versions: str) -> dict[str, bytes]:
    return {f"flashinfer_python-{version}-py3-none-any.whl": version.encode() for version in versions}


def test_releases_are_sorted_as_versions(session: Callable[..., Session], index: Any) -> None:
    index.publish(PACKAGE, names("0.6.10", "0.6.9", "0.6.7.post3", "0.6.7", "0.6.9rc1", "0.10.0"))
    found = releases(PACKAGE, session=session())
    assert [str(release.version) for release in found] == [
        "0.6.7",
        "0.6.7.post3",
        "0.6.9rc1",
        "0.6.9",
        "0.6.10",
        "0.10.0",
    ]
    assert [release.prerelease for release in found] == [False, False, True, False, False, False]


def test_a_file_is_told_with_all_that_the_index_knows(session: Callable[..., Session], index: Any) -> None:
    index.publish(PACKAGE, names("0.6.4"), **{next(iter(names("0.6.4"))): {"requires-python": ">=3.10"}})
    (release,) = releases(PACKAGE, session=session())
    (file,) = release.files
    assert file.name == "flashinfer_python-0.6.4-py3-none-any.whl"
    assert file.url == f"{index.address}/files/{file.name}"
    assert len(file.sha256) == 64
    assert (file.size, file.yanked, file.requires_python) == (5, False, ">=3.10")
    assert file.uploaded == release.uploaded == "2026-02-19T07:33:34.820465+00:00"
    assert file.is_wheel


def test_what_is_no_release_is_skipped_and_named(session: Callable[..., Session], index: Any) -> None:
    files = names("0.6.4", "0.6.4+sm120.1") | {
        "flashinfer_python-nightly-py3-none-any.whl": b"",
        "flashinfer-python-0.6.4.tar.gz": b"sdist",
        "notes.txt": b"",
    }
    index.publish(PACKAGE, files)
    found = listing(PACKAGE, session=session())
    assert [str(release.version) for release in found.releases] == ["0.6.4"]
    assert len(found.releases[0].files) == 2
    assert found.skipped == (
        "flashinfer_python-0.6.4+sm120.1-py3-none-any.whl",
        "flashinfer_python-nightly-py3-none-any.whl",
        "notes.txt",
    )


@pytest.mark.parametrize(("yanked", "expected"), [(True, True), ("broken", True), (False, False)])
def test_yanked_files_are_marked(session: Callable[..., Session], index: Any, yanked: object, expected: bool) -> None:
    index.publish(PACKAGE, names("0.6.4"), **{next(iter(names("0.6.4"))): {"yanked": yanked}})
    assert releases(PACKAGE, session=session())[0].yanked is expected


def test_a_release_with_one_file_left_is_not_yanked(session: Callable[..., Session], index: Any) -> None:
    files = names("0.6.4") | {"flashinfer-python-0.6.4.tar.gz": b""}
    index.publish(PACKAGE, files, **{"flashinfer-python-0.6.4.tar.gz": {"yanked": True}})
    assert not releases(PACKAGE, session=session())[0].yanked


@pytest.mark.parametrize(
    ("versions", "yanked", "pre", "expected"),
    [
        (["0.6.3", "0.6.4", "0.6.5rc1"], [], False, "0.6.4"),
        (["0.6.3", "0.6.4", "0.6.5rc1"], [], True, "0.6.5rc1"),
        (["0.6.3", "0.6.4"], ["0.6.4"], False, "0.6.3"),
        (["0.6.5rc1", "0.6.5rc2"], [], False, "0.6.5rc2"),
        (["0.6.4", "0.6.4.post1"], [], False, "0.6.4.post1"),
    ],
)
def test_the_latest_release(
    session: Callable[..., Session], index: Any, versions: list[str], yanked: list[str], pre: bool, expected: str
) -> None:
    index.publish(PACKAGE, names(*versions), **{name: {"yanked": True} for name in names(*yanked)})
    assert str(latest(PACKAGE, session=session(), pre=pre).version) == expected


def test_no_release_at_all_is_told(session: Callable[..., Session], index: Any) -> None:
    index.publish(PACKAGE, {})
    with pytest.raises(TreeError, match="has no release"):
        latest(PACKAGE, session=session())


def test_an_html_index_says_the_same(session: Callable[..., Session], index: Any) -> None:
    digest = "ab" * 32
    index.pages[PAGE] = (
        "text/html; charset=utf-8",
        f"""<!DOCTYPE html><a href="../../files/flashinfer_python-0.6.4-py3-none-any.whl#sha256={digest}"
        data-requires-python="&gt;=3.10" data-yanked="broken">flashinfer_python-0.6.4-py3-none-any.whl</a>""".encode(),
    )
    (release,) = releases(PACKAGE, session=session())
    (file,) = release.files
    assert file.url == f"{index.address}/files/flashinfer_python-0.6.4-py3-none-any.whl"
    assert (file.sha256, file.yanked, file.requires_python, file.size) == (digest, True, ">=3.10", None)


def test_a_young_listing_is_used_as_it_is(session: Callable[..., Session], index: Any) -> None:
    index.publish(PACKAGE, names("0.6.4"))
    releases(PACKAGE, session=session())
    index.publish(PACKAGE, names("0.6.4", "0.6.5"))
    assert len(releases(PACKAGE, session=session())) == 1
    assert len(listing(PACKAGE, session=session(), max_age=0).releases) == 2
    assert index.count(PAGE) == 2


@pytest.mark.parametrize(("header", "asked"), [("max-age=0, public", 2), ("no-cache", 2), ("public, max-age=600", 1)])
def test_the_servers_own_age_is_followed(session: Callable[..., Session], index: Any, header: str, asked: int) -> None:
    index.publish(PACKAGE, names("0.6.4"))
    index.extra[PAGE] = {"Cache-Control": header}
    for _ in range(2):
        releases(PACKAGE, session=session())
    assert index.count(PAGE) == asked


def test_an_old_listing_is_revalidated_by_its_etag(session: Callable[..., Session], index: Any) -> None:
    index.publish(PACKAGE, names("0.6.4"))
    index.etags[PAGE] = '"page"'
    for _ in range(3):
        one = session()
        assert len(listing(PACKAGE, session=one, max_age=0).releases) == 1
    assert index.asked[-1].headers["if-none-match"] == '"page"'
    assert one.fetched == 0


def test_an_old_listing_is_revalidated_by_its_date(session: Callable[..., Session], index: Any) -> None:
    index.publish(PACKAGE, names("0.6.4"))
    index.extra[PAGE] = {"Last-Modified": "Thu, 19 Feb 2026 07:33:34 GMT"}
    for _ in range(2):
        listing(PACKAGE, session=session(), max_age=0)
    assert index.asked[-1].headers["if-modified-since"] == "Thu, 19 Feb 2026 07:33:34 GMT"


def test_offline_takes_the_kept_listing_whatever_its_age(session: Callable[..., Session], index: Any) -> None:
    with pytest.raises(OfflineError) as caught:
        releases(PACKAGE, session=session(offline=True))
    assert caught.value.place == f"releases of {PACKAGE}"
    index.publish(PACKAGE, names("0.6.4"))
    index.extra[PAGE] = {"Cache-Control": "no-store"}
    releases(PACKAGE, session=session())
    assert len(releases(PACKAGE, session=session(offline=True))) == 1
    assert index.count(PAGE) == 1


def test_a_damaged_listing_is_fetched_again(session: Callable[..., Session], index: Any) -> None:
    index.publish(PACKAGE, names("0.6.4"))
    one = session()
    releases(PACKAGE, session=one)
    kept = one.cache.folder / "index" / f"{PACKAGE}.json"
    kept.write_bytes(kept.read_bytes()[:-3])
    assert len(releases(PACKAGE, session=session())) == 1
    assert index.count(PAGE) == 2


def test_another_index_is_asked_at_once(
    session: Callable[..., Session], index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.publish(PACKAGE, names("0.6.4"))
    releases(PACKAGE, session=session())
    index.pages[f"/other/{PACKAGE}/"] = (
        "application/vnd.pypi.simple.v1+json",
        json.dumps({"meta": {"api-version": "1.0"}, "name": PACKAGE, "files": []}).encode(),
    )
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.address}/other")
    assert releases(PACKAGE, session=session()) == ()


def test_known_asks_nobody(session: Callable[..., Session], index: Any) -> None:
    one = session()
    assert known(PACKAGE, Version("0.6.4"), session=one) is None
    index.publish(PACKAGE, names("0.6.4", "0.6.5"))
    releases(PACKAGE, session=one)
    asked = len(index.asked)
    found = known(PACKAGE, Version("0.6.4"), session=one)
    assert found is not None
    assert [file.name for file in found.files] == list(names("0.6.4"))
    assert known(PACKAGE, Version("0.6.9"), session=one) is None
    assert len(index.asked) == asked


def test_extra_indexes_add_and_the_first_one_wins(
    session: Callable[..., Session], index: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index.publish(PACKAGE, names("0.6.4"))
    folder = tmp_path / "local index" / PACKAGE
    folder.mkdir(parents=True)
    links = [f'<a href="../files/{name}#sha256={"0" * 64}">{name}</a>' for name in (*names("0.6.4", "0.6.5"),)]
    (folder / "index.html").write_text("\n".join(links))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{index.address}/missing {folder.parent.as_uri()}")
    found = {str(release.version): release.files for release in releases(PACKAGE, session=session())}
    assert list(found) == ["0.6.4", "0.6.5"]
    assert found["0.6.4"][0].sha256 != "0" * 64
    assert found["0.6.5"][0].url.startswith("file:///")


def test_a_login_is_never_kept(session: Callable[..., Session], index: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    index.publish(PACKAGE, names("0.6.4"))
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("http://", "http://user:secret@"))
    one = session()
    (release,) = releases(PACKAGE, session=one)
    assert "secret" not in release.files[0].url
    assert not [path for path in one.cache.folder.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        (("text/html", b"<html>hello"), None),  # an index with no link is an empty one
        (("application/vnd.pypi.simple.v1+json", b"{"), "is no page of a simple index (JSONDecodeError)"),
        (("application/vnd.pypi.simple.v1+json", b"[]"), "is no page of a simple index"),
        (("application/vnd.pypi.simple.v1+json", b'{"meta": {"api-version": "9.0"}, "files": []}'), "is no page"),
        (("image/png", b"\x89PNG"), "is a page of type 'image/png', not an index"),
    ],
)
def test_a_page_that_is_no_index_is_told(
    session: Callable[..., Session], index: Any, page: tuple[str, bytes], problem: str | None
) -> None:
    index.pages[PAGE] = page
    if problem is None:
        assert releases(PACKAGE, session=session()) == ()
        return
    with pytest.raises(NetworkError) as caught:
        releases(PACKAGE, session=session())
    assert caught.value.place == index.address + PAGE
    assert problem in caught.value.problem


def test_a_package_that_no_index_has_is_told(
    session: Callable[..., Session], index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/srv/links")
    with pytest.raises(NetworkError) as caught:
        releases("no-such-package", session=session())
    assert caught.value.problem == "is on none of the configured indexes"
    assert "find-links is not followed" in caught.value.next_step


def test_no_index_is_told(session: Callable[..., Session], index: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(NetworkError, match="no-index"):
        releases(PACKAGE, session=session())
    assert index.asked == []


def test_a_refused_login_is_told(session: Callable[..., Session], index: Any) -> None:
    index.login = "Basic something"
    with pytest.raises(NetworkError) as caught:
        releases(PACKAGE, session=session())
    assert "401" in caught.value.problem
    assert "login" in caught.value.next_step


@pytest.mark.parametrize(("hours", "asked"), [(-48, True), (-1, True), (0, False), (48, True)])
def test_a_clock_that_is_set_asks_once_more_at_the_most(
    session: Callable[..., Session], index: Any, monkeypatch: pytest.MonkeyPatch, hours: int, asked: bool
) -> None:
    index.publish(PACKAGE, names("0.6.4"))
    listing(PACKAGE, session=session())
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + hours * 3600)
    later = session()
    assert len(listing(PACKAGE, session=later).releases) == 1
    assert (later.requests > 0) is asked
