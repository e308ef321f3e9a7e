"""What comes in from outside: a diff, mails, or an upstream commit, each as a patch with a DEP-3 header."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from downstream.errors import PatchError, UsageError
from downstream.patches.crosscheck import crosscheck
from downstream.patches.header import Header, with_field
from downstream.patches.parse import parse
from downstream.patches.text import ChangeKind, FilePatch, Patch
from downstream.patches.unified import file_header
from downstream.pins import Upstream
from downstream.queue.export import diff_of
from downstream.queue.history import History
from downstream.queue.message import Message, file_name, header_of, parse_message
from downstream.trees.git import GitTree
from downstream.trees.repository import open_git
from downstream.trees.session import Session
from downstream.trees.tree import Tree

_MAIL = re.compile(rb"^From [^\n]*\d\d:\d\d[^\n]*\n(?=[!-9;-~]+:)", re.MULTILINE)
_ENCODED = re.compile(rb"^Content-Transfer-Encoding: *(?:quoted-printable|base64)", re.IGNORECASE | re.MULTILINE)
_INDEX = re.compile(rb"^index [0-9a-f]+\.\.[0-9a-f]+(?: 100\d{3})?\r?\n", re.MULTILINE)
_SIGNATURE = re.compile(rb"\A-- ?\n.*\Z", re.DOTALL)
_MAIL_ONLY = re.compile(
    rb"^(?:message-id|mime-version|content-[a-z-]+|x-[a-z-]+|received|to|cc|in-reply-to|references|return-path|list-[a-z]+):",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says about a patch that comes in."""

    name: str | None
    subject: str | None
    origin: str | None
    strip: int
    today: datetime.date


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A patch to add, the tree it was made on where that is known, and the paths left out of it."""

    patch: Patch
    base: Tree | None = None
    left_out: tuple[str, ...] = ()


def read_source(source: str, stdin: bytes | None, upstream: Upstream, asked: Asked, session: Session) -> list[Incoming]:
    """Read SOURCE of ``pq.py import``; *stdin* is what ``-`` stands for.

    Raises UsageError where it is nothing of the kind, PatchError where it holds no diff.
    """
    if source.startswith("git:"):
        return [_commit(source, upstream, asked, session)]
    if stdin is not None:
        content, place = stdin, "stdin"
    else:
        path = Path(source)
        if not path.is_file():
            step = "name a diff, a mail or an mbox, '-', or git:REPO@COMMIT"
            raise UsageError(source, "is no file", step)
        content, place = path.read_bytes(), path.name
    mails = list(_mails(content))
    if len(mails) > 1 and (asked.name or asked.subject):
        raise UsageError(source, f"holds {len(mails)} patches, and --name or --subject names one", "leave them out")
    return [_shipped(_mail(mail, place, asked), upstream) for mail in mails]


def _mails(content: bytes) -> Iterator[bytes]:
    starts = [found.start() for found in _MAIL.finditer(content)]
    if not starts:
        yield content
        return
    for start, end in zip(starts, [*starts[1:], len(content)], strict=True):
        yield content[start:end]


def _mail(content: bytes, place: str, asked: Asked) -> Patch:
    """Read one mail or diff and complete its header; what only a mailer needs is taken out."""
    head, _, _ = content.partition(b"\n\n")
    if _ENCODED.search(head):
        content = _transferred(content)
    patch = parse(content, name=place, strip=asked.strip)
    crosscheck(patch)
    if not patch.files:
        raise PatchError(place, "holds no diff", "export it with git format-patch or diff -u")
    header = _without_mailer_lines(patch.header)
    if asked.subject:
        header = with_field(header, "Subject", asked.subject)
    read = Header.parse(header)
    subject = read.subject or Path(place).stem.replace("-", " ")
    wanted = (
        ("Subject", subject if read.get("Description") is None else ""),
        ("Origin", asked.origin or ("" if read.author else f"other, {place}")),
        ("Forwarded", "no"),
        ("Last-Update", asked.today.isoformat()),
    )
    for field, value in wanted:
        if value and not Header.parse(header).get(field):
            header = with_field(header, field, value)
    if header.strip() and not header.endswith(b"\n\n"):
        header = header.rstrip(b"\n") + b"\n\n"
    files = _own_form(patch.files if patch.strip == 1 else tuple(map(_at_one, patch.files)))
    return replace(patch, name=asked.name or file_name(subject), header=header, files=files, strip=1)


def _at_one(file: FilePatch) -> FilePatch:
    """Write a file's header anew for ``-p1``, which is all that git am takes."""
    old = file.new_path if file.kind is ChangeKind.MODIFY else file.old_path
    head = file_header(
        file.kind, old, file.new_path, old_mode=file.old_mode, new_mode=file.new_mode, hunks=bool(file.hunks)
    )
    return replace(file, raw_header=head)


