"""What is large in a result is kept aside, and found again exactly as it was."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from backburner.core.files import tasks_folder
from backburner.core.task import Artifact
from backburner.mcp.results import media_type
from backburner.store.artifacts.folder import OwnFolder
from backburner.tools.results import kept_in_parts, put_back, shortened, stand_in

LARGE = base64.b64encode(bytes(range(256)) * 40).decode()
LARGEST = base64.b64encode(bytes(range(256)) * 400).decode()


def image(data: str, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "mimeType": kind, "data": data, "annotations": {"priority": 1}}


def resource(**contents: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": "file:///out/report.pdf?v=1", **contents}}


class Kept:
    """Keeps bytes as a runner does."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.artifacts: dict[str, Artifact] = {}

    def keep(self, data: bytes, name: str, kind: str) -> str:
        artifact_id = f"art_{len(self.artifacts)}"
        path = tasks_folder(self.data_dir) / "tsk_1" / artifact_id
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        record = Artifact(artifact_id, "tsk_1", 1, name, kind, len(data), "", f"tsk_1/{artifact_id}", 0)
        self.artifacts[artifact_id] = record
        return artifact_id


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


@pytest.mark.parametrize(
    ("block", "name", "kind"),
    [
        (image(LARGE), "image-2.png", "image/png"),
        (image(LARGE, "no type"), "image-2.bin", "application/octet-stream"),
        ({"type": "audio", "mimeType": "audio/wav", "data": LARGE}, "audio-2.wav", "audio/wav"),
        (resource(blob=LARGE, mimeType="application/pdf"), "report.pdf", "application/pdf"),
        (resource(text="größer " * 1000), "report.pdf", "text/plain"),
    ],
)
def test_a_part_is_a_file_with_its_type_and_comes_back_as_it_was(
    kept: Kept, block: dict[str, Any], name: str, kind: str
) -> None:
    result = {"content": [{"type": "text", "text": "before"}, block], "isError": False, "_meta": {"a": 1}}
    small = kept_in_parts(result, 1, kept.keep)
    (part,) = kept.artifacts.values()
    assert (part.name, media_type(part)) == (name, kind)
    assert len(json.dumps(small)) < 500
    assert put_back(small, kept.artifacts, OwnFolder(tasks_folder(kept.data_dir))) == result


def test_the_largest_go_first_and_no_more_than_must(kept: Kept) -> None:
    result = {"content": [image("abcd"), image(LARGE), image(LARGEST), image("no base64 " * 1000)]}
    small = kept_in_parts(result, len(LARGE), kept.keep)
    assert [isinstance(block["data"], str) for block in small["content"]] == [True, True, False, True]
    all_out = kept_in_parts(result, 10**9, kept.keep)
    assert [isinstance(block["data"], str) for block in all_out["content"]] == [True, False, False, True]


def test_what_stands_for_a_result_keeps_what_is_small_in_it() -> None:
    said = {"success": True, "data": {"x": "y" * 5000}, "messages": [{"type": "info", "text": "well"}]}
    blocks = [{"type": "text", "text": "z" * 5000}, image("abcd"), {"type": "text", "text": "end"}]
    result = {"content": blocks, "structuredContent": said, "_meta": {"a": 1}, "isError": False}
    shown = stand_in(result, json.dumps(result), "call_tool_result", size_bytes=7)
    assert shown["said"] == {"success": True, "messages": said["messages"]}
    assert shown["rest"] == {"content": shortened(blocks), "_meta": {"a": 1}, "isError": False}
    head, _, tail = shown["rest"]["content"]
    assert head["text"] == "z" * 2000
    assert "left out" in tail["text"]
    assert tail["text"].endswith("end")
    assert stand_in(said, json.dumps(said), "value")["said"] == shown["said"]
    assert stand_in(None, "null", "value") == {"preview": "null", "tail": "", "truncated": True}
