"""Headers as commit messages and back."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downstream.patches.header import Header
from downstream.queue.message import file_name, header_of, mailbox, message_of, parse_message

TODAY = datetime.date(2026, 11, 30)
LINES = st.sampled_from(
    """Subject: one|Description: two| folded| .||From: A <a@b>|Author: C|Forwarded: no|Origin: x: y|Bug: 1|Bug-Debian: 2
|Last-Update: 2026-01-01|# hash|prose|Note: prose|  indented|- list|---|Signed-off-by: A <a@b>|\tTAB
|trailing  |X-Own: field|(cherry picked from commit 1234567)|é""".replace("\n", "").split("|")
)


@given(st.lists(LINES, max_size=15))
@settings(max_examples=300, deadline=None)
def test_a_message_nobody_edited_gives_the_old_header(lines: list[str]) -> None:
    raw = "".join(f"{line}\n" for line in lines).encode()
    message = parse_message(message_of(Header.parse(raw), "x.patch"))
    assert message.name == "x.patch"
    assert header_of(message, old=raw, author="Me <me@x>", date="today", today=TODAY) == raw


def test_the_message_has_subject_text_and_fields() -> None:
    raw = b"From: A <a@b>\nDate: x\nSubject: [PATCH] Admit SM120\nForwarded: no\n\nBroken without it.\n---\n f | 2\n"
    assert message_of(Header.parse(raw), "a.patch") == (
        b"Admit SM120\n\nBroken without it.\n\nForwarded: no\nPatch-Name: a.patch\n"
    )


def test_a_new_commit_becomes_a_mail_with_dep3_fields() -> None:
    message = parse_message(
        b"Admit SM120\n\nBroken without it.\n\n(cherry picked from commit 1234567890)\n\nSigned-off-by: Me <me@x>\n"
    )
    assert header_of(message, old=None, author="Me <me@x>", date="Mon, 30 Nov 2026 12:00:00 +0000", today=TODAY) == (
        b"From: Me <me@x>\nDate: Mon, 30 Nov 2026 12:00:00 +0000\nSubject: Admit SM120\n"
        b"Origin: upstream, commit 1234567890\nSigned-off-by: Me <me@x>\nForwarded: no\nLast-Update: 2026-11-30\n\n"
        b"Broken without it.\n\n(cherry picked from commit 1234567890)\n\n---\n\n"
    )


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("Admit SM120 (#12)", "admit-sm120.patch"),
        ("comm: pack  pointers!", "comm-pack-pointers.patch"),
        ("", "patch.patch"),
        ("../../etc", "etc.patch"),
        ("é", "patch.patch"),
        ("word " * 30, "word-word-word-word-word-word-word-word-word-word-word-word.patch"),
        ("x" * 100, "x" * 60 + ".patch"),
    ],
)
def test_file_names(subject: str, name: str) -> None:
    assert file_name(subject) == name


@pytest.mark.parametrize(
    ("author", "mail"),
    [
        ("A Person <a@b>", b"A Person <a@b>"),
        ("A Person <a@b>, and others", b"A Person <a@b>"),
        ("A Person", b"A Person <>"),
        ("<a@b>", b"unknown <a@b>"),
        (None, b"unknown <>"),
        ("a\nb", b"a b <>"),
    ],
)
def test_mailboxes_are_what_git_wants(author: str | None, mail: bytes) -> None:
    assert mailbox(author) == mail
