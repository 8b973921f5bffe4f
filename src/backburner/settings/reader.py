"""Reads settings: arguments before environment variables before `backburner.toml`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin, get_type_hints

from msgspec import Struct
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    create_model,
)

from ..core.limits import ToolLimits
from ..core.times import duration_s
from ..errors import ConfigError
from . import (
    CLIENT_TABLES,
    IO_QUEUE,
    Queue,
    Settings,
    default_queues,
    default_store,
    every_setting,
    field_names,
    groups_of,
    plain,
    store_from,
    variable,
)
from .engines import BATCH_TABLES, SLURM_TABLES

_PREFIX = "BACKBURNER_"
#: Variables of ours that are no settings.
_NOT_SETTINGS = (
    "BACKBURNER_CONFIG",
    "BACKBURNER_TOKEN",
    "BACKBURNER_SERVER",
    "BACKBURNER_TASK_TOKEN",
    "BACKBURNER_PYTHONPATH",
    "BACKBURNER_WORKER_SETTINGS",
)
#: Settings with names of the user's own: they come whole from the first place that has them.
_TABLES = frozenset(("queues", "tools", *CLIENT_TABLES, *SLURM_TABLES, *BATCH_TABLES))
#: What such names stand for, where that is a record.
_ENTRIES = {"queues": Queue, "tools": ToolLimits}
#: How alike two names are of which one is taken for the other.
_CLOSE = 0.75
#: What is taken for a number. One that need not be there is a limit, and 0 would let no task have anything.
_NUMBERS: Mapping[Any, Any] = {
    int: NonNegativeInt,
    int | None: PositiveInt | None,
    float | None: PositiveFloat | None,
}


def read(
    name: str,
    arguments: Mapping[str, Any],
    environment: Mapping[str, str],
    file: str | Path | None,
    folder: Path | None,
) -> Settings:
    """The settings in force for the app `name`. Raises ConfigError, naming the setting.

    A relative store is looked for where it is named: from `folder` for arguments, and from the folder of the
    file for the file.
    """
    named = file or environment.get("BACKBURNER_CONFIG")
    path = Path(named or "backburner.toml")
    _refuse_misspelt(environment)
    given = _store_from(path.parent, _from_file(path, must_exist=bool(named)))
    given = _merged(given, _from_environment(environment))
    given = _merged(given, _store_from(folder, _without_none(arguments)))
    try:
        model = _model_of(Settings, given).model_validate(given)
    except ValidationError as error:
        raise _refusal(error) from None
    values = model.model_dump(exclude_unset=True)
    values.setdefault("store", default_store(name, environment, folder))
    values["async_queue"] = _async_queue(values)
    values["queues"] = _queues(values)
    if (contract := values.get("task_id", {})).get("state_dir"):
        # The supervisor, which has another working folder, must find it too.
        contract["state_dir"] = str(Path(contract["state_dir"]).expanduser().absolute())
    return Settings.from_values(values)


def _async_queue(values: Mapping[str, Any]) -> str:
    """The queue of `async def` tools: who counts workers without `io` does not get 64 more at a time."""
    if "async_queue" in values:
        return str(values["async_queue"])
    if "queues" in values:
        return IO_QUEUE if IO_QUEUE in values["queues"] else ""
    return "" if "default_queue" in values or _has_user_for_each_worker(values) else IO_QUEUE


def _queues(values: Mapping[str, Any]) -> dict[str, Any]:
    """The default queues, and what is said of these and of others."""
    own = {queue: plain(default) for queue, default in default_queues().items()}
    if values["async_queue"] != IO_QUEUE and _has_user_for_each_worker(values):
        del own[IO_QUEUE]
    return {**own, **values.get("queues", {})}


def _has_user_for_each_worker(values: Mapping[str, Any]) -> bool:
    return "-" in values.get("isolation", {}).get("users", "")


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the unknown variables that begin with `BACKBURNER_`, each with the closest known one or "".

    Names with `__` are skipped: they name settings, and unknown settings are refused.
    """
    paths = [path for path, _ in every_setting()]
    read = {variable(path): variable(path) for path in paths}
    read |= dict.fromkeys(map(variable, groups_of(Settings)), "") | {name: name for name in _NOT_SETTINGS}
    without_group = {variable(path.rpartition(".")[2]): variable(path) for path in paths}
    near = {name: meant for name, meant in (without_group | read).items() if meant}
    unknown = {}
    for name in environment:
        if name.startswith(_PREFIX) and "__" not in name and name not in read:
            words = {known.removeprefix(_PREFIX): meant for known, meant in near.items()}
            import difflib

            found = difflib.get_close_matches(name.removeprefix(_PREFIX), words, 1, cutoff=_CLOSE)
            unknown[name] = words[found[0]] if found else ""
    return unknown


