"""The host's half of the TaskId contract."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from backburner.client import AsyncTask, BackburnerClient, HostPoller
from backburner.core.files import write_json
from backburner.errors import ConfigError, NoResultInTime, UnknownHandle
from tests.deployment import Deployment
from tests.integration.client.gates import Gates
from tests.services import until, wait_until

HOST = Path(__file__).with_name("host.py")
LOG = "ui-prompts.jsonl"


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


def entry(request_id: str, **prompt: Any) -> bytes:
    shown = {"kind": "result", **prompt}
    line = {"type": "ui_prompt", "action": "request", "requestId": request_id, "prompt": shown}
    return json.dumps(line).encode() + b"\n"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


class Server:
    """A server's half in a few lines: it notes each call and acknowledges it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = []
        self.refuses = False

    async def __call__(
        self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> types.CallToolResult:
        self.calls.append((name, arguments, meta))
        text = types.TextContent(text="refused" if self.refuses else "accepted")
        return types.CallToolResult(content=[text], is_error=self.refuses)

    def task_id(self, i: int = -1) -> str:
        return str(self.calls[i][2]["taskId"])


@asynccontextmanager
async def polling(server: Server, folder: Path, **options: Any) -> AsyncIterator[HostPoller]:
    settings = AsyncTask(tools=("run",), state_dir=folder)
    poller = HostPoller(server, settings, poll_s=0.01, **options)
    try:
        yield poller
    finally:
        await poller.close()


# -- the document's checklist, with the server in a process of its own -----------------------------


async def test_the_validation_checklist(deployment: Deployment, gates: Gates) -> None:
    state = deployment.folder / "state"
    settings = AsyncTask(tools=("gates_by_task_id",), state_dir=state)
    sessions: list[Client] = []
    acknowledged = asyncio.Event()

    async def call_tool(
        name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> types.CallToolResult:
        result = await sessions[-1].call_tool(name, dict(arguments), meta=dict(meta))  # type: ignore[arg-type]
        acknowledged.set()
        return result

    with deployment.http() as server:
        poller = HostPoller(call_tool, settings)
        async with Client(server.url) as first:
            sessions.append(first)
            # 1. Without a task id the server refuses.
            with pytest.raises(MCPError):
                await first.call_tool("gates_by_task_id", {"folder": str(gates.folder)})
            # 2. With one, the call stays pending.
            call = asyncio.ensure_future(poller.call("gates_by_task_id", {"folder": str(gates.folder)}))
            await until((state / "mcp_tasks.v1.json").exists)
            (task_id,) = await until(lambda: list(poller.pending))
            gates.open(1)
            await until(lambda: gates.passed(1))
            await asyncio.wait_for(acknowledged.wait(), 30)
            assert not call.done()
            status = await poller.status(task_id)
            assert status is not None
            assert status["status"] in ("queued", "running")
        # 5. Another session takes the place of the first; the call goes on.
        async with Client(server.url) as second:
            sessions.append(second)
            assert not call.done()
            gates.end()
            result = await asyncio.wait_for(call, 30)
    # 3. and 4. The result is what the entry says, which is what the panel shows.
    (shown,) = [json.loads(line) for line in (state / LOG).read_text().splitlines()]
    assert shown["requestId"] == task_id
    assert text_of(result) == shown["prompt"]["markdown"] == "passed 1 gates"
    assert not poller.pending
    await poller.close()


@pytest.mark.slow
def test_a_host_that_is_killed_finds_its_pending_calls_again(deployment: Deployment, gates: Gates) -> None:
    pending_file = deployment.folder / "pending.json"
    arguments = (str(deployment.folder / "state"), str(pending_file), str(gates.folder))
    with deployment.run(HOST, *arguments) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "pending\n"
        host.kill()
    gates.open(1)
    gates.end()
    assert wait_until(lambda: gates.passed(1))
    with deployment.run(HOST, *arguments) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "found\n"
        # Nobody serves any more who could write the line; the next server catches up.
        with deployment.http() as server:
            asyncio.run(_greet(server.url))
            assert host.stdout.readline() == "result passed 1 gates\n"
            assert host.wait(20) == 0
    assert json.loads(pending_file.read_text())["pending"] == []


async def _greet(url: str) -> None:
    async with BackburnerClient(url) as client:
        await client.call("count", n=1)


# -- what is put in and what comes out ----------------------------------------------------------------


async def test_the_id_is_generated_and_put_into_the_meta_data_under_its_key(tmp_path: Path) -> None:
    server = Server()
    meta = {
        "projectRoot": "/p",
        "chatos": {"uiApp": {"stateDir": str(tmp_path)}},
        "asyncTask": {
            "tools": ["run"],
            "taskIdKey": "job",
            "resultSource": "ui_prompts",
            "uiPromptFile": "u",
        },
    }
    settings = AsyncTask.from_call_meta(meta)
    assert (settings.state_dir, settings.ui_prompt_file) == (tmp_path, "u")
    poller = HostPoller(server, settings, poll_s=0.01)
    one, two = await poller.start("run", {"x": 1}), await poller.start("run", {})
    name, arguments, sent = server.calls[0]
    assert (name, arguments) == ("run", {"x": 1})
    told = {"projectRoot": "/p", "chatos": {"uiApp": {"stateDir": str(tmp_path)}}}
    assert sent == {**told, "asyncTask": {"taskIdKey": "job"}, "job": one}
    assert one
    assert one != two
    await poller.close()


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"asyncTask": {"tools": "run"}},
        {"asyncTask": {"tools": ["run"]}},
        {"asyncTask": {"tools": ["run"], "resultSource": "stream"}, "chatos": {"uiApp": {"stateDir": "/s"}}},
    ],
)
def test_settings_that_do_not_make_sense_are_refused(meta: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        AsyncTask.from_call_meta(meta)


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ({"markdown": "**done**", "result": "other"}, "**done**"),
        ({"result": "plain"}, "plain"),
        ({"content": "said"}, "said"),
        ({"result": {"content": [{"type": "text", "text": "whole"}]}}, "whole"),
        ({"result": {"a": 1}}, '{\n  "a": 1\n}'),
    ],
)
@pytest.mark.parametrize("prefix", ["", "mcp-task:"])
async def test_the_output_is_what_the_prompt_says(
    tmp_path: Path, prompt: dict[str, Any], text: str, prefix: str
) -> None:
    server = Server()
    async with polling(server, tmp_path) as poller:
        call = asyncio.ensure_future(poller.call("run", {}))
        await until(lambda: server.calls)
        append(tmp_path / LOG, entry(prefix + server.task_id(), **prompt))
        assert text_of(await call) == text


