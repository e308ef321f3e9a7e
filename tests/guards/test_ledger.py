"""The ledger: entries by fingerprint and by pattern, what they cover, what is gone."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from downstream.arches import parse_targets
from downstream.errors import GuardError
from downstream.guards.audit import Scope, audit
from downstream.guards.difference import difference
from downstream.guards.ledger import Entry, Ledger, hold, load, load_filled, read
from downstream.guards.model import Audit, Guard, Question
from downstream.guards.review import counted, save, template, written
from downstream.trees.tree import MemoryTree

DAY = datetime.date(2026, 1, 1)
QUESTION = Question(references=parse_targets("90 100"), targets=parse_targets("120"))
GUARD = "#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200\n  f();\n#endif\n"


def kernel(name: str, *, guards: int = 1) -> str:
    return f"__device__ void {name}() {{\n  int before;\n{GUARD * guards}  int after;\n}}\n"


def audited(**files: str) -> Audit:
    tree = MemoryTree({f"include/{name}.cuh": text.encode() for name, text in files.items()}, name="a tree")
    return audit(tree, Scope(question=QUESTION))


def entry(guard: Guard | None = None, **fields: object) -> Entry:
    given = {"reason": "tcgen05 does not exist there", "reviewer": "me", "date": DAY, **fields}
    if guard is not None:
        given["fingerprint"] = guard.fingerprint
    return Entry(**given)  # type: ignore[arg-type]


def test_an_entry_covers_its_guard_though_lines_move_and_spaces_change() -> None:
    (guard,) = audited(a=kernel("f")).guards
    moved = "// a new line\n\n" + kernel("f").replace("&&", " &&  ")
    (later,) = audited(a=moved).guards
    assert later.line == guard.line + 2
    reading = hold(Ledger(path=Path("guards.toml"), entries=(entry(guard),)), [later])
    assert (list(reading.covered), reading.unreviewed, reading.gone) == ([guard.fingerprint], (), ())


def test_a_changed_condition_or_function_asks_again() -> None:
    (guard,) = audited(a=kernel("f")).guards
    for changed in (kernel("f").replace("1200", "1201"), kernel("g")):
        reading = hold(Ledger(path=Path("guards.toml"), entries=(entry(guard),)), audited(a=changed).guards)
        assert (len(reading.unreviewed), len(reading.gone)) == (1, 1)


def test_equal_guards_of_one_function_are_told_apart() -> None:
    guards = audited(a=kernel("f", guards=2)).guards
    assert [guard.ordinal for guard in guards] == [0, 1]
    reading = hold(Ledger(path=Path("guards.toml"), entries=(entry(guards[0]),)), guards)
    assert reading.unreviewed == (guards[1],)


def test_a_pattern_says_how_many_guards_it_covers() -> None:
    guards = audited(a=kernel("f", guards=3), b=kernel("g")).guards
    pattern = entry(paths=("include/a*",), covers=3)
    reading = hold(Ledger(path=Path("guards.toml"), entries=(pattern,)), guards)
    assert (len(reading.covered), [guard.path for guard in reading.unreviewed]) == (3, ["include/b.cuh"])
    assert reading.miscounted == ()
    wrong = replace(pattern, covers=2)
    assert hold(Ledger(path=Path("guards.toml"), entries=(wrong,)), guards).miscounted == ((wrong, 3),)


@pytest.mark.parametrize(
    ("fields", "covered"),
    [
        ({"function": "f"}, 1),
        ({"function": "*"}, 2),
        ({"condition": "__CUDA_ARCH__ >= 900&&__CUDA_ARCH__<1200"}, 2),
        ({"condition": "__CUDA_ARCH__ == 900"}, 0),
        ({"kind": "python"}, 0),
        ({"kind": "preprocessor"}, 2),
    ],
)
def test_a_pattern_can_be_narrowed(fields: dict[str, str], covered: int) -> None:
    guards = audited(a=kernel("f"), b=kernel("g")).guards
    narrowed = replace(entry(paths=("include/*",), covers=2), **fields)  # type: ignore[arg-type]
    ledger = Ledger(path=Path("guards.toml"), entries=(narrowed,))
    assert len(hold(ledger, guards).covered) == covered


def test_an_entry_for_one_guard_comes_before_a_pattern() -> None:
    (guard,) = audited(a=kernel("f")).guards
    alone = entry(guard)
    ledger = Ledger(path=Path("guards.toml"), entries=(entry(paths=("*",), covers=1), alone))
    assert ledger.entry(guard) is alone


def test_what_is_written_is_read_back_and_written_again_the_same(tmp_path: Path) -> None:
    (guard,) = audited(a=kernel("f")).guards
    entries = (
        entry(guard, where=guard.where, hardware='"quoted" \\ and\nbroken'),
        entry(paths=("csrc/*", "include/*"), covers=7, condition="A && B", function="f*", kind="host"),
    )
    path = tmp_path / "guards.toml"
    save(Ledger(path=path, entries=entries))
    first = path.read_bytes()
    ledger = load(path)
    assert ledger.entries == entries
    save(ledger)
    assert path.read_bytes() == first


def test_the_comment_at_the_top_survives(tmp_path: Path) -> None:
    path = tmp_path / "guards.toml"
    path.write_text("# ours\n# alone\nschema = 1\n")
    save(replace(load(path), entries=(entry(paths=("*",), covers=1),)))
    assert path.read_text().startswith("# ours\n# alone\nschema = 1\n\n[[guard]]\n")


def test_a_missing_ledger_is_an_empty_one(tmp_path: Path) -> None:
    assert load(tmp_path / "guards.toml").entries == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("schema = 2", "schema is 2"),
        ("schema = 1\nguard = 3", "must be a list"),
        ("schema = 1\n[[guard]]\nfingerprint = 'x'\nreviewer = 'me'\ndate = 2026-01-01", "lacks 'reason'"),
        ("schema = 1\n[[guard]]\nreason = 'x'\nreviewer = 'me'\ndate = 2026-01-01", "either a fingerprint or paths"),
        ("schema = 1\n[[guard]]\npaths = ['a']\nreason = 'x'\nreviewer = 'me'\ndate = 2026-01-01", "covers = N"),
        ("schema = 1\n[[guard]]\npaths = 'a'\nreason = 'x'\nreviewer = 'me'\ndate = 2026-01-01", "list of patterns"),
        ("schema = 1\n[[guard]]\nfingerprint = 'x'\nreason = 'x'\nreviewer = 'me'\ndate = 'today'", "must be a date"),
        (
            "schema = 1\n[[guard]]\nfinger = 'x'\nreason = 'x'\nreviewer = 'me'\ndate = 2026-01-01",
            "unknown fields: finger",
        ),
        ("schema = ", "Invalid value"),
    ],
)
def test_a_malformed_ledger_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(GuardError, match=problem) as caught:
        read(text, Path("guards.toml"))
    assert caught.value.place.startswith("guards.toml")


def test_a_template_has_an_entry_to_fill_in_for_each_guard(tmp_path: Path) -> None:
    guards = audited(a=kernel("f"), b=kernel("g")).guards
    text = template(guards, reviewer="me", date=DAY)
    assert text.count('reason = ""') == 2
    with pytest.raises(GuardError, match="lacks 'reason'"):
        read(text, Path("filled.toml"))
    filled = read(text.replace('reason = ""', 'reason = "why"'), Path("filled.toml"))
    assert hold(filled, guards).unreviewed == ()


def test_what_is_known_of_a_guard_stands_above_its_entry_as_a_comment() -> None:
    (guard,) = audited(a=kernel("f")).guards
    text = template([guard], reviewer="me", date=DAY, notes={guard.fingerprint: 'suspect\n\n    4 code("]");'})
    assert '\n\n# suspect\n#\n#     4 code("]");\n[[guard]]\nfingerprint = ' in text
    with pytest.raises(GuardError, match="lacks 'reason'"):  # it still reads as TOML
        read(text, Path("filled.toml"))


def test_a_filled_in_pattern_is_counted_and_what_has_no_reason_yet_is_left_for_later(tmp_path: Path) -> None:
    guards = audited(a=kernel("f"), b=kernel("g") + kernel("h")).guards
    path = tmp_path / "filled.toml"
    head = "schema = 1\n"
    table = "[[guard]]\n{}\nreason = '{}'\nreviewer = 'me'\ndate = 2026-01-01\n"
    path.write_text(
        head + table.format("paths = ['include/*']", "r") + table.format("fingerprint = 'feedfacecafe'", "")
    )
    filled = load_filled(path).entries
    assert [(each.covers, each.reason) for each in filled] == [(0, "r"), (1, "")]
    before = (entry(guards[0]),)
    assert [each.covers for each in counted(filled[:1], before, guards)] == [2]
    assert [each.covers for each in counted(filled[:1], (), guards)] == [3]
    with pytest.raises(GuardError, match="covers = N"):
        load(path)


def test_no_entries_are_written_as_an_empty_ledger() -> None:
    assert read(written(()), Path("guards.toml")).entries == ()


def test_a_bump_shows_new_gone_and_moved_guards() -> None:
    old = audited(a=kernel("f") + kernel("g"), b=kernel("h"), c=kernel("k"))
    new = audited(a="\n" + kernel("f") + kernel("new"), b2=kernel("h"), c=kernel("k"))
    found = difference(old, new)
    assert [guard.function for guard in found.appeared] == ["new"]
    assert [guard.function for guard in found.gone] == ["g"]
    assert [(a.path, a.line, b.path, b.line) for a, b in found.moved] == [
        ("include/a.cuh", 3, "include/a.cuh", 4),
        ("include/b.cuh", 3, "include/b2.cuh", 3),
    ]
    assert found.kept == 1


def test_a_guard_that_is_judged_otherwise_is_named() -> None:
    old = audited(a=kernel("f"))
    new = audited(a=kernel("f").replace("f();\n#endif", 'asm("wgmma.fence.sync;");\n#endif'))
    found = difference(old, new, everything=True)
    assert [(str(a.verdict_class), str(b.verdict_class)) for a, b in found.changed] == [("suspect", "hardware")]
