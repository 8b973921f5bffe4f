"""Whatever callers send, they get an answer with a code, and nobody else's task is hurt.

BACKBURNER_FUZZ_CASES says how many cases each test sends.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError

from backburner.core.task import new_task_id
from backburner.mcp.transport.auth import hash_token
from tests.deployment import Deployment
from tests.integration.mcp_server.json_texts import ANYTHING, EXTREMES, Texts, object_text, texts_for
from tests.integration.mcp_server.loaded import load_guarded
from tests.whole import FUZZ_CASES

BATCH = 20
SCRIPT = Path(__file__).with_name("guarded.py")
#: What the protocol has a code for. An internal error is none of these: nothing here is the server's fault.
CODES = (-32700, -32600, -32601, -32602, -32002)
FUZZED = settings(
    max_examples=max(1, FUZZ_CASES // BATCH),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)

PATIENT = pytest.mark.timeout(120 + FUZZ_CASES / 5)


@contextlib.contextmanager
def another_owner_s_task(deployment: Deployment) -> Iterator[None]:
    """A task of somebody else, which runs all the while and must come to its end in its first attempt."""
    gate = deployment.folder / "gate"
    with deployment.app(load_guarded) as app:
        task_id = app.service.submit("await_gate", {"gate": str(gate)}, owner="somebody").task_id
        app.service.wait(task_id, 60, owner="somebody", until=lambda task: task.started_at is not None)
        supervisor = deployment.supervisor()
        yield
        assert supervisor is not None
        assert deployment.supervisor() == supervisor, "the supervisor did not live"
        gate.touch()
        done = app.service.wait(task_id, 60, owner="somebody").task
        assert (done.state, done.result) == ("succeeded", "attempt 1")


# -- the service's inputs, over stdio --------------------------------------------------------------


class Pipe:
    """A server over stdio that is sent lines as they are."""

    def __init__(self, deployment: Deployment) -> None:
        parameters = deployment.stdio()
        command = [parameters.command, *parameters.args]
        self.process = subprocess.Popen(
            command, env=deployment.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._ids = 0
        self._unread = b""
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "f", "version": "1"},
        }
        self.ask([("initialize", json.dumps(hello))])
        self._write('{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def ask(self, requests: list[tuple[str, str]]) -> list[tuple[str, dict[str, Any]]]:
        """Send requests, each a method and the text of its parameters; each with its answer."""
        waiting: dict[int, str] = {}
        for method, params in requests:
            self._ids += 1
            line = f'{{"jsonrpc":"2.0","id":{self._ids},"method":{json.dumps(method)},"params":{params}}}'
            with contextlib.suppress(ValidationError):  # what is no message gets no answer over stdio
                jsonrpc_message_adapter.validate_json(line)
                waiting[self._ids] = line
            self._write(line)
        answers: list[tuple[str, dict[str, Any]]] = []
        end = time.monotonic() + 60
        while waiting:
            message = self._read(end, waiting)
            if "method" not in message and message.get("id") in waiting:
                answers.append((waiting.pop(message["id"]), message))
        return answers

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def _read(self, end: float, waiting: dict[int, str]) -> dict[str, Any]:
        assert self.process.stdout is not None
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            unanswered = [line[:300] for line in waiting.values()]
            assert ready, f"no answer to {unanswered}"
            chunk = os.read(self.process.stdout.fileno(), 1 << 20)
            assert chunk, f"the server left; unanswered: {unanswered}"
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def requests_for(tools: list[dict[str, Any]], ids: list[str]) -> st.SearchStrategy[tuple[str, str]]:
    """Requests of every method that takes something, after the schemas that the server lists."""
    task_ids: Texts = st.sampled_from([json.dumps(one) for one in [*ids, new_task_id(1)]])
    names: Texts = st.sampled_from([json.dumps(tool["name"]) for tool in tools])
    known = {"task_id": task_ids, "tool_name": names}
    metas = st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("progressToken", "taskId", "traceparent", "other"), ANYTHING)
    ).map(object_text)
    ttls = texts_for({"type": "integer", "minimum": 1, "maximum": 10**12}, {})
    tasks = ttls.map(lambda ttl: f'{{"ttl":{ttl}}}') | ANYTHING

    @st.composite
    def calls(draw: st.DrawFn) -> tuple[str, str]:
        tool = draw(st.sampled_from(tools))
        fields = {
            "name": draw(st.just(json.dumps(tool["name"])) | EXTREMES)
            if draw(st.booleans())
            else json.dumps(tool["name"]),
            "arguments": draw(texts_for(tool["inputSchema"], known)),
        }
        if draw(st.integers(0, 3)) == 0:
            fields["_meta"] = draw(metas)
        if draw(st.integers(0, 3)) == 0:
            fields["task"] = draw(tasks)
        return "tools/call", object_text(fields)

    numbers = st.sampled_from(["0", "1", "-1", str(10**26), "9" * 5000, "1e5", "x", "", "%00", str(2**63)])
    places = st.sampled_from(["result", "logs", "artifacts/art_0/x", "artifacts/../..", "", "?", "result/x"])
    uris = st.builds(
        lambda task_id, place, offset, length: json.dumps(
            f"task://{json.loads(task_id)}/{place}?offset={offset}&length={length}"
        ),
        task_ids,
        places,
        numbers,
        numbers,
    )
    reads = (uris | ANYTHING).map(lambda uri: ("resources/read", f'{{"uri":{uri}}}'))
    gets = (task_ids | ANYTHING).map(lambda task_id: ("tasks/get", f'{{"taskId":{task_id}}}'))
    lists = ANYTHING.map(lambda cursor: ("tasks/list", f'{{"cursor":{cursor}}}'))
    completions = st.builds(
        lambda name, partial, arguments, context: (
            "completion/complete",
            f'{{"name":{name},"partial_argument":{partial},"arguments":{arguments},"context":{context}}}',
        ),
        names | ANYTHING,
        ANYTHING,
        ANYTHING,
        ANYTHING,
    )
    others = st.builds(
        lambda method, params: (method, params),
        st.sampled_from(
            ["tasks/cancel", "tasks/update", "tools/list", "ping", "nope", "completion/complete"]
        ),
        ANYTHING,
    )
    return st.one_of(calls(), calls(), calls(), reads, gets, lists, completions, others)


def complaint(answer: dict[str, Any]) -> str | None:
    """What is wrong with an answer; None when it is a result, or an error that the caller can understand."""
    if "error" in answer:
        code = answer["error"]["code"]
        kind = (answer["error"].get("data") or {}) if isinstance(answer["error"].get("data"), dict) else {}
        return None if code in CODES or kind.get("code") == "queue_full" else f"code {code}"
    result = answer["result"]
    # Without it, it is what the tool itself raised, in a task that was over within the client's patience.
    if result.get("isError") and "structuredContent" in result:
        kind = ((result.get("structuredContent") or {}).get("error") or {}).get("code")
        return (
            None
            if kind and kind not in ("backburner_error", "store_error", "engine_error")
            else f"kind {kind}"
        )
    return None


@PATIENT
def test_whatever_a_caller_gives_is_answered_and_hurts_nobody(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, (SCRIPT,), {"mcp__patience_s": "0.05", "default_queue": "cpu_small"})
    with deployment, another_owner_s_task(deployment), contextlib.closing(Pipe(deployment)) as pipe:
        (listed,) = (answer["result"] for _, answer in pipe.ask([("tools/list", "{}")]))
        # These wait, take long, or fail whatever they are given, and the failure of a tool has no code.
        others = ("await_gate", "bomb_doubled", "stumbles")
        tools = [tool for tool in listed["tools"] if tool["name"] not in others]
        made = pipe.ask([("tools/call", '{"name":"submit_task","arguments":{"tool_name":"limited"}}')] * 3)
        ids = [answer["result"]["structuredContent"]["task_id"] for _, answer in made]
        for task_id in ids:
            pipe.ask([("tools/call", f'{{"name":"wait_for_task","arguments":{{"task_id":"{task_id}"}}}}')])

        @FUZZED
        @given(st.lists(requests_for(tools, ids), min_size=BATCH, max_size=BATCH))
        def each_is_answered(requests: list[tuple[str, str]]) -> None:
            wrong = [
                (sent[:500], found, str(answer)[:500])
                for sent, answer in pipe.ask(requests)
                if (found := complaint(answer)) is not None
            ]
            assert wrong == []

        each_is_answered()


# -- the HTTP door ---------------------------------------------------------------------------------

TOKENS = {"alice": "token-of-alice", "bob": "token-of-bob"}
_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "f", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADER_VALUES = st.one_of(
    st.sampled_from(
        [
            *("http://[", "http://[::1", "http://evil.example", "null", "", " ", "\x00", "é", "x" * 10_000),
            *(
                "application/json",
                "text/event-stream",
                "application/json, text/event-stream",
                "*/*",
                "text/plain",
            ),
            *("application/json; charset=utf-16", "multipart/form-data; boundary=x", "gzip", "chunked"),
            *("2025-11-25", "2026-07-28", "1999-01-01", "0", "-1", "1e9", "99999999999999999999", "bytes=0-"),
            *(
                "bytes=9-1,x",
                "Bearer token-of-alice",
                "Bearer",
                "Bearer \xff",
                "Basic x",
                "tools/call",
                "count",
            ),
        ]
    ),
    st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"), max_size=20),
)
HEADER_NAMES = st.sampled_from(
    [
        *(
            "Origin",
            "Host",
            "Content-Type",
            "Accept",
            "Mcp-Session-Id",
            "MCP-Protocol-Version",
            "Authorization",
        ),
        *(
            "Last-Event-ID",
            "Range",
            "If-Range",
            "Mcp-Method",
            "Mcp-Name",
            "Content-Encoding",
            "Expect",
            "Upgrade",
        ),
        *("Connection", "X-Forwarded-For", "Cookie", "Mcp-Param-n"),
    ]
)
PATHS = st.one_of(
    st.sampled_from(
        [
            *(
                "/mcp",
                "/mcp",
                "/mcp",
                "/mcp/",
                "/healthz",
                "/",
                "//",
                "/mcp?x=%00",
                "/%",
                "/%ff%fe",
                "/mcp/../mcp",
            ),
            *("/artifacts", "/artifacts/", "/artifacts/a", "/artifacts/a/b", "/artifacts/a/b?token=x.y"),
            *(
                "/artifacts/..%2f..%2fetc/passwd?token=",
                "/artifacts/%00/%00?token=%00",
                "http://[/",
                "*",
                "x",
            ),
        ]
    ),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20).map(lambda text: f"/{text}"),
)
METHODS = st.sampled_from(
    ["POST", "POST", "POST", "POST", "GET", "DELETE", "PUT", "HEAD", "OPTIONS", "TRACE", "X", "post"]
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A call of `submit_task` with any arguments, or a message with something wrong in it, or no message."""
    if draw(st.booleans()):
        arguments = draw(
            ANYTHING | ANYTHING.map(lambda inputs: f'{{"tool_name":"limited","inputs":{inputs}}}')
        )
        params = object_text(
            {"name": '"submit_task"', "arguments": arguments, "_meta": json.dumps(_ENVELOPE)}
        )
        return f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode()
    meta = json.dumps(_ENVELOPE) if draw(st.booleans()) else draw(ANYTHING)
    params = object_text(
        {
            "name": draw(st.sampled_from(['"count"', '"submit_task"', '"limited"']) | ANYTHING),
            "arguments": draw(ANYTHING | st.just('{"tool_name":"limited"}')),
            "_meta": meta,
        }
    )
    message = {
        "jsonrpc": draw(st.sampled_from(['"2.0"', '"2.0"', '"2.0"', "2", "null"])),
        "id": draw(st.sampled_from(["1", "1", "1"]) | ANYTHING),
        "method": draw(
            st.sampled_from(['"tools/call"', '"tools/list"', '"initialize"', '"tasks/get"']) | ANYTHING
        ),
        "params": params if draw(st.booleans()) else draw(ANYTHING),
    }
    for name in draw(st.lists(st.sampled_from(list(message)), max_size=1)):
        del message[name]
    text = object_text(message)
    text = draw(
        st.sampled_from([text, text, text, f"[{text}]", text[: len(text) // 2], "", "5", '"ab"', "[" * 5000])
    )
    return draw(
        st.sampled_from([text.encode(), text.encode(), text.encode("utf-16"), b"\xff" + text.encode()])
    )


@st.composite
def http_requests(draw: st.DrawFn) -> tuple[bytes, bool]:
    """The bytes of a request that is sound in most of its parts, and whether it is complete."""
    body = draw(bodies())
    method = "POST" if draw(st.integers(0, 9)) < 7 else draw(METHODS)
    path = "/mcp" if draw(st.integers(0, 9)) < 7 else draw(PATHS)
    excess = draw(st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, -1, 7]))
    headers = {
        "Host": "127.0.0.1",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "Authorization": f"Bearer {TOKENS['bob']}",
        "MCP-Protocol-Version": draw(st.sampled_from(["2026-07-28", "2026-07-28", "2025-11-25"])),
        "Mcp-Method": "tools/call",
        "Mcp-Name": "submit_task",
        "Content-Length": str(len(body) + excess),
        "Connection": "close",
    }
    if draw(st.booleans()):
        headers |= draw(st.dictionaries(HEADER_NAMES, HEADER_VALUES, max_size=2))
        for name in draw(st.lists(st.sampled_from(list(headers)), max_size=1)):
            del headers[name]
    if draw(st.integers(0, 19)) == 19:
        headers |= {"Transfer-Encoding": "chunked"}
        body = draw(st.sampled_from([b"5\r\nab", b"zz\r\n", b"0\r\n\r\n", b"ffffffffffffffffff\r\n"]))
    if draw(st.integers(0, 199)) == 199:
        body = b" " * 5_000_000
        headers["Content-Length"] = str(len(body))
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in headers.items()
    )
    whole = head.encode("latin-1") + b"\r\n" + body
    if draw(st.integers(0, 9)) == 9:
        return whole[: draw(st.integers(0, len(whole)))], False
    return whole, excess == 0 and "Content-Length" in headers and "Transfer-Encoding" not in headers