async def test_other_entries_are_not_taken_for_the_result(tmp_path: Path) -> None:
    server = Server()
    async with polling(server, tmp_path) as poller:
        call = asyncio.ensure_future(poller.call("run", {}))
        await until(lambda: server.calls)
        mine = server.task_id()
        others = [
            entry("another", markdown="no"),
            entry(mine, markdown="no").replace(b'"result"', b'"choice"'),
            entry(mine, markdown="no").replace(b'"request"', b'"response"'),
            entry(mine, markdown="no").replace(b"ui_prompt", b"ui_other"),
            b'"ui_prompt" "result"\n',
            b'["ui_prompt", "result"]\n',
            b"\xff\xfe\n\n",
        ]
        append(tmp_path / LOG, b"".join(others) + entry(mine, markdown="yes"))
        assert text_of(await call) == "yes"


async def test_a_refusal_is_the_result_and_is_not_waited_for(tmp_path: Path) -> None:
    server = Server()
    server.refuses = True
    async with polling(server, tmp_path) as poller:
        result = await asyncio.wait_for(poller.call("run", {}), 5)
        assert result.is_error
        assert text_of(result) == "refused"
        assert not poller.pending


async def test_a_tool_that_is_not_listed_is_called_without_an_id(tmp_path: Path) -> None:
    server = Server()
    async with polling(server, tmp_path) as poller:
        assert text_of(await poller.call("other", {})) == "accepted"
    assert server.calls == [("other", {}, {})]


async def test_the_task_file_tells_that_a_task_failed(tmp_path: Path) -> None:
    server = Server()
    async with polling(server, tmp_path) as poller:
        call = asyncio.ensure_future(poller.call("run", {}))
        await until(lambda: server.calls)
        task = {"id": server.task_id(), "status": "failed", "error": "no luck"}
        write_json(tmp_path / "mcp_tasks.v1.json", {"mcpTasks": [task]})
        append(tmp_path / LOG, entry(server.task_id(), markdown="**failed**: no luck"))
        result = await call
        assert result.is_error
        assert text_of(result) == "**failed**: no luck"


async def test_the_entry_itself_tells_that_a_task_failed(tmp_path: Path) -> None:
    """The task file is written after it, and may be late."""
    server = Server()
    async with polling(server, tmp_path) as poller:
        call = asyncio.ensure_future(poller.call("run", {}))
        await until(lambda: server.calls)
        write_json(
            tmp_path / "mcp_tasks.v1.json", {"mcpTasks": [{"id": server.task_id(), "status": "running"}]}
        )
        append(tmp_path / LOG, entry(server.task_id(), markdown="**failed**: no luck", status="failed"))
        assert (await call).is_error


async def test_the_poller_has_a_time_limit_of_its_own(tmp_path: Path) -> None:
    server = Server()
    async with polling(server, tmp_path, time_limit_s=0.1) as poller:
        task_id = await poller.start("run", {})
        task = {"id": task_id, "status": "running", "error": None}
        write_json(tmp_path / "mcp_tasks.v1.json", {"mcpTasks": [task]})
        with pytest.raises(NoResultInTime, match="running"):
            await poller.wait(task_id)
        with pytest.raises(UnknownHandle):
            await poller.wait(task_id)


# -- aborting and coming back --------------------------------------------------------------------------


async def test_an_abort_ends_the_wait_at_once_and_for_good(tmp_path: Path) -> None:
    server, file = Server(), tmp_path / "pending.json"
    async with polling(server, tmp_path, pending_file=file) as poller:
        call = asyncio.ensure_future(poller.call("run", {}))
        await until(lambda: server.calls)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(call, 5)
        assert json.loads(file.read_text())["pending"] == []