def _refuse_misspelt(environment: Mapping[str, str]) -> None:
    """Raise ConfigError for a variable that is close to a known one; others may belong to another program."""
    for name, meant in unknown_variables(environment).items():
        if meant:
            raise ConfigError(setting=name, reason=f"there is no such variable; {meant} may be meant")


def _store_from(folder: Path | None, values: dict[str, Any]) -> dict[str, Any]:
    url = values.get("store")
    if folder is None or not isinstance(url, str):
        return values
    return {**values, "store": store_from(folder, url)}


def _without_none(value: Any) -> dict[str, Any]:
    """Arguments as nested dicts: a record gives all that it holds, and None says nothing."""
    return {
        name: _without_none(inner) if _is_nested(inner) else inner
        for name, inner in plain(value).items()
        if inner is not None
    }


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | Struct) or dataclasses.is_dataclass(value)


def _from_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    if not path.exists():
        if must_exist:
            raise ConfigError(setting="config", reason=f"there is no file {path}")
        return {}
    import tomllib

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(setting="config", reason=f"{path} is not valid TOML: {error}") from error


# -- the places to read from -----------------------------------------------------------------------


def _from_environment(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the variables `BACKBURNER_*`, in which `__` leads into a group."""
    # BACKBURNER_SUPERVISOR marks the processes of a supervisor, so that no variable sets a whole group.
    ignored = {variable(group) for group in groups_of(Settings)}
    own = sorted(name for name in variables if name.startswith(_PREFIX) and name not in ignored)
    values: dict[str, Any] = {}
    for name in own:
        path = name.removeprefix(_PREFIX).lower().split("__")
        if len(path) == 1 and path[0] not in field_names(Settings):
            continue
        inner = values
        for step in path[:-1]:
            if not isinstance(inner.get(step), dict):
                inner[step] = {}
            inner = inner[step]
        inner[path[-1]] = _decoded(".".join(path), variables[name])
    return values


def _decoded(path: str, text: str) -> Any:
    """Decode a JSON list or object; other text stays, for the check that can name the setting."""
    is_text = any(known == path and entry.type == "str" for known, entry in every_setting())
    if text.startswith(("[", "{")) and not is_text:
        with contextlib.suppress(ValueError):
            return json.loads(text)
    return text


def _merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Merge groups; a value in `upper` wins."""
    both = dict(lower)
    for name, value in upper.items():
        below = both.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping) and name not in _TABLES:
            value = _merged(below, value)
        both[name] = value
    return both


# -- what is read ----------------------------------------------------------------------------------


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _model_of(record: type, values: Any = None) -> Any:
    """A model of a record's fields, none of them required: defaults are the record's own affair.

    With `values`, a model of the fields among them: all settings take 30 ms.
    """
    kinds = get_type_hints(record)
    names = field_names(record)
    if values is not None:
        names = tuple(name for name in names if isinstance(values, Mapping) and name in values)
    fields: dict[str, Any] = {
        name: (_checked(name, kinds[name], None if values is None else values[name]), None) for name in names
    }
    return create_model(record.__name__, __base__=_Group, **fields)