def http_answer(port: int, request: bytes, whole: bool = True) -> tuple[int, bytes]:
    """The status and the body; a status of 0 when there is none. A stream that a GET opens is not read."""
    method = request.partition(b" ")[0].decode()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
            if not whole:
                connection.shutdown(socket.SHUT_WR)
        try:
            answer = http.client.HTTPResponse(connection, method=method)
            answer.begin()
            body = (
                b""
                if method == "GET" and answer.headers.get_content_subtype() == "event-stream"
                else answer.read()
            )
        except (ConnectionError, http.client.HTTPException):
            return 0, b""
        return answer.status, body


@PATIENT
def test_whatever_comes_over_http_is_answered_and_hurts_nobody(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{name} {hash_token(token)}\n" for name, token in TOKENS.items()))
    more = {"mcp__patience_s": "0.05", "http__auth__tokens": str(tokens)}
    deployment = Deployment(tmp_path, (SCRIPT,), more)
    with deployment, another_owner_s_task(deployment), deployment.http() as server:
        port = int(server.address.rpartition(":")[2])

        @FUZZED
        @given(st.lists(http_requests(), min_size=BATCH, max_size=BATCH))
        def each_is_answered(requests: list[tuple[bytes, bool]]) -> None:
            for request, whole in requests:
                status, body = http_answer(port, request, whole)
                said = (request[:2000], status, body[:2000])
                assert status < 500, said
                assert re.search(rb'"code": ?(0|-32603)\b', body) is None, said

        each_is_answered()
        assert http_answer(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") == (200, b"ok\n")
