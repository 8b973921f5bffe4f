"""A scripted model on loopback: Anthropic Messages, OpenAI Responses and Chat Completions, Gemini.

The prompt names a tool, as `BENCH:long`. The model calls it, follows a hint to call `wait_for_task`, and
repeats a call that gave neither an answer nor a hint. When it has read the answer, it stops. A move depends
only on the request.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from tests.hosts.lab import ANSWER

_PROMPT = re.compile(r"BENCH:(\w+)")
_TASK_ID = re.compile(r"\btsk_[0-9A-Z]{20,}")
#: In a sentence (`and cursor X`), or in JSON.
_CURSOR = re.compile(r"""\bcursor(?: |\W{2,6}(?<="))([\w=-]{4,})""")
_SEARCH = re.compile(r"tool_?search", re.IGNORECASE)
_BACKGROUND = re.compile(r"\bbackground\b", re.IGNORECASE)
#: Number of times that a call is repeated, that the tool is searched for, and of calls in all.
_REPEATS, _SEARCHES, _CALLS = 2, 10, 40
#: Between the namespace and the name of a tool (OpenAI Responses).
_IN_NAMESPACE = "\0"


@dataclass(frozen=True)
class Entry:
    """A part of a conversation. A call has a tool and arguments; the others have a text."""

    kind: Literal["user", "assistant", "call", "result"]
    text: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """A request to the model about the prompt, and its move: a call, or a text that ends the turn."""

    at: float
    read: str
    move: Entry

    @property
    def answered(self) -> bool:
        return ANSWER in self.read


def next_move(conversation: Sequence[Entry], tools: Sequence[str]) -> Turn | None:
    """Return the next turn; None for a request of the host that is not about the prompt."""
    prompts = [number for number, entry in enumerate(conversation) if _PROMPT.search(entry.text)]
    if not prompts or not tools:
        return None
    wanted = _PROMPT.findall(conversation[prompts[-1]].text)[-1]
    since = conversation[prompts[-1] + 1 :]
    return Turn(time.time(), _unread(since), _move(wanted, since, tools))


def _unread(since: Sequence[Entry]) -> str:
    """Return the text after the model's last move."""
    moves = [number for number, entry in enumerate(since) if entry.kind in ("call", "assistant")]
    return "\n".join(entry.text for entry in since[max(moves, default=-1) + 1 :])


def _move(wanted: str, since: Sequence[Entry], tools: Sequence[str]) -> Entry:
    if any(ANSWER in entry.text for entry in since):
        return Entry("assistant", "The report is here.")
    searches = sum(_is_search(entry) for entry in since)
    since = list(_without_searches(since))
    calls = [entry for entry in since if entry.kind == "call"]
    read = _unread(since)
    hinted = _TASK_ID.findall(read) if "wait_for_task" in read else []
    if not calls:
        return _call(wanted, {}, tools, searches)
    if hinted and len(calls) < _CALLS:
        cursor = _CURSOR.search(read)
        arguments = {"task_id": hinted[0], **({"cursor": cursor[1]} if cursor else {})}
        return _call("wait_for_task", arguments, tools, searches)
    if _BACKGROUND.search(read):
        return Entry("assistant", "I wait for the report.")
    if _failures(since) <= _REPEATS:
        return calls[-1]
    return Entry("assistant", "The report cannot be had.")


def _call(name: str, arguments: Mapping[str, Any], tools: Sequence[str], searches: int) -> Entry:
    """Call a tool, or search for it where the host does not list it. Its server may still be starting."""
    found = [tool for tool in tools if re.search(rf"(^|[^A-Za-z0-9]){name}$", tool)]
    if found:
        return Entry(
            "call", tool=min(found, key=lambda tool: ("lab" not in tool, len(tool))), arguments=arguments
        )
    search = next((tool for tool in tools if _SEARCH.search(tool)), None)
    if search and searches < _SEARCHES:
        return Entry("call", tool=search, arguments={"query": f"select:mcp__lab__{name}"})
    return Entry("assistant", f"There is no tool {name}.")


def _is_search(entry: Entry) -> bool:
    return entry.kind == "call" and bool(_SEARCH.search(entry.tool))


def _without_searches(since: Sequence[Entry]) -> Iterator[Entry]:
    """Leave out the searches for tools, with their results."""
    searching = False
    for entry in since:
        searching = _is_search(entry) or (searching and entry.kind == "result")
        if not searching:
            yield entry


def _failures(since: Sequence[Entry]) -> int:
    """Return the number of results in a row, up to the last, that gave no hint."""
    failures = 0
    for entry in reversed(since):
        if "wait_for_task" in entry.text:
            break
        failures += entry.kind == "result"
    return failures


class Model:
    """The server. `turns` are those about the prompt, in order; each request is a line of the file."""

    def __init__(self, record: Path) -> None:
        self.turns: list[Turn] = []
        self._record, self._lock, self._numbers = record, threading.Lock(), itertools.count()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str, body: Mapping[str, Any]) -> tuple[str, object]:
        """Return content type and content of the answer to a request."""
        api = next((api for api in _APIS if re.search(api.path, path)), None)
        if api is None:
            return "application/json", {}
        conversation, tools = list(api.entries(body)), list(api.tools(body))
        turn = next_move(conversation, tools)
        number = next(self._numbers)
        with self._lock, self._record.open("a") as record:
            if turn:
                self.turns.append(turn)
            shown = {"read": turn.read, "move": vars(turn.move)} if turn else {"aside": True}
            record.write(json.dumps({"at": time.time(), "path": path, "tools": len(tools), **shown}) + "\n")
        move = turn.move if turn else Entry("assistant", "ok")
        whole, events = api.answer(move, number, str(body.get("model", "scripted")))
        if body.get("stream") or "stream" in path:
            return "text/event-stream", "".join(
                (f"event: {event['type']}\n" if "type" in event else "") + f"data: {json.dumps(event)}\n\n"
                for event in events
            ) + ("data: [DONE]\n\n" if api is CHAT else "")
        return "application/json", whole

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *_arguments: object) -> None:
                pass

            def do_GET(self) -> None:
                entry = {"id": "scripted", "object": "model", "type": "model", "display_name": "scripted"}
                self._send("application/json", {"object": "list", "data": [entry]})

            def do_POST(self) -> None:
                body = json.loads(self._body() or b"{}")
                self._send(*model.answer(self.path, body))

            def _body(self) -> bytes:
                if "chunked" not in self.headers.get("transfer-encoding", ""):
                    return self.rfile.read(int(self.headers.get("content-length", 0)))
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return body

            def _send(self, content_type: str, content: object) -> None:
                raw = (content if isinstance(content, str) else json.dumps(content)).encode()
                self.send_response(200)
                self.send_header("content-type", content_type)
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        return Handler


