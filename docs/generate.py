"""Writes the pages that come from the code. Run it after changing settings, errors, verbs or modules.

python docs/generate.py
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from backburner import client_errors, errors
from backburner.cli import app
from backburner.cli.exits import MEANINGS
from backburner.cli.verb import PANEL, examples_of
from backburner.config import Settings, groups_of, variable
from backburner.config.old_spellings import MOVED

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "backburner"
#: Examples, and what is for tests: only the folders themselves are in the list of modules.
NOT_LISTED = ("packs", "testing")
MODULES_BEGIN, MODULES_END = "<!-- modules -->", "<!-- /modules -->"
UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}

SETTINGS = """\
# Settings

Each setting is taken from the first place that has it:

1. an argument of `Backburner(…)`: a group is a mapping, or its record from `backburner.config`, which is
   taken whole

   ```py
   Backburner("lab", supervisor={{"cancel_grace_s": 1}}, http={{"allowed_hosts": ["lab.example"]}})
   ```

2. an environment variable, with `__` between the group and the name, and JSON for lists and mappings

   ```sh
   export BACKBURNER_SUPERVISOR__CANCEL_GRACE_S=1
   export BACKBURNER_HTTP__ALLOWED_HOSTS='["lab.example"]'
   ```

   A name that is nearly one of these is refused; `backburner doctor` lists others that nobody reads.

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
`gpu_small` (one each; on a host without a GPU, `gpu_small` has none) and `io` (64, for
[tools that wait](tools.md#tools-that-wait)); what you give is put over them. In `backburner.toml`:

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

## Old spellings

Settings had no groups before. Their flat names work for one release more, each with a `FutureWarning` that
says the new one: as an argument, as a key of the file, and in the environment as `BACKBURNER_` and the name
in capitals. So do `"on"` and `"off"` for booleans, text with commas for `allowed_hosts`, and `name=time, …`
for `client_patience`. Where a place has both spellings of a setting, the new one counts.

| old | new |
|---|---|
{moved}
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
# The command line

`backburner --help` lists the verbs, and `backburner VERB --help` shows one with its options and examples.
`backburner --install-completion` teaches your shell to complete verbs, options, task ids and tool names.

## Where to look

Every verb that works with tasks takes these:

| option | meaning |
|---|---|
{common}

A task is named by its id, or by how its id begins if no other begins so, with `tsk_` or without. An owner is
named as tokens name it, such as `alice`; without `--owner` it is `local`, who is everybody without a token.

So `export BACKBURNER_TARGET=lab.py`, or a `backburner.toml` with `target = "lab.py"`, saves the typing.
With a store alone every verb works that needs no tools; `submit`, `call`, `tools`, `serve` and `worker` need
the app. With `--server` a verb works from another machine, through [the API](api.md), in the same words and
with the same exit codes; those that look after the machine itself, as `serve`, `worker` and `doctor`, refuse.

## Output

What you asked for goes to stdout, everything else to stderr. Colours are used on a terminal only, and never
when `NO_COLOR` is set. Control characters in what tools write are made visible, so that no log or result can
do anything to your terminal. With `--json`, stdout is JSON whose keys are those of the records (times are
ISO 8601), and an error is `{{"error": {{"code", "message", "details"}}}}` on stderr.

## Exit codes

| code | meaning |
|---|---|
{codes}

## Verbs

{verbs}
"""

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
    moved = [row(f"`{old}`", f"`{path}`") for old, path in MOVED.items()]
    return SETTINGS.format(groups="\n\n".join(_groups(Settings, "")), moved="\n".join(moved))


def _groups(record: type, path: str) -> Iterator[str]:
    """A section for the settings of a record, and one for each group in it."""
    groups = groups_of(record)
    title = [f"## `{path}`", "", inspect.getdoc(record) or ""] if path else ["## General"]
    table = ["| setting | variable | default | meaning |", "|---|---|---|---|"]
    for entry in dataclasses.fields(record):
        name = f"{path}.{entry.name}" if path else entry.name
        if entry.name not in groups:
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
        for module in (errors, client_errors)
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
    for words, command in _verbs("backburner", root):
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
    return CLI.format(common="\n".join(rows), codes="\n".join(codes), verbs="\n".join(sections).rstrip("\n"))


def _verbs(words: str, group: Any) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _verbs(f"{words} {name}", command)
        else:
            yield f"{words} {name}", command


def _parameter(parameter: Any) -> str:
    """An argument as `NAME`, an option as `--name, -n VALUE`."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
    return f"`{', '.join(parameter.opts)}{value}`"


def architecture_page() -> str:
    """The page as it is, with the list of modules made anew."""
    page = (HERE / "architecture.md").read_text()
    before, _, rest = page.partition(MODULES_BEGIN)
    _, _, after = rest.partition(MODULES_END)
    return f"{before}{MODULES_BEGIN}\n{module_list()}\n{MODULES_END}{after}"


def module_list() -> str:
    """A table for each folder of the source: its modules, and the first sentence of each."""
    folders: dict[str, list[str]] = {}
    for path in sorted(
        SOURCE.rglob("*.py"), key=lambda path: (path.parent, path.name != "__init__.py", path)
    ):
        place = path.relative_to(SOURCE)
        if place.parts[0] in NOT_LISTED and len(place.parts) > 2:
            continue
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        first = " ".join(text.partition("\n\n")[0].split())
        if first:
            folder = "" if place.parent == Path() else f"{place.parent}/"
            folders.setdefault(folder, []).append(row(f"`{folder}{path.name}`", first))
    return "\n".join("\n".join(["", "| | |", "|---|---|", *rows]) for rows in folders.values()).strip()


if __name__ == "__main__":
    pages = {
        "settings": settings_page(),
        "errors": errors_page(),
        "cli": cli_page(),
        "architecture": architecture_page(),
    }
    for name, page in pages.items():
        (HERE / f"{name}.md").write_text(page)