def _checked(name: str, kind: Any, value: Any) -> Any:
    """The type that checks what is given for a field."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _model_of(kind, value)
    if name == "queues":
        queue = _model_of(Queue)
        return dict[str, Annotated[queue, BeforeValidator(_queue)]]  # type: ignore[valid-type]
    if name == "tools":
        limits = _model_of(ToolLimits)
        return dict[str, Annotated[limits, BeforeValidator(_tool_limits)]]  # type: ignore[valid-type]
    if name == "client_patience":
        return dict[str, Annotated[Any, BeforeValidator(_patience)]]
    if name == "client_result_tokens":
        return dict[str, PositiveInt | Literal["any"]]
    if name.endswith("_s"):
        return Annotated[float, BeforeValidator(_seconds)]
    if get_origin(kind) is tuple:
        return list[str]
    return _NUMBERS.get(kind, kind)


def _seconds(value: Any) -> float:
    try:
        return duration_s(value)
    except ConfigError as error:
        raise ValueError(error.details["reason"]) from None


def _patience(value: Any) -> Any:
    return value if value == "forever" else _seconds(value)


def _queue(value: Any) -> Any:
    """A number alone is the number of workers."""
    return {"workers": value} if isinstance(value, int | str) else value


def _tool_limits(value: Any) -> Any:
    """A number alone is how many may run at a time."""
    return {"max_running": value} if isinstance(value, int | str) else value


# -- what is wrong ---------------------------------------------------------------------------------


def _refusal(error: ValidationError) -> ConfigError:
    """The first thing that is wrong, by the name of its setting, and what to write in its place."""
    first = error.errors(include_url=False)[0]
    names = [str(name) for name in first["loc"]]
    if names[-1] == "bool":  # the part of a union that is meant
        names.pop()
    path = ".".join(names)
    if first["type"] == "extra_forbidden":
        return ConfigError(setting=path, reason=_unknown(names))
    # What should be text may be a secret.
    quoted = "The value" if first["type"] == "string_type" else repr(first["input"])
    reason = first["msg"].removeprefix("Value error, ").replace("Input", quoted, 1)
    entries = dict(every_setting())
    around = (entries.get(".".join(names[:length])) for length in range(len(names), 0, -1))
    entry = next(filter(None, around), None)
    if entry is not None and entry.metadata["example"] and first["type"] != "value_error":
        reason += f"; write for example {entry.metadata['example']}"
    return ConfigError(setting=path, reason=reason)


def _unknown(names: list[str]) -> str:
    """Return a message with the closest setting and all settings of the same group."""
    paths = [*groups_of(Settings), *(path for path, _ in every_setting())]
    by_name = {path.rpartition(".")[2]: path for path in paths} | {path: path for path in paths}
    import difflib

    near = difflib.get_close_matches(".".join(names), by_name) or difflib.get_close_matches(
        names[-1], by_name
    )
    meant = f"; did you mean {by_name[near[0]]}?" if near else ";"
    record: Any = Settings
    for name in names[:-1]:
        record = groups_of(record).get(name) or _ENTRIES.get(name, record)
    known = ", ".join(sorted(field_names(record)))
    return f"there is no such setting{meant} known: {known}"


def as_variables(settings: Settings) -> dict[str, str]:
    """The variables of all settings that are not as by default. Some of them are secrets.

    An app that names a setting in its code wins over them; so it did where these settings come from.
    """
    default = Settings()
    found: dict[str, Any] = {}
    for path, _ in every_setting():
        value = attrgetter(path)(settings)
        if value is not None and value != attrgetter(path)(default):
            found[variable(path)] = value
    return {
        name: value if isinstance(value, str) else json.dumps(value, default=plain)
        for name, value in found.items()
    }
