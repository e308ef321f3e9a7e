"""DEP-3 and mail fields, and edits of one field that leave all other bytes."""

from __future__ import annotations

import pytest

from downstream.patches.header import Header, with_field

DEP3 = b"""Description: Admit SM120 in the arch list
 Without it gen_trtllm_comm_module() raises.
 .
 Second paragraph.
Origin: backport, https://example.org/pull/3903
Forwarded: not-needed
Last-Update: 2026-11-30

Free text.
"""

MAIL = b"""From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001
From: =?utf-8?q?J=C3=BCrgen?= <j@example.org>
Date: Mon, 5 Jan 2026 10:00:00 +0000
Subject: [PATCH v2 3/7] Admit SM120 in the arch
 list
X-Note: any field counts at the top

Without it: nothing works.
Remark: no field, prose.

Forwarded: no
Last-Update: 2026-11-30
Signed-off-by: J <j@example.org>
---
 f.c | 2 +-
Origin: not read, the diffstat is above
"""


def test_dep3() -> None:
    header = Header.parse(DEP3)
    assert header.subject == "Admit SM120 in the arch list"
    assert header.description == ("Without it gen_trtllm_comm_module() raises.\n\nSecond paragraph.\n\nFree text.")
    assert header.get("origin") == "backport, https://example.org/pull/3903"
    assert header.forwarded == "not-needed"
    assert header.missing() == []


def test_mail() -> None:
    header = Header.parse(MAIL)
    assert header.subject == "Admit SM120 in the arch list"
    assert header.author == "Jürgen <j@example.org>"
    assert header.get("X-Note") == "any field counts at the top"
    assert header.get("Remark") is None
    assert header.origin is None
    assert header.last_update == "2026-11-30"
    assert header.description == "Without it: nothing works.\nRemark: no field, prose."
    assert header.missing() == []


@pytest.mark.parametrize(
    ("raw", "missing"),
    [
        (b"", ["Subject", "Origin", "Forwarded", "Last-Update"]),
        (b"Subject: x\nAuthor: y\n", ["Forwarded", "Last-Update"]),
        (b"Subject:\nFrom: y\nForwarded: no\nLast-Update: 2026-01-01\n", ["Subject"]),
        (b"prose only\n", ["Subject", "Origin", "Forwarded", "Last-Update"]),
        (b"prose first\nSubject: x\nOrigin: y\n", ["Forwarded", "Last-Update"]),
        (b"Subject: x\r\nOrigin: y\r\nForwarded: no\r\nLast-Update: z\r\n", []),
    ],
)
def test_missing(raw: bytes, missing: list[str]) -> None:
    assert Header.parse(raw).missing() == missing


@pytest.mark.parametrize(
    ("raw", "field", "value", "edited"),
    [
        (b"Subject: x\nForwarded: no\n\nWhy.\n", "forwarded", "yes", b"Subject: x\nforwarded: yes\n\nWhy.\n"),
        (b"Subject: x\n\nWhy.\n", "Forwarded", "no", b"Subject: x\nForwarded: no\n\nWhy.\n"),
        (b"Subject: x", "Forwarded", "no", b"Subject: x\nForwarded: no\n"),
        (b"", "Subject", "x", b"Subject: x\n"),
        (b"Why.\n", "Subject", "x", b"Subject: x\n\nWhy.\n"),
        (b"Subject: x\r\n\r\nWhy.\r\n", "Origin", "y", b"Subject: x\r\nOrigin: y\r\n\r\nWhy.\r\n"),
        (
            b"Description: x\n long\n more\nOrigin: y\n",
            "Description",
            "z\n\nlong",
            b"Description: z\n .\n long\nOrigin: y\n",
        ),
        (b"From abc\nFrom: me\n\nWhy.\n", "Origin", "y", b"From abc\nFrom: me\nOrigin: y\n\nWhy.\n"),
        (b"Subject: x\n\nWhy.\n\nForwarded: no\n---\n", "Forwarded", "y", b"Subject: x\n\nWhy.\n\nForwarded: y\n---\n"),
        (b"Subject: \xe9\n\n\xe9\x0c\n", "Origin", "y", b"Subject: \xe9\nOrigin: y\n\n\xe9\x0c\n"),
    ],
)  # fmt: skip
def test_with_field_changes_that_field_only(raw: bytes, field: str, value: str, edited: bytes) -> None:
    assert with_field(raw, field, value) == edited
    assert Header.parse(edited).get(field) == value