def _transferred(content: bytes) -> bytes:
    """Decode a mail's body, as git am does."""
    import email

    mail = email.message_from_bytes(content.partition(b"\n")[2] if content.startswith(b"From ") else content)
    payload = mail.get_payload(decode=True)
    if not isinstance(payload, bytes):
        raise PatchError("the mail", "has several parts", "save the part that holds the patch")
    head = "".join(f"{key}: {mail[key]}\n" for key in ("From", "Date", "Subject") if mail[key])
    return head.encode("utf-8", "surrogateescape") + b"\n" + payload.replace(b"\r\n", b"\n")


def _without_mailer_lines(header: bytes) -> bytes:
    """Take out the mbox line, MIME fields, the diffstat and a subject's number: none of them is the patch's own."""
    head, blank, rest = header.partition(b"\n\n")
    lines: list[bytes] = []
    for line in head.split(b"\n"):
        gone = (not lines and line.startswith(b"From ")) or _MAIL_ONLY.match(line) is not None
        folded = line[:1] in (b" ", b"\t") and (not lines or lines[-1] == b"")
        lines.append(b"" if gone or folded else line)
    head = b"\n".join(line for line in lines if line)
    head = re.sub(rb"(?m)^Subject: *(?:\[[^\]]*\] *)+", b"Subject: ", head)
    text, rule, _ = (b"\n" + rest).partition(b"\n---\n")
    return head + blank + text[1:] + (b"\n---\n\n" if rule else b"")


def _own_form(files: tuple[FilePatch, ...]) -> tuple[FilePatch, ...]:
    """Take out what depends on the clone or the mailer: index lines (but a symlink's) and the signature."""
    bare = [replace(file, raw_header=_INDEX.sub(b"", file.raw_header)) for file in files]
    last = bare[-1]
    bare[-1] = replace(last, trailer=_SIGNATURE.sub(b"", last.trailer))
    return tuple(bare)


def _commit(source: str, upstream: Upstream, asked: Asked, session: Session) -> Incoming:
    tree = open_git(source.removeprefix("git:"), session=session)
    history = History(tree.git_dir)
    name = history.resolve(tree.revision)
    (commit,) = history.read([name])
    message = parse_message(commit.message)
    origin = asked.origin or f"upstream, {upstream.repository.removesuffix('.git').rstrip('/')}/commit/{name}"
    fields = [("Origin", origin), ("Forwarded", "not-needed"), ("Last-Update", asked.today.isoformat())]
    known = {key.lower() for key, _ in fields}
    fields += [(key, value) for key, value in message.fields if key.lower() not in known]
    message = Message(subject=asked.subject or message.subject, body=message.body, fields=tuple(fields), name=None)
    header = header_of(message, old=None, author=commit.author, date=commit.date, today=asked.today)
    shipped = [change for change in commit.changes if upstream.layout.to_wheel(change.path) is not None]
    left_out = tuple(change.path for change in commit.changes if change not in shipped)
    if not shipped:
        raise PatchError(source, "changes nothing that a release ships", "choose another commit")
    file = asked.name or file_name(message.subject)
    patch = parse(header + diff_of(shipped, None), name=file)
    parent = history.parent(name)
    base = GitTree(tree.git_dir, parent, f"{tree.name}^") if parent else None
    return Incoming(patch=patch, base=base, left_out=left_out)


def _shipped(patch: Patch, upstream: Upstream) -> Incoming:
    kept = tuple(file for file in patch.files if upstream.layout.to_wheel(file.path) is not None)
    if not kept:
        raise PatchError(patch.name, "changes nothing that a release ships", "check the strip level: -p0, -p1")
    left_out = tuple(file.path for file in patch.files if file not in kept)
    return Incoming(patch=replace(patch, files=kept), left_out=left_out)
