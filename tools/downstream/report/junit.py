"""Results as JUnit XML: a suite per patch, a case per hunk."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from downstream.placing.verdict import HunkStatus, PatchResult
from downstream.report.context import Located, ReportContext, decoded, located, printable
from downstream.report.wording import ADVICE, meaning, since, to_review, whereabouts

_NOT_XML = re.compile("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(results: Sequence[PatchResult], *, context: ReportContext) -> str:
    """Return the document; a malformed hunk is an error, any other that is not fine a failure."""
    return together([(results, context)])


def together(reports: Sequence[tuple[Sequence[PatchResult], ReportContext]]) -> str:
    """Return one document about several upstreams."""
    title = ", ".join(context.title for _, context in reports)
    root = ET.Element("testsuites", name=legal(f"{reports[0][1].command} {title}".strip()))
    for results, context in reports:
        places = list(located(results, context))
        for result in results:
            suite = ET.SubElement(root, "testsuite", name=legal(context.patch_path(result.patch)))
            mine = [place for place in places if place.patch is result]
            for place in mine:
                _case(suite, place)
            if not mine:
                _whole(suite, result)
            _count(suite)
    _count(root)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, place: Located) -> None:
    name = f"{place.file.path} {place.subject}" + (f" line {place.old_line}" if place.old_line else "")
    case = ET.SubElement(
        suite,
        "testcase",
        classname=legal(place.patch.patch),
        name=legal(name),
        file=legal(place.path),
        line=str(place.at),
    )
    said = f"{place.status.value}: {meaning(place)}" + (f" ({since(place)})" if place.since else "")
    if place.status.fine:
        review = to_review(place)
        ET.SubElement(case, "system-out").text = legal(said + (f"\nreview: {review}" if review else ""))
        return
    fault = "error" if place.status is HunkStatus.MALFORMED else "failure"
    mark = ET.SubElement(case, fault, type=place.status.value, message=legal(said))
    lines = [f"{line:>7} | {decoded(text)}" for line, text in place.hunk.found] if place.hunk else []
    lines += whereabouts(place.hunk) if place.hunk else []
    mark.text = "\n".join(legal(line) for line in (*lines, f"next: {ADVICE[place.status]}"))


def _whole(suite: ET.Element, result: PatchResult) -> None:
    case = ET.SubElement(suite, "testcase", classname=legal(result.patch), name="patch")
    if not result.fine:
        said = f"{result.status.value}: {result.reason}".rstrip(": ")
        ET.SubElement(case, "error", type=result.status.value, message=legal(said))


def _count(element: ET.Element) -> None:
    cases = list(element.iter("testcase"))
    element.set("tests", str(len(cases)))
    for fault in ("failure", "error"):
        element.set(f"{fault}s", str(sum(case.find(fault) is not None for case in cases)))


def legal(text: str) -> str:
    """Only what XML 1.0 may hold; the rest is shown escaped."""
    return _NOT_XML.sub(lambda found: repr(found[0])[1:-1], printable(text).replace("\\x0a", "\n"))
