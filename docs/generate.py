"""Writes the pages that come from the code. Run it after changing settings or errors; a test compares.

python docs/generate.py
"""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

from backburner import errors
from backburner.config import Settings

HERE = Path(__file__).parent

SETTINGS = """\
# Settings

A setting is taken from the first place that has it: an argument of `Backburner(…)`, an environment
variable (`BACKBURNER_` and the name in capitals), the file `backburner.toml` (or the one that
`BACKBURNER_CONFIG` names). Times are seconds, or text such as `30s`, `5m`, `4h`, `7d`.

| setting | default | meaning |
|---|---|---|
{rows}

## Queues

A queue is a resource class: a number of workers on this host, and a cap on how many tasks may wait
in it. There are `cpu_small`, `cpu_standard`, `cpu_heavy` and `gpu_small`; what you give is put over
them. In `backburner.toml`:

```toml
[queues.cpu_heavy]
workers = 2
max_length = 500
```

or in the environment:

```sh
export BACKBURNER_QUEUES='{{"cpu_heavy": {{"workers": 2, "max_length": 500}}}}'
```
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

TASK_ERRORS = {
    "tool_error": "The tool raised; `exception` is the class and `details` the traceback.",
    "protocol_error": "The tool raised a `ProtocolError`: the client gets that JSON-RPC error.",
    "result_not_serialisable": "The tool returned something that is not JSON.",
    "worker_lost": "The process that ran the task, or its supervisor, or its host, went away.",
    "timed_out": "The task ran longer than `max_runtime_s`.",
    "memory_exceeded": "The task used more memory than `memory_mb`.",
    "scratch_exceeded": "The task used more scratch space than `scratch_mb`.",
    "cancelled": "The task was cancelled.",
    "unknown_tool": "The app has no such tool any more.",
    "app_not_loaded": "The app could not be imported in a runner; the message says why.",
}


def row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def settings_page() -> str:
    rows = []
    for entry in dataclasses.fields(Settings):
        default = "see below" if entry.default is dataclasses.MISSING else f"`{entry.default!r}`"
        rows.append(row(f"`{entry.name}`", default, entry.metadata["help"]))
    return SETTINGS.format(rows="\n".join(rows))


def errors_page() -> str:
    kinds = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.BackburnerError)
    ]
    rows = [row(f"`{kind.code}`", f"`{kind.__name__}`", kind.__doc__ or "") for kind in kinds]
    task_rows = [row(f"`{name}`", meaning) for name, meaning in TASK_ERRORS.items()]
    return ERRORS.format(rows="\n".join(sorted(rows)), task_rows="\n".join(task_rows))


if __name__ == "__main__":
    for name, page in (("settings", settings_page()), ("errors", errors_page())):
        (HERE / f"{name}.md").write_text(page)
