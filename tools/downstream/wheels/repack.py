"""A published wheel rewritten with the files that the series and the overlay name (DESIGN 10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from downstream.errors import WheelError
from downstream.patched import PatchedTree
from downstream.pins import Line, Pin
from downstream.wheels import sbom
from downstream.wheels.archive import Archive, open_archive
from downstream.wheels.changes import Changes, changes_for, siblings_of
from downstream.wheels.metadata import edit_metadata, edit_wheel
from downstream.wheels.naming import WheelName, dist_info_of, parse_name, tag_violations
from downstream.wheels.notice import NAME as NOTICE
from downstream.wheels.notice import notice
from downstream.wheels.record import Row, read_rows, row, write_rows
from downstream.wheels.rules import SIGNATURES, RefusedError, Rule, Violation, native_violations
from downstream.wheels.writer import ArchiveWriter, whole

GENERATOR = "sm120-overlay-repack 1"  # the number moves when the same inputs give other bytes


def repack(
    upstream: Path, tree: PatchedTree, folder: Path, *, line: Line, epoch: int, rehash: frozenset[str] = frozenset()
) -> Path:
    """Write *tree*'s build of the published wheel *upstream* into *folder*; return its path.

    Unchanged members keep their compressed bytes and, where its row is well formed, upstream's
    word for their digest; the gate reads them all, and *rehash* names those whose word is bad.
    *epoch* is the time of every member, in seconds. Written whole or not at all. Raises
    WheelError naming member and rule where wheel, pin and tree do not fit each other.
    """
    name = parse_name(upstream.name)
    _check_pinned(name, tree.pin)
    archive = open_archive(upstream)
    old_dist_info = dist_info_of(archive.entries, name)
    _check_upstream(archive, name, old_dist_info)
    renames = Renames(old_dist_info, tree.pin)
    changes = changes_for(archive, tree)
    rewritten = _dist_info(archive, old_dist_info, tree, line, changes)
    content = {renames(member): text for member, text in changes.files.items()}
    content |= {f"{renames.new_dist_info}/{part}": text for part, text in rewritten.items()}
    modes = {renames(member): mode for member, mode in changes.modes.items()}
    target = folder / name.with_version(tree.pin.local_version)
    with whole(target) as stream:
        _write(ArchiveWriter(stream, epoch=epoch), archive, renames, content=content, modes=modes, rehash=rehash)
    return target


@dataclass(frozen=True, slots=True)
class Renames:
    """How members are called in the new wheel: the dist-info and .data folders bear its version."""

    old_dist_info: str
    pin: Pin

    @property
    def new_dist_info(self) -> str:
        distribution = self.old_dist_info.removesuffix(".dist-info").rpartition("-")[0]
        return f"{distribution}-{self.pin.local_version}.dist-info"

    def __call__(self, member: str) -> str:
        top, slash, rest = member.partition("/")
        if top == self.old_dist_info:
            return self.new_dist_info + slash + rest
        if top == self.old_dist_info.removesuffix(".dist-info") + ".data":
            return self.new_dist_info.removesuffix(".dist-info") + ".data" + slash + rest
        return member


def _check_pinned(name: WheelName, pin: Pin) -> None:
    if name.text not in pin.sha256:
        known = ", ".join(sorted(pin.sha256))
        raise WheelError(name.text, f"{Rule.OTHER_BASE}: is no file of the pin {pin}", f"give one of: {known}")
    if name.version != pin.version:
        raise WheelError(name.text, f"{Rule.VERSION}: is version {name.version}, the pin is {pin.version}")


def _check_upstream(archive: Archive, name: WheelName, info: str) -> None:
    for part in ("METADATA", "WHEEL", "RECORD"):
        if f"{info}/{part}" not in archive.entries:
            raise RefusedError(
                name.text, [Violation(member=f"{info}/{part}", rule=Rule.DIST_INFO, detail="is missing")]
            )
    violations = [
        *tag_violations(archive.read(f"{info}/WHEEL") or b"", name, f"{info}/WHEEL"),
        *native_violations(archive.entries, pure=name.pure),
    ]
    if violations:
        raise RefusedError(name.text, violations)


def _dist_info(archive: Archive, info: str, tree: PatchedTree, line: Line, changes: Changes) -> Mapping[str, bytes]:
    """Return the new and rewritten files of the dist-info folder, RECORD excepted."""
    pin, name = tree.pin, archive.name
    written = {
        f"licenses/{NOTICE}": notice(tree, name, changes.files, frozenset(archive.entries)),
        sbom.file_name(pin.upstream.package): sbom.sbom(tree, name),
    }
    for part in written:
        if f"{info}/{part}" in archive.entries:
            raise RefusedError(
                name, [Violation(member=f"{info}/{part}", rule=Rule.DUPLICATE, detail="upstream has it, too")]
            )
    written["METADATA"] = edit_metadata(
        archive.read(f"{info}/METADATA") or b"",
        place=f"{name}: {info}/METADATA",
        local=pin.local_version,
        siblings=siblings_of(pin, line),
        license_file=NOTICE,
    )
    written["WHEEL"] = edit_wheel(
        archive.read(f"{info}/WHEEL") or b"", place=f"{name}: {info}/WHEEL", generator=GENERATOR
    )
    return written


def _write(
    out: ArchiveWriter,
    archive: Archive,
    renames: Renames,
    *,
    content: Mapping[str, bytes | None],
    modes: Mapping[str, int],
    rehash: frozenset[str],
) -> None:
    """Write the members of *archive* under their new names, *content* instead of theirs (None: left out)."""
    old_record, record = f"{renames.old_dist_info}/RECORD", f"{renames.new_dist_info}/RECORD"
    dropped = {old_record, *(f"{renames.old_dist_info}/{name}" for name in SIGNATURES)}
    kept = {renames(member): entry for member, entry in archive.entries.items() if member not in dropped}
    said = read_rows(archive.read(old_record) or b"")
    rows: list[Row] = []
    for name in _ordered({*kept, *content}, f"{renames.new_dist_info}/"):
        entry = kept.get(name)
        if name not in content:
            assert entry is not None
            out.copy(entry, name, archive.raw(entry))
            known = said.get(entry.name)
            if known is None or known.size != entry.size or name in rehash:
                known = row(name, archive.chunks(entry))
            rows.append(known if name == known.path else known._replace(path=name))
        elif (text := content[name]) is not None:
            usual = entry.mode if entry else 0o644
            out.store(name, text, mode=0o777 & modes[name] if name in modes else usual)
            rows.append(row(name, [text]))
    out.store(record, write_rows(rows, record))
    out.finish()


def _ordered(names: Iterable[str], dist_info: str) -> list[str]:
    """Return *names* sorted, *dist_info* last: whoever wants only the metadata reads the end of the file."""
    ordered = sorted(names)
    last = [name for name in ordered if name.startswith(dist_info)]
    return [name for name in ordered if not name.startswith(dist_info)] + last
