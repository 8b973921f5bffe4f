"""One wait for many tasks, one submission of many, and how few words both take."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect
from tests.system.interop.serving import serving

SCRIPT = Path(__file__).with_name("many_server.py")
UNKNOWN = "tsk_" + "0" * 36


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, str]]:
    """One server for all tests, and its address."""
    settings = {"mcp__patience_s": "60", "supervisor__idle_exit_s": "0"}
    deployment = Deployment(tmp_path_factory.mktemp("many"), (SCRIPT,), settings)
    with serving(deployment) as url:
        yield deployment, url


async def gates(peer: Peer, folder: Path, *names: str) -> list[str]:
    """Tasks that end when a file of their name is made."""
    tasks = [{"tool_name": "gate", "inputs": {"folder": str(folder), "name": name}} for name in names]
    submitted = await peer.tool("submit_task", tasks=tasks)
    return [task["task_id"] for task in submitted["tasks"]]


def text_of(result: dict[str, Any]) -> str:
    return "\n".join(block.get("text", "") for block in result["content"])


def told(waited: dict[str, Any]) -> dict[str, Any]:
    """What a wait said of each task that it said anything of."""
    return {task["task_id"]: task.get("result", task["state"]) for task in waited["tasks"]}


async def test_each_end_is_told_once_also_by_another_server(
    many: tuple[Deployment, str], tmp_path: Path
) -> None:
    deployment, url = many
    async with connect(url, "2026", tasks=False) as peer:
        a, b, c = await gates(peer, tmp_path, "a", "b", "c")
        ids = [a, b, c]
        (tmp_path / "b").touch()
        first = await peer.tool("wait_for_task", task_ids=ids)
        assert told(first)[b] == "b opened"
        assert (first["finished"], first["unfinished"]) == (False, 2)
        (tmp_path / "a").touch()
        second = await peer.tool("wait_for_task", task_ids=ids, cursor=first["cursor"])
        assert told(second)[a] == "a opened"
        assert b not in told(second)
    async with connect(deployment.stdio(), "2025", tasks=False) as other:
        last = await other.tool("wait_for_task", task_ids=ids, cursor=second["cursor"], timeout_s=0)
        (tmp_path / "c").touch()
        heard = told(last)
        while not last["finished"]:
            last = await other.tool("wait_for_task", task_ids=ids, cursor=last["cursor"])
            heard |= told(last)
        assert heard == {c: "c opened"}
        nothing = await other.call("wait_for_task", {"task_ids": ids, "cursor": last["cursor"]})
        assert nothing["structuredContent"]["tasks"] == []
        assert text_of(nothing) == "All 3 tasks are finished."
        anew = await other.tool("wait_for_task", task_ids=[*ids, a])
        assert list(told(anew)) == ids


async def test_a_step_is_told_once_and_ends_no_wait_and_all_waits_for_all(
    many: tuple[Deployment, str], tmp_path: Path
) -> None:
    async with connect(many[1], "2025", tasks=False) as peer:
        ids = await gates(peer, tmp_path, "a", "b")
        (tmp_path / "a").touch()
        (tmp_path / "b.half").touch()
        while (await peer.tool("get_task_status", task_id=ids[1]))["progress"] is None:
            pass
        await peer.tool("wait_for_task", task_id=ids[0])
        waited = await peer.call("wait_for_task", {"task_ids": ids, "for": "all", "timeout_s": 0.1})
        assert f"{ids[1]} (gate) is not finished: second half, 60%" in text_of(waited)
        again = await peer.tool(
            "wait_for_task", task_ids=ids, cursor=waited["structuredContent"]["cursor"], timeout_s=0.1
        )
        assert again["tasks"] == []
        assert again["cursor"] != waited["structuredContent"]["cursor"]
        assert again["next"].endswith(f"with the same task_ids and cursor {again['cursor']}")
        (tmp_path / "b").touch()
        done = await peer.tool("wait_for_task", **{"task_ids": ids, "for": "all", "cursor": again["cursor"]})
        assert (done["finished"], told(done)) == (True, {ids[1]: "b opened"})


async def test_results_that_are_too_much_for_one_answer_come_one_after_another(
    many: tuple[Deployment, str],
) -> None:
    async with connect(many[1], "2026", tasks=False) as peer:
        tasks = [{"tool_name": "story", "inputs": {"lines": 3000}} for _ in range(4)]
        ids = [task["task_id"] for task in (await peer.tool("submit_task", tasks=tasks))["tasks"]]
        got: list[str] = []
        waited: dict[str, Any] = {"cursor": None}
        answers = 0
        while not waited.get("finished"):
            result = await peer.call(
                "wait_for_task", {"task_ids": ids, "for": "all", "cursor": waited["cursor"]}
            )
            waited, answers = result["structuredContent"], answers + 1
            assert len(json.dumps(waited, ensure_ascii=False).encode()) < 90_000
            got += told(waited)
        assert sorted(got) == sorted(ids)
        assert answers >= 2


async def test_a_bad_one_does_not_lose_the_others_of_a_batch(many: tuple[Deployment, str]) -> None:
    async with connect(many[1], "2025", tasks=False) as peer:
        tasks: list[dict[str, Any]] = [
            {"tool_name": "later"},
            {"tool_name": "no-such-tool"},
            {"tool_name": "story", "inputs": {"lines": "x"}},
            {"tool_name": "later", "priority": 10**9},
            {"inputs": {}},
            {"tool_name": "fail", "idempotency_key": "one", "tags": ["batch"]},
            {"tool_name": "fail", "idempotency_key": "one", "tags": ["batch"]},
        ]
        result = await peer.call("submit_task", {"tasks": tasks})
        each = result["structuredContent"]["tasks"]
        refused = ["unknown_tool", "invalid_inputs", "invalid_inputs", "invalid_inputs"]
        assert [one["error"]["code"] for one in each[1:5]] == refused
        assert "tasks[1] was refused: There is no slow tool named 'no-such-tool'" in text_of(result)
        assert each[5]["task_id"] == each[6]["task_id"]
        ids = [each[0]["task_id"], each[5]["task_id"]]
        assert json.dumps(ids[0]) in text_of(result)
        done = await peer.call("wait_for_task", {"task_ids": ids, "for": "all"})
        assert told(done["structuredContent"]) == {ids[0]: "well done", ids[1]: "failed"}
        assert "The task is failed.\nit broke" in text_of(done)
        none = await peer.call("submit_task", {"tasks": [{"tool_name": "no-such-tool"}]})
        assert none["isError"] is True


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("submit_task", {}, "invalid_request"),
        ("submit_task", {"tasks": []}, "invalid_inputs"),
        ("submit_task", {"tasks": [{"tool_name": "later"}], "tool_name": "later"}, "invalid_request"),
        ("submit_task", {"tasks": [{"tool_name": "later"}] * 101}, "invalid_inputs"),
        ("wait_for_task", {}, "invalid_request"),
        ("wait_for_task", {"task_id": UNKNOWN, "task_ids": [UNKNOWN]}, "invalid_request"),
        ("wait_for_task", {"task_ids": []}, "invalid_inputs"),
        ("wait_for_task", {"task_ids": [UNKNOWN]}, "task_not_found"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    many: tuple[Deployment, str], name: str, arguments: dict[str, Any], code: str
) -> None:
    async with connect(many[1], "2025", tasks=False) as peer:
        refused = await peer.call(name, arguments)
        assert refused["isError"] is True
        assert refused["structuredContent"]["error"]["code"] == code


async def test_a_task_costs_a_model_few_words_besides_its_result(many: tuple[Deployment, str]) -> None:
    """By either form, since hosts show one of them; a token is taken for four characters."""
    async with connect(many[1], "2025", tasks=False) as peer:
        handle = await peer.call("later")
        task_id = handle["structuredContent"]["data"]["job_id"]
        asked = {"task_id": task_id}
        waited = await peer.call("wait_for_task", asked)
        assert [block["text"] for block in waited["content"]] == ["well done"]
        data = [json.dumps(answer["structuredContent"]) for answer in (handle, waited)]
        texts = [text_of(handle), json.dumps(asked)]
        assert "call wait_for_task with this task_id" in texts[0]
        assert sum(map(len, texts)) / 4 <= 100
        assert sum(map(len, [*data, *texts])) / 4 <= 300
