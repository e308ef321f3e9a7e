from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import jsonschema

from downstream.placing.verdict import HunkStatus, PatchResult, PatchStatus
from downstream.report import json as report
from downstream.report.context import ReportContext

GOLDEN = Path(__file__).with_name("schema1.json")

# The schema 1, written as a JSON schema; what we add besides may grow, this may not change.
SCHEMA = {
    "type": "object",
    "required": ["schema", "command", "ok", "patches"],
    "properties": {
        "schema": {"const": 1},
        "command": {"type": "string"},
        "ok": {"type": "boolean"},
        "patches": {
            "type": "array",
            "items": {
                "required": ["patch", "status", "files"],
                "properties": {
                    "status": {"enum": [status.value for status in PatchStatus]},
                    "files": {
                        "type": "array",
                        "items": {
                            "required": ["path", "status", "hunks"],
                            "properties": {"hunks": {"type": "array", "items": {"$ref": "#/definitions/hunk"}}},
                        },
                    },
                },
            },
        },
    },
    "definitions": {
        "hunk": {
            "required": ["number", "status", "line", "offset", "hint_fuzz", "since", "reason"],
            "properties": {
                "number": {"type": "integer", "minimum": 1},
                "status": {
                    "enum": [
                        "clean",
                        "offset",
                        "merged",
                        "upstreamed",
                        "misplaced",
                        "ambiguous",
                        "conflict",
                        "file-gone",
                        "file-moved",
                        "line-endings",
                        "malformed",
                    ]
                },
                "line": {"type": ["integer", "null"]},
                "offset": {"type": ["integer", "null"]},
                "hint_fuzz": {"type": ["integer", "null"]},
                "since": {"type": ["string", "null"]},
                "reason": {"type": "string"},
            },
        }
    },
}


def test_the_document_is_the_golden_one(results: Sequence[PatchResult], context: ReportContext) -> None:
    rendered = report.render(results, context=context)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(rendered, encoding="utf-8")
    assert rendered == GOLDEN.read_text(encoding="utf-8")


def test_the_document_keeps_to_schema_1(results: Sequence[PatchResult], context: ReportContext) -> None:
    document = json.loads(report.render(results, context=context))
    jsonschema.validate(document, SCHEMA)
    assert list(document)[:3] == ["schema", "command", "ok"]
    assert {hunk["status"] for patch in document["patches"] for file in patch["files"] for hunk in file["hunks"]} <= {
        status.value for status in HunkStatus
    }


def test_ok_is_the_exit_code_in_a_word(
    results: Sequence[PatchResult], fine: Sequence[PatchResult], context: ReportContext
) -> None:
    assert json.loads(report.render(results, context=context))["ok"] is False
    assert json.loads(report.render(fine, context=context))["ok"] is True


def test_bytes_that_are_no_utf8_come_back_as_they_were(results: Sequence[PatchResult], context: ReportContext) -> None:
    encoded = report.render(results, context=context).encode("utf-8")
    found = json.loads(encoded)["patches"][0]["files"][0]["hunks"][1]["found"]
    assert [entry["text"].encode("utf-8", "surrogateescape") for entry in found] == [
        b"#if (defined(__CUDA_ARCH__))",
        b"  caf\xe9\x1b[2J",
    ]


def test_bytes_fetched_are_left_out_since_a_warm_cache_would_change_them(
    results: Sequence[PatchResult], context: ReportContext
) -> None:
    assert "1234567" not in report.render(results, context=context)
