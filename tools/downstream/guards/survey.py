"""What every file of a tree says by itself, read once and kept by its digest."""

from __future__ import annotations

from collections.abc import Mapping

from downstream.guards.kept import Kept, Store
from downstream.guards.profile import THIRD_PARTY, Profile, digest, profile
from downstream.guards.texts import Texts
from downstream.guards.workers import shared_out
from downstream.progress import Progress


def survey(
    texts: Texts, name: str, progress: Progress, store: Store | None, *, known: Mapping[str, Profile]
) -> dict[str, Profile]:
    """The profile of each of *texts*, in their order; those in *known* are not made again."""
    kept = Kept(store, "profiles", [name])

    def look(path: str) -> tuple[str, list[object] | None]:
        content = texts.passing(path)
        found = digest(content)
        return found, None if _key(path, found) in kept else profile(path, content).to_json()

    made: dict[str, Profile] = {}
    asked = [path for path in texts if path not in known]
    with progress.task(f"read {name}", len(asked)) as task:
        for path, (found, row) in shared_out(look, [(path, 1) for path in asked], apart=texts.shared):
            key = _key(path, found)
            if row is not None:
                kept.add(key, row)
            made[path] = Profile.from_json(kept[key])
            task.advance()
    kept.save(None if known else {_key(path, one.digest) for path, one in made.items()})
    return {path: known[path] if path in known else made[path] for path in texts}


def _key(path: str, found: str) -> str:
    """Python, C++ and what others bundle are read differently."""
    kind = "py" if path.endswith(".py") else "other" if THIRD_PARTY.search(path) else "c"
    return f"{kind} {found}"
