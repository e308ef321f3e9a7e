"""The notice of modification that the licence asks for (Apache License 2.0, section 4, b)."""

from __future__ import annotations

from collections.abc import Mapping

from downstream.patched import PatchedTree

NAME = "NOTICE.sm120-overlay"

_TEXT = """\
NOTICE OF MODIFICATION (Apache License 2.0, section 4, b)

{package} {local} is a modified build of {package} {version}, made from
  {file}
  sha256 {sha256}
It was changed for NVIDIA SM120 GPUs by the sm120-overlay project. It is not
published, supported or endorsed by the authors of {package}, whose licence and
notices beside this file stay in force. The patches, with their authors and
reasons, are in the software bill of materials under ../sboms/.

"""


def notice(tree: PatchedTree, upstream_file: str, changes: Mapping[str, bytes | None], known: frozenset[str]) -> bytes:
    """Return the notice for a wheel with *changes* (member: content, None removed) against the *known* members."""
    pin = tree.pin
    text = _TEXT.format(
        package=pin.upstream.package,
        local=pin.local_version,
        version=pin.version,
        file=upstream_file,
        sha256=pin.sha256[upstream_file],
    )
    modified = [name for name, content in changes.items() if content is not None and name in known]
    added = [name for name, content in changes.items() if content is not None and name not in known]
    removed = [name for name, content in changes.items() if content is None]
    for title, names in (("Modified", modified), ("Added", added), ("Removed", removed)):
        if names:
            text += f"{title} files:\n" + "".join(f"  {name}\n" for name in sorted(names)) + "\n"
    text += "Patches, in order:\n" + "".join(f"  {name}\n" for name in tree.patches) if tree.patches else ""
    return text.encode("utf-8", "surrogateescape")
