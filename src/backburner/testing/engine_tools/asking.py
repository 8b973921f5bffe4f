"""Tools that ask their client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...context import TaskContext
from ...retry import Retry
from .base import app

_NAME_SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@app.tool
def ask_name(ctx: TaskContext) -> dict[str, Any]:
    answer = ctx.ask("What is your name?", _NAME_SCHEMA)
    return {"action": answer.action, "content": answer.content, "accepted": answer.accepted}


@app.tool
async def ask_name_async(ctx: TaskContext) -> dict[str, Any]:
    answer = await ctx.ask_async("What is your name?", _NAME_SCHEMA)
    return {"action": answer.action, "content": answer.content, "accepted": answer.accepted}


@app.tool
def ask_for_a_while(timeout: float, default: dict[str, Any] | None, ctx: TaskContext) -> dict[str, Any]:
    answer = ctx.ask("What is your name?", _NAME_SCHEMA, timeout=timeout, default=default)
    return {"action": answer.action, "content": answer.content}


@app.tool
def ask_two_for_a_while(ctx: TaskContext) -> dict[str, Any]:
    questions = {"first": ("First name?", _NAME_SCHEMA), "last": ("Last name?", None)}
    answers = ctx.ask_all(questions, timeout="300ms", defaults={"first": {"name": "Ann"}})
    return {key: [answer.action, answer.content] for key, answer in answers.items()}


@app.tool
def ask_at_length(words: str, ctx: TaskContext) -> int:
    """Ask with so many words of input that it takes a while to hand the task over."""
    ctx.ask("What is your name?", _NAME_SCHEMA)
    return len(words)


@app.tool
def ask_two(ctx: TaskContext) -> dict[str, Any]:
    answers = ctx.ask_all({"first": ("First name?", _NAME_SCHEMA), "last": ("Last name?", None)})
    return {key: [answer.action, answer.content] for key, answer in answers.items()}


@app.tool
def ask_twice(ctx: TaskContext) -> list[Any]:
    return [ctx.ask("Who?", _NAME_SCHEMA).content, ctx.ask("And who else?", _NAME_SCHEMA).content]


@app.tool(retries=Retry(max_attempts=2, backoff_s=0.01, on=("*",)))
def ask_then_fail_once(ctx: TaskContext) -> Any:
    answer = ctx.ask("Who?", _NAME_SCHEMA)
    if ctx.attempt == 1:
        raise RuntimeError("once")
    return answer.content


class _Together(dict[str, Any]):
    """Questions that two threads begin to read at the same moment."""

    both = threading.Barrier(2)

    def __iter__(self) -> Iterator[str]:
        self.both.wait()
        return super().__iter__()


@app.tool
def ask_from_two_threads(ctx: TaskContext) -> dict[str, Any]:
    def ask(name: str) -> Any:
        params = {"mode": "form", "message": name, "requestedSchema": _NAME_SCHEMA}
        return ctx.request_all(_Together(who=("elicitation/create", params)))["who"]["content"]["name"]

    names = ["Ann", "Bob"]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(ask, names), strict=True))
