"""What the pages say, byte by byte where a client was seen to care."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from pypi_simple import ProjectPage

from downstream.errors import PublishError
from downstream.index import pages
from downstream.index.pages import Offer, Page, Status

OFFER = Offer(
    filename="flashinfer_python-0.6.3+sm120.1-py3-none-any.whl",
    sha256="a" * 64,
    size=7,
    metadata_sha256="b" * 64,
    requires_python="<4.0,>=3.10",
    uploaded=datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
)
PAGE = Page(name="flashinfer-python", offers=(OFFER,))


def html_of(page: Page) -> ProjectPage:
    return ProjectPage.from_html(page.name, pages.project_html(page), "http://index/simple/flashinfer-python/")


def json_of(page: Page) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(pages.project_json(page))
    return document


def test_the_json_page_states_all_that_pep_691_700_and_792_know() -> None:
    assert json_of(PAGE) == {
        "meta": {"api-version": "1.4"},
        "name": "flashinfer-python",
        "project-status": {"status": "active"},
        "versions": ["0.6.3+sm120.1"],
        "files": [
            {
                "filename": "flashinfer_python-0.6.3+sm120.1-py3-none-any.whl",
                "url": "flashinfer_python-0.6.3%2Bsm120.1-py3-none-any.whl",
                "hashes": {"sha256": "a" * 64},
                "requires-python": "<4.0,>=3.10",
                "size": 7,
                "upload-time": "2026-01-02T03:04:05.000678Z",
                "core-metadata": {"sha256": "b" * 64},
            }
        ],
    }


def test_an_independent_reader_finds_the_same_in_the_html_page() -> None:
    (package,) = html_of(PAGE).packages
    assert package.filename == OFFER.filename
    assert package.url == "http://index/simple/flashinfer-python/flashinfer_python-0.6.3%2Bsm120.1-py3-none-any.whl"
    assert package.digests == {"sha256": "a" * 64}
    assert package.metadata_digests == {"sha256": "b" * 64}
    assert package.requires_python == "<4.0,>=3.10"
    assert not package.is_yanked
    assert html_of(PAGE).repository_version == "1.4"


@pytest.mark.parametrize("write", [pages.project_json, pages.project_html])
def test_the_plus_is_quoted_once_in_links(write: object) -> None:
    content = write(PAGE)  # type: ignore[operator]
    assert content.count(b"0.6.3%2Bsm120.1") == 1
    assert b"%252B" not in content


@pytest.mark.parametrize(
    ("yanked", "in_json", "in_html"),
    [
        (None, None, None),
        (True, True, ""),
        ('stale <kernels> & "quotes"', 'stale <kernels> & "quotes"', 'stale <kernels> & "quotes"'),
    ],
    ids=["not", "without reason", "with a reason that HTML must escape"],
)
def test_a_yank_is_true_or_a_reason_and_never_an_empty_string(
    yanked: bool | str | None, in_json: object, in_html: str | None
) -> None:
    page = replace(PAGE, offers=(replace(OFFER, yanked=yanked),))
    (fields,) = json_of(page)["files"]
    assert fields.get("yanked") == in_json
    (package,) = html_of(page).packages
    assert package.is_yanked is (in_html is not None)
    assert (package.yanked_reason or "") == (in_html or "")


def test_what_json_says_is_read_back() -> None:
    page = Page(
        name="flashinfer-python",
        offers=(replace(OFFER, yanked="why"), replace(OFFER, filename="flashinfer_python-0.6.4-py3-none-any.whl")),
        status=Status.DEPRECATED,
        status_reason="use the next line",
    )
    assert pages.parse_project(pages.project_json(page), place="x") == page


def test_a_quarantined_project_offers_nothing_and_forgets_nothing() -> None:
    page = replace(PAGE, status=Status.QUARANTINED)
    assert json_of(page)["files"] == [] == json_of(page)["versions"]
    assert html_of(page).packages == []
    assert pages.parse_project(pages.project_json(page), place="x") == page


def test_the_html_page_carries_the_project_status() -> None:
    found: dict[str, str] = {}

    class Metas(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag == "meta" and "name" in dict(attrs):
                found[str(dict(attrs)["name"])] = str(dict(attrs)["content"])

    Metas().feed(pages.project_html(replace(PAGE, status=Status.ARCHIVED, status_reason='see "next"')).decode())
    assert found == {
        "pypi:repository-version": "1.4",
        "pypi:project-status": "archived",
        "pypi:project-status-reason": 'see "next"',
    }


def test_versions_are_listed_oldest_first_and_ten_comes_after_nine() -> None:
    names = [f"x-1.0+sm120.{number}-py3-none-any.whl" for number in (10, 9, 1)]
    page = Page(name="x").with_offers(replace(OFFER, filename=name) for name in names)
    assert page.versions == ("1.0+sm120.1", "1.0+sm120.9", "1.0+sm120.10")
    assert [offer.filename for offer in page.offers] == names[::-1]


@pytest.mark.parametrize(
    ("accept", "as_json"),
    [
        ("", False),
        ("*/*", False),
        ("text/html", False),
        ("application/vnd.pypi.simple.v1+json", True),
        ("application/vnd.pypi.simple.latest+json", True),
        # pip and uv
        ("application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01", True),
        ("application/vnd.pypi.simple.v1+json;q=0.2, text/html", False),
        ("application/vnd.pypi.simple.v1+json;q=0, text/html;q=0.1", False),
        ("application/vnd.pypi.simple.v1+json;q=nonsense", False),
        ("APPLICATION/VND.PYPI.SIMPLE.V1+JSON", True),
    ],
)
def test_json_or_html_follows_the_accept_header(accept: str, as_json: bool) -> None:
    assert pages.wants_json(accept) is as_json


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"name": "x", "files": [{}], "project-status": {"status": "active"}}',
        b'{"name": "x", "files": [], "project-status": {"status": "fine"}}',
        pages.project_json(replace(PAGE, offers=(replace(OFFER, yanked=True),))).replace(b": true", b': ""'),
    ],
    ids=["empty", "list", "no name", "empty file", "unknown status", "yanked is an empty string"],
)
def test_a_page_that_is_not_ours_is_refused_with_its_place(content: bytes) -> None:
    with pytest.raises(PublishError, match="no project page of ours") as caught:
        pages.parse_project(content, place="simple/x/index.json")
    assert caught.value.place == "simple/x/index.json"