# -- the APIs


class _Api:
    """Wire format of one API."""

    path: str

    def entries(self, body: Mapping[str, Any]) -> Iterator[Entry]:
        raise NotImplementedError

    def tools(self, body: Mapping[str, Any]) -> Iterator[str]:
        raise NotImplementedError

    def answer(self, move: Entry, number: int, model: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the answer as a whole, and as the events of a stream."""
        raise NotImplementedError


def _spoken(role: str, text: str) -> Iterator[Entry]:
    if role in ("assistant", "model"):
        yield Entry("assistant", text)
    elif role not in ("system", "developer"):
        yield Entry("user", text)


def _flat(content: Any) -> str:
    """Return the text in a content, which may be nested."""
    if isinstance(content, list):
        return "\n".join(map(_flat, content))
    if isinstance(content, Mapping):
        for key in ("text", "content", "output", "error"):
            if content.get(key) is not None:
                return _flat(content[key])
        return json.dumps(content)
    return "" if content is None else str(content)


class _Anthropic(_Api):
    path = r"/messages(\?|$)"

    def entries(self, body: Mapping[str, Any]) -> Iterator[Entry]:
        for message in body["messages"]:
            content = message["content"]
            parts: Any = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for part in parts:
                if part["type"] == "tool_use":
                    yield Entry("call", tool=part["name"], arguments=part["input"])
                elif part["type"] == "tool_result":
                    yield Entry("result", _flat(part.get("content")))
                elif part["type"] == "text":
                    yield from _spoken(message["role"], part["text"])

    def tools(self, body: Mapping[str, Any]) -> Iterator[str]:
        return (tool["name"] for tool in body.get("tools") or ())

    def answer(self, move: Entry, number: int, model: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        usage = {"input_tokens": 1000, "output_tokens": 20}
        block: dict[str, Any] = {"type": "text", "text": move.text}
        empty, stop = {**block, "text": ""}, "end_turn"
        delta: dict[str, Any] = {"type": "text_delta", "text": move.text}
        if move.kind == "call":
            block = {"type": "tool_use", "id": f"toolu_{number}", "name": move.tool, "input": move.arguments}
            empty, stop = {**block, "input": {}}, "tool_use"
            delta = {"type": "input_json_delta", "partial_json": json.dumps(move.arguments)}
        message = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "usage": usage,
        }
        begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
        ended = {"stop_reason": stop, "stop_sequence": None}
        return {**message, "content": [block], **ended}, [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ended, "usage": usage},
            {"type": "message_stop"},
        ]


class _Responses(_Api):
    path = r"/responses$"

    def entries(self, body: Mapping[str, Any]) -> Iterator[Entry]:
        for item in body["input"]:
            kind = item.get("type", "message")
            if kind == "message":
                yield from _spoken(item["role"], _flat(item["content"]))
            elif kind == "function_call":
                space = item.get("namespace")
                name = f"{space}{_IN_NAMESPACE}{item['name']}" if space else item["name"]
                yield Entry("call", tool=name, arguments=json.loads(item["arguments"]))
            elif kind == "function_call_output":
                yield Entry("result", _flat(item["output"]))

    def tools(self, body: Mapping[str, Any]) -> Iterator[str]:
        for tool in body.get("tools") or ():
            if tool["type"] == "namespace":
                yield from (f"{tool['name']}{_IN_NAMESPACE}{each['name']}" for each in tool["tools"])
            else:
                yield tool.get("name", tool["type"])

    def answer(self, move: Entry, number: int, model: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        content = {"type": "output_text", "text": move.text, "annotations": []}
        item: dict[str, Any] = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
        item |= {"status": "completed", "content": [content]}
        if move.kind == "call":
            space, _, name = move.tool.rpartition(_IN_NAMESPACE)
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name}
            item |= {"arguments": json.dumps(move.arguments), "status": "completed"}
            item |= {"namespace": space} if space else {}
        usage: dict[str, Any] = {"input_tokens": 1000, "output_tokens": 20, "total_tokens": 1020}
        usage |= {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        begun = {"id": f"resp_{number}", "object": "response", "created_at": int(time.time()), "model": model}
        whole = {**begun, "status": "completed", "output": [item], "usage": usage}
        return whole, [
            {"type": "response.created", "response": {**begun, "status": "in_progress", "output": []}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": whole},
        ]


class _Chat(_Api):
    path = r"/chat/completions$"

    def entries(self, body: Mapping[str, Any]) -> Iterator[Entry]:
        for message in body["messages"]:
            if message["role"] == "tool":
                yield Entry("result", _flat(message["content"]))
                continue
            if message.get("content"):
                yield from _spoken(message["role"], _flat(message["content"]))
            for call in message.get("tool_calls") or ():
                function = call["function"]
                yield Entry(
                    "call", tool=function["name"], arguments=json.loads(function["arguments"] or "{}")
                )

    def tools(self, body: Mapping[str, Any]) -> Iterator[str]:
        return (tool["function"]["name"] for tool in body.get("tools") or () if "function" in tool)

    def answer(self, move: Entry, number: int, model: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        said: dict[str, Any] = {"role": "assistant", "content": move.text or None}
        finish = "stop"
        if move.kind == "call":
            function = {"name": move.tool, "arguments": json.dumps(move.arguments)}
            call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
            said, finish = {**said, "tool_calls": [call]}, "tool_calls"
        usage = {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020}
        frame = {"id": f"chat_{number}", "created": int(time.time()), "model": model}
        chunk = {**frame, "object": "chat.completion.chunk"}
        choice = {"index": 0, "message": said, "finish_reason": finish}
        return {**frame, "object": "chat.completion", "choices": [choice], "usage": usage}, [
            {**chunk, "choices": [{"index": 0, "delta": said, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage},
        ]


class _Gemini(_Api):
    path = r":(streamGenerateContent|generateContent)"

    def entries(self, body: Mapping[str, Any]) -> Iterator[Entry]:
        for message in body["contents"]:
            for part in message["parts"]:
                if call := part.get("functionCall"):
                    yield Entry("call", tool=call["name"], arguments=call.get("args") or {})
                elif result := part.get("functionResponse"):
                    yield Entry("result", _flat(result["response"]))
                elif "text" in part:
                    yield from _spoken(message.get("role", "user"), part["text"])

    def tools(self, body: Mapping[str, Any]) -> Iterator[str]:
        for group in body.get("tools") or ():
            yield from (tool["name"] for tool in group.get("functionDeclarations", ()))

    def answer(self, move: Entry, number: int, model: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        part: dict[str, Any] = {"text": move.text}
        if move.kind == "call":
            call = {"name": move.tool, "args": move.arguments, "id": f"call_{number}"}
            part = {"functionCall": call, "thoughtSignature": "c2ln"}
        content = {"role": "model", "parts": [part]}
        usage = {"promptTokenCount": 1000, "candidatesTokenCount": 20, "totalTokenCount": 1020}
        candidate = {"content": content, "finishReason": "STOP", "index": 0}
        whole = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model}
        return whole, [whole]


CHAT = _Chat()
_APIS: tuple[_Api, ...] = (_Anthropic(), _Responses(), CHAT, _Gemini())
