"""Writes the generated pages of docs/reference. Run it after changing settings, errors or commands.

python docs/generate.py
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from backburner import errors
from backburner.cli import app
from backburner.cli.command import MEANINGS, PANEL, examples_of
from backburner.settings import Settings, groups_of, variable
from backburner.tools.spec import OPTION_NAMES

HERE = Path(__file__).parent
#: The packages whose exported names are the public API.
PUBLIC = ("backburner", "backburner.client", "backburner.testing")
UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}

SETTINGS = """\
# Settings

Each setting is taken from the first place that has it:

1. an argument of `Backburner(…)`: a group is a mapping, or its record from `backburner.settings`, which is
   taken whole

   ```py
   Backburner("lab", supervisor={{"cancel_grace_s": 1}}, http={{"allowed_hosts": ["lab.example"]}})
   ```

2. an environment variable, with `__` between the group and the name, and JSON for lists and mappings

   ```sh
   export BACKBURNER_SUPERVISOR__CANCEL_GRACE_S=1
   export BACKBURNER_HTTP__ALLOWED_HOSTS='["lab.example"]'
   ```

   A name that is nearly one of these is refused; `backburner doctor` lists unknown ones.

3. the file `backburner.toml`, or the one that `BACKBURNER_CONFIG` names and that must be there: a group is a
   table

   ```toml
   store = "sqlite:///lab.db"

   [http]
   allowed_hosts = ["lab.example"]
   ```

Settings whose names end in `_s` are times: seconds, or text such as `30s`, `5m`, `4h`, `7d`. `queues` and
`mcp.client_patience` come from one place alone; what other places say of them is not added.

{groups}

## Queues

