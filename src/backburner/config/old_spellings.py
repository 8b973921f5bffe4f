"""Spellings of settings from before they had groups. They work for one release more, with a warning.

Where the old and the new spelling of a setting stand in the same place, the new one counts.
"""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ConfigError
from . import variable

#: Where each setting is that had a flat name.
MOVED = {
    "synchronous": "sqlite.synchronous",
    "ttl_s": "retention.ttl_s",
    "max_ttl_s": "retention.max_ttl_s",
    "purge_after_s": "retention.purge_after_s",
    "pack_logs_after_s": "retention.pack_logs_after_s",
    "max_input_bytes": "limits.max_input_bytes",
    "max_result_bytes": "limits.max_result_bytes",
    "max_log_bytes": "limits.max_log_bytes",
    "max_runtime_s": "limits.max_runtime_s",
    "heartbeat_s": "supervisor.heartbeat_s",
    "lease_grace_s": "supervisor.lease_grace_s",
    "cancel_grace_s": "supervisor.cancel_grace_s",
    "drain_grace_s": "supervisor.drain_grace_s",
    "idle_exit_s": "supervisor.idle_exit_s",
    "keeper_interval_s": "supervisor.keeper_interval_s",
    "max_tasks_per_runner": "supervisor.max_tasks_per_runner",
    "task_tools": "mcp.task_tools",
    "task_tools_prefix": "mcp.task_tools_prefix",
    "patience_s": "mcp.patience_s",
    "client_patience": "mcp.client_patience",
    "announce_jobs": "mcp.announce_jobs",
    "progress_silence_s": "mcp.progress_silence_s",
    "state_dir": "task_id.state_dir",
    "ui_prompt_file": "task_id.ui_prompt_file",
    "state_file": "task_id.state_file",
    "public_url": "http.public_url",
    "artifact_link_s": "http.artifact_link_s",
    "allowed_hosts": "http.allowed_hosts",
    "allow_anonymous": "http.allow_anonymous",
    "auth_tokens": "http.auth.tokens",
    "auth_jwt_key": "http.auth.jwt_key",
    "auth_jwks": "http.auth.jwks",
    "auth_issuer": "http.auth.issuer",
    "auth_audience": "http.auth.audience",
}


def new_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with flat names put into their groups."""

    def as_argument(path: str) -> str:
        group, *names = path.split(".")
        inner = "…"
        for name in reversed(names):
            inner = f'{{"{name}": {inner}}}'
        return f"{group}={inner}"

    return _in_groups(arguments, as_argument, at_caller=True)


def new_file(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says, with flat keys put into their tables."""

    def as_key(path: str) -> str:
        table, _, name = path.rpartition(".")
        return f"{name} in the table [{table}]" if table else f"{name} in backburner.toml"

    return _in_groups(values, as_key)


def new_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with flat variables under their new names."""
    renamed = dict(environment)
    for old, path in MOVED.items():
        if variable(old) in renamed:
            _warn(f"{variable(old)} is now {variable(path)}")
            renamed.setdefault(variable(path), renamed.pop(variable(old)))
    return renamed


def new_values(values: dict[str, Any]) -> dict[str, Any]:
    """Nested settings in which text is a boolean, a list or a mapping where it stood for one."""
    renewed = dict(values)
    for path, read in _RESPELLED.items():
        group, _, name = path.partition(".")
        within = renewed.get(group)
        if isinstance(within, Mapping) and isinstance(text := within.get(name), str):
            value = text if text.startswith(("[", "{")) else read(text)  # JSON that does not parse stays
            if value is not text:
                _warn(f"{path} is now written {json.dumps(value)}, not {text!r}")
            renewed[group] = {**within, name: value}
    return renewed


def _in_groups(
    values: Mapping[str, Any], spelled: Callable[[str], str], *, at_caller: bool = False
) -> dict[str, Any]:
    nested = dict(values)
    for old in [name for name in nested if name in MOVED]:
        _warn(f"{spelled(old)} is now {spelled(MOVED[old])}", at_caller=at_caller)
        *groups, name = MOVED[old].split(".")
        place = nested
        for group in groups:
            found = place.get(group, {})
            if not isinstance(found, Mapping):
                break  # the reader says what is wrong with it
            place[group] = dict(found)
            place = place[group]
        else:
            place.setdefault(name, nested[old])
        del nested[old]
    return nested


def _switch(text: str) -> Any:
    return {"on": True, "off": False}.get(text, text)


def _list(text: str) -> Any:
    return [part.strip() for part in text.split(",") if part.strip()]


def _patience(text: str) -> Any:
    """`name@version=time, …`"""
    read = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        client, equals, time = entry.rpartition("=")
        if not equals or not client.strip():
            reason = f"{entry!r} is not of the form name=time or name@version=time"
            raise ConfigError(setting="mcp.client_patience", reason=reason)
        read[client.strip()] = "forever" if time.strip().casefold() == "forever" else time.strip()
    return read


_RESPELLED: dict[str, Callable[[str], Any]] = {
    "mcp.task_tools": _switch,
    "http.allow_anonymous": _switch,
    "http.allowed_hosts": _list,
    "mcp.client_patience": _patience,
}


def _warn(text: str, *, at_caller: bool = False) -> None:
    """Warn once for each text, or once for each line outside of this package that brought us here."""
    level = 1 + _own_frames() if at_caller else 2
    warnings.warn(f"{text}; the old spelling goes with the next release", FutureWarning, stacklevel=level)


def _own_frames() -> int:
    """How many frames from our caller's on belong to this package."""
    package = __name__.partition(".")[0]
    count, frame = -1, inspect.currentframe()  # our own frame is not counted
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        count, frame = count + 1, frame.f_back
    return count