async def test_a_result_that_nobody_took_is_not_forgotten(tmp_path: Path) -> None:
    """It came, the log was read past it, and the host stopped before anybody asked."""
    server, file = Server(), tmp_path / "pending.json"
    async with polling(server, tmp_path, pending_file=file) as poller:
        one, two = await poller.start("run", {}), await poller.start("run", {})
        waiting = asyncio.ensure_future(poller.wait(two))
        append(tmp_path / LOG, entry(one, markdown="one"))
        await poller.arrived(one)
    waiting.cancel()
    (tmp_path / LOG).unlink()
    async with polling(server, tmp_path, pending_file=file) as poller:
        assert list(poller.pending) == [one, two]
        assert text_of(await poller.wait(one)) == "one"
        append(tmp_path / LOG, entry(two, markdown="two"))
        assert text_of(await poller.wait(two)) == "two"


async def test_a_new_log_of_the_same_number_and_length_is_read_from_its_beginning(tmp_path: Path) -> None:
    server, file = Server(), tmp_path / "pending.json"
    async with polling(server, tmp_path, pending_file=file) as poller:
        one, two = await poller.start("run", {}), await poller.start("run", {})
        append(tmp_path / LOG, entry(one, markdown="one"))
        assert text_of(await poller.wait(one)) == "one"
    length = (tmp_path / LOG).stat().st_size
    (tmp_path / LOG).write_bytes(entry(two, markdown="two"))
    assert (tmp_path / LOG).stat().st_size == length
    async with polling(server, tmp_path, pending_file=file) as poller:
        assert text_of(await asyncio.wait_for(poller.wait(two), 20)) == "two"


async def test_an_entry_from_before_the_restart_is_found_after_it(tmp_path: Path) -> None:
    server, file = Server(), tmp_path / "pending.json"
    append(tmp_path / LOG, entry("old", markdown="old") * 1000)
    async with polling(server, tmp_path, pending_file=file) as poller:
        task_id = await poller.start("run", {})
    append(tmp_path / LOG, entry(task_id, markdown="mine"))
    async with polling(server, tmp_path, pending_file=file) as poller:
        assert text_of(await poller.wait(task_id)) == "mine"
        assert poller.bytes_read < 1000, "what was there before the call is not read"


# -- large logs, many calls ------------------------------------------------------------------------------


def bytes_read_by_this_process() -> int:
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


async def test_a_log_of_200_mb_with_the_entry_at_its_end_is_read_once(tmp_path: Path) -> None:
    noise = b"".join(
        entry(f"other-{i}", markdown="x" * 900).replace(b'"result"', b'"kv"') for i in range(1000)
    )
    with (tmp_path / LOG).open("wb") as log:
        while log.tell() < 200_000_000:
            log.write(noise)
        log.write(entry("mine", markdown="found"))
        size = log.tell()
    pending = {"task_id": "mine", "tool_name": "run", "started_at": time.time()}
    write_json(tmp_path / "pending.json", {"position": None, "pending": [pending]})
    before = bytes_read_by_this_process()
    async with polling(Server(), tmp_path, pending_file=tmp_path / "pending.json") as poller:
        assert text_of(await asyncio.wait_for(poller.wait("mine"), 60)) == "found"
        assert size <= poller.bytes_read < 1.01 * size
    assert bytes_read_by_this_process() - before < 1.02 * size


async def test_a_torn_last_line_is_waited_for(tmp_path: Path) -> None:
    server = Server()
    async with polling(server, tmp_path) as poller:
        call = asyncio.ensure_future(poller.call("run", {}))
        await until(lambda: server.calls)
        line = entry(server.task_id(), markdown="größer")
        for cut in (10, len(line) // 2, len(line) - 1):
            append(tmp_path / LOG, line[len_of(tmp_path / LOG) : cut])
            await until(lambda cut=cut: poller.bytes_read >= cut)  # type: ignore[misc]
            assert not call.done()
        append(tmp_path / LOG, b"\n")
        assert text_of(await call) == "größer"
        assert poller.bytes_read < len(line) + 500, "the beginning is not read again"


def len_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


async def test_a_thousand_pending_calls_cost_one_reader(tmp_path: Path) -> None:
    server = Server()
    append(tmp_path / LOG, entry("old", markdown="x" * 1000) * 1000)
    before = len_of(tmp_path / LOG)
    async with polling(server, tmp_path, pending_file=tmp_path / "pending.json") as poller:
        calls = [asyncio.ensure_future(poller.call("run", {"i": i})) for i in range(1000)]
        await until(lambda: len(server.calls) == 1000)
        append(
            tmp_path / LOG,
            b"".join(entry(str(meta["taskId"]), markdown=str(a["i"])) for _, a, meta in server.calls),
        )
        results = await asyncio.wait_for(asyncio.gather(*calls), 60)
        assert [text_of(result) for result in results] == [str(i) for i in range(1000)]
        written = len_of(tmp_path / LOG) - before
        assert written <= poller.bytes_read < 1.1 * written