A queue is a resource class: a number of workers on this host, and a cap on how many tasks may wait
in it. There are `cpu_small` and `cpu_standard` (a worker for each CPU, and at least two), `cpu_heavy` and
`gpu_small` (one each; on a host without a GPU, `gpu_small` has none) and `io` (64, for tools that wait; see
[limits and queues](../guides/limits-and-queues.md#queues)). Your settings override these. In
`backburner.toml`:

```toml
[queues.cpu_heavy]
workers = 2
max_length = 500
```

or in the environment:

```sh
export BACKBURNER_QUEUES='{{"cpu_heavy": {{"workers": 2, "max_length": 500}}}}'
```

`async def` tools have the queue `io`, and all others `default_queue`, unless the tool or its caller names
one. If you set `default_queue`, or name queues and `io` is not among them, or give workers users by numbers
(`isolation.users`), you have counted without 64 tasks at a time: then both kinds have `default_queue`.
`async_queue = "io"` says otherwise.
"""

ERRORS = """\
# Errors

Every error is a `BackburnerError` with a `code` that never changes, a message for people, and
`details`, the values that the message names.

| code | class | message |
|---|---|---|
{rows}

## Errors of tasks

A task that did not succeed has an `error` with a `type`:

| type | what happened |
|---|---|
{task_rows}
"""

CLI = """\
# Command line

`backburner --help` lists the commands, and `backburner COMMAND --help` shows the options and examples of
one. `backburner --install-completion` adds completion of commands, options, task ids and tool names to your
shell.

## Common options

Commands that work with tasks have these options:

| option | meaning |
|---|---|
{common}

A task is named by its id or a unique prefix of it, with or without `tsk_`. An owner is named as in tokens,
such as `alice`; the default `local` is every caller without a token.

`export BACKBURNER_TARGET=lab.py`, or `target = "lab.py"` in `backburner.toml`, saves typing `-t`. `call`,
`tools`, `serve` and `worker` need the app; a store is enough for the other commands. With `--server`, a
command uses [the API](api.md) of a remote server, with the same output and exit codes. Commands that manage
the machine itself, such as `serve`, `worker` and `doctor`, refuse it.

## Output

The requested output goes to stdout, messages go to stderr. Colours are used on a terminal only, and never
when `NO_COLOR` is set. Control characters in logs and results are escaped, so that they cannot affect your
terminal. `--json` writes the records as JSON, with times in ISO 8601; an error is
`{{"error": {{"code", "message", "details"}}}}` on stderr.

## Exit codes

| code | meaning |
|---|---|
{codes}

## Commands

{commands}
"""

TOOL_OPTIONS = {
    "task": '`"optional"` (default), `"required"` (clients that speak tasks) or `"never"`.',
    "queue": "The queue. Default: `io` for `async def` tools, else `default_queue`.",
    "timeout": 'The time limit of an attempt: seconds, or text such as `"4h"`. Then the tool is killed.',
    "ttl": "How long the task is kept after its end. Default: `retention.ttl_s`.",
    "retries": "A number of retries after any failure, or a `Retry`. Default: lost workers, three tries.",
    "estimate": "Expected seconds, or a function of the inputs. Corrected by experience.",
    "answer": 'For clients without tasks: `"auto"`, `"hold"` or `"handle"`. Default: `mcp.answer`.',
    "join": 'Which earlier equal call a call joins: `"given-up"` (default), `"always"` or `"never"`.',
    "on_cancel": 'Effect of cancelling a held call: `"cancel"` or `"detach"`. Default: `mcp.on_cancel`.',
    "isolation": '`"warm"` (default), `"fresh"` (one process per task) or `"spawn"` (imports the app).',
    "cpu": "CPU time limit in cores.",
    "memory_mb": "Memory limit. Callers may ask for less.",
    "scratch_mb": "Disk limit of the attempt's folder and artifacts.",
    "max_running": "How many tasks of this tool run at a time.",
    "max_starts_per_minute": "How many tasks of this tool start per minute.",
    "concurrency_key": "A function of the inputs; tasks with one key share `max_running_per_key`.",
    "max_running_per_key": "How many tasks with the same key run at a time. Default: 1.",
    "ask_first": "Questions before the start: `{key: (message, schema)}`. Answers: `ctx.answers`.",
    "asks": '`"client"` (default) or `"anyone"`: who may answer questions.',
    "requires_task_id": "Refuse calls without `_meta.taskId`.",
    "suggest": "Completion values: `{argument: function(typed, arguments, context)}`.",
    "card": "Whether calls are shown on a task card. Default: `True`.",
    "output_schema": "A JSON schema of the result.",
    "secrets": "Names of inputs that are never shown.",
    "title": "A name for people.",
    "name": "The tool's name. Default: the function's.",
    "description": "The description for models. Default: the docstring.",
    "read_only": "The annotation `readOnlyHint`: the tool changes nothing. Hosts may call it in parallel.",
    "destructive": "The annotation `destructiveHint`: the tool may delete or overwrite.",
    "idempotent": "The annotation `idempotentHint`: repeating a call changes nothing more.",
    "open_world": "The annotation `openWorldHint`: the tool reaches systems outside.",
}

TASK_ERRORS = {
    "tool_error": "The tool raised; `exception` is the class and `details` the traceback.",
    "protocol_error": "The tool raised a `ProtocolError`, or the SDK's `MCPError`: the client gets it.",
    "result_not_serialisable": "The tool returned something that is not JSON.",
    "worker_lost": "The process that ran the task, or its supervisor, or its host, went away.",
    "runner_misbehaved": "The process that ran the task wrote to its supervisor's channel what it may not.",
    "store_refused": "The store can never keep what the task had to write; the message says why.",
    "timed_out": "The task ran longer than `max_runtime_s`.",
    "memory_exceeded": "The task used more memory than `memory_mb`.",
    "scratch_exceeded": "The task used more scratch space, artifacts included, than `scratch_mb`.",
    "cancelled": "The task was cancelled; the message says why, if somebody did.",
    "job_ended": "Three jobs of the task, at Slurm or AWS Batch, ended and began nothing.",
    "job_timed_out": "Slurm ended the task's job at the job's own time limit.",
    "job_out_of_memory": "Slurm ended the task's job, which had used up the job's memory.",
    "unknown_tool": "The app has no such tool any more.",
    "app_not_loaded": "The app could not be imported in a runner; the message says why.",
    "not_confined": "The process for the task could not be confined as `isolation` asks; its log says why.",
}


def row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def settings_page() -> str:
    return SETTINGS.format(groups="\n\n".join(_groups(Settings, "")))


def _groups(record: type, path: str) -> Iterator[str]:
    """A section for the settings of a record, and one for each group in it."""
    groups = groups_of(record)
    title = [f"## `{path}`", "", inspect.getdoc(record) or ""] if path else ["## General"]
    table = ["| setting | variable | default | meaning |", "|---|---|---|---|"]
    for entry in dataclasses.fields(record):
        name = f"{path}.{entry.name}" if path else entry.name
        if entry.name not in groups and "is_pace" not in entry.metadata:
            table.append(row(f"`{name}`", f"`{variable(name)}`", _default(entry), _meaning(entry)))
    yield "\n".join([*title, "", *table])
    for name, group in groups.items():
        yield from _groups(group, f"{path}.{name}" if path else name)


def _meaning(entry: Any) -> str:
    help, example = entry.metadata["help"], entry.metadata["example"]
    return f"{help}, such as `{example}`" if example.startswith(("[", "{")) else help


def _default(entry: Any) -> str:
    """As it would be written in the file."""
    if entry.name == "queues":
        return "see below"
    value = entry.default_factory() if entry.default is dataclasses.MISSING else entry.default
    if entry.name.endswith("_s") and value is not None:
        unit, size = next((unit, size) for unit, size in UNITS.items() if value % size == 0)
        return f"`{value / size:g}{unit}`"
    return f"`{json.dumps(value)}`"


def errors_page() -> str:
    kinds = {
        kind
        for module in (errors,)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, errors.BackburnerError)
    }
    rows = [row(f"`{kind.code}`", f"`{kind.__name__}`", kind.__doc__ or "") for kind in kinds]
    task_rows = [row(f"`{name}`", meaning) for name, meaning in TASK_ERRORS.items()]
    return ERRORS.format(rows="\n".join(sorted(rows)), task_rows="\n".join(task_rows))


def cli_page() -> str:
    root: Any = typer.main.get_command(app)
    common: list[Any] = []
    sections = []
    for words, command in _commands("backburner", root):
        hidden = {one.name for one in command.params if getattr(one, "hidden", False)}
        parameters = [one for one in command.params if one.name not in {"help", *hidden}]
        shared = [one for one in parameters if getattr(one, "rich_help_panel", None) == PANEL]
        common = max(common, shared, key=len)
        own = [row(_parameter(one), one.help or "") for one in parameters if one not in shared]
        text, examples = examples_of(command)
        table = ["| | |", "|---|---|", *own, ""] if own else []
        shown = ["```sh", *examples, "```", ""] if examples else []
        sections.append("\n".join([f"### `{words}`", "", text, "", *table, *shown]))
    codes = [row(str(code.value), meaning) for code, meaning in MEANINGS.items()]
    rows = [row(_parameter(one), one.help) for one in common]
    return CLI.format(
        common="\n".join(rows), codes="\n".join(codes), commands="\n".join(sections).rstrip("\n")
    )


def _commands(words: str, group: Any) -> Iterator[tuple[str, Any]]:
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from _commands(f"{words} {name}", command)
        else:
            yield f"{words} {name}", command


def _parameter(parameter: Any) -> str:
    """An argument as `NAME`, an option as `--name, -n VALUE`."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
    return f"`{', '.join(parameter.opts)}{value}`"


def tool_options_page() -> str:
    if missing := set(OPTION_NAMES) ^ set(TOOL_OPTIONS):
        raise SystemExit(f"TOOL_OPTIONS does not fit the options of tools: {sorted(missing)}")
    sections = [f"## `{name}`\n\n{TOOL_OPTIONS[name]}" for name in TOOL_OPTIONS]
    intro = (
        "Options of `@bb.tool(…)`, and of `Backburner.attach(…, slow={pattern: {option: value}})`."
        " `name`, `output_schema` and annotations are for `@bb.tool` only: an attached tool keeps its own."
    )
    return "\n\n".join(["# Tool options", intro, *sections]) + "\n"


def python_api_page() -> str:
    parts = ["# Python API", "These names are public. Everything else is internal and may change."]
    for module in PUBLIC:
        package = importlib.import_module(module)
        parts.append(f"## `{module}`")
        parts += [_member(name, getattr(package, name)) for name in sorted(package.__all__)]
    return "\n\n".join(parts) + "\n"


def _member(name: str, value: Any) -> str:
    text = [f"### `{name}`", inspect.getdoc(value) or ""]
    if inspect.isclass(value) and not issubclass(value, BaseException):
        rows = [
            row(f"`{member}`", (inspect.getdoc(getattr(value, member)) or "").partition("\n\n")[0])
            for member in vars(value)
            if not member.startswith("_")
            and (callable(getattr(value, member)) or isinstance(vars(value)[member], property))
        ]
        if rows:
            text.append("\n".join(["| | |", "|---|---|", *rows]))
    return "\n\n".join(filter(None, text))


def pages() -> dict[str, str]:
    """Return the text of each generated page."""
    return {
        "settings": settings_page(),
        "errors": errors_page(),
        "commands": cli_page(),
        "tool-options": tool_options_page(),
        "python-api": python_api_page(),
    }


if __name__ == "__main__":
    for name, page in pages().items():
        (HERE / "reference" / f"{name}.md").write_text(page)
