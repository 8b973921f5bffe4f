"""ToolSpec, its options, and the registry of slow tools."""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
import typing
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..core import json_text
from ..core.limits import ToolLimits
from ..core.requests import MAX_KEY_CHARS
from ..core.retry import NO_RETRY, Retry
from ..core.task import Isolation, Resources, ResultKind
from ..core.text import HIDDEN, Redaction
from ..core.times import duration_s
from ..errors import BadConcurrencyKey, InvalidInputs, ToolDefinitionError, UnknownTool
from .context import TaskContext
from .estimates import Estimate, hint
from .results import MCPResult

if TYPE_CHECKING:
    from ..core.schema import Complaint, SchemaCheck
    from ..settings import Settings
    from .lifespan import Lifespan


_Rule = tuple[Callable[[Any], bool], str]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value > 0)


def _is_retries(value: Any) -> bool:
    return value is None or isinstance(value, Retry) or (type(value) is int and value >= 0)


def _is_texts(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, Mapping) and all(map(_is_text, value))


def _is_functions(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(callable, value.values()))


_TEXT: _Rule = (_is_text, "text")
_FLAG: _Rule = (_is_flag, "True or False")
_AMOUNT: _Rule = (_is_amount, "a number over 0")
_CHECKED_LATER: _Rule = (lambda value: True, "")  # by `duration_s`, or by ToolSpec

#: Each option with its rule.
_OPTIONS: Mapping[str, _Rule] = {
    "title": _TEXT,
    "description": _TEXT,
    "task": _CHECKED_LATER,
    "queue": (lambda value: value is None or _is_text(value), "the name of a queue"),
    "timeout": _CHECKED_LATER,
    "retries": (_is_retries, "a number from 0 on, or a Retry"),
    "estimate": _CHECKED_LATER,
    "answer": _CHECKED_LATER,
    "ttl": _CHECKED_LATER,
    "isolation": _CHECKED_LATER,
    "cpu": _AMOUNT,
    "memory_mb": _AMOUNT,
    "scratch_mb": _AMOUNT,
    "secrets": (_is_texts, "names of inputs"),
    "ask_first": (
        lambda value: value is None or callable(value) or isinstance(value, Mapping),
        "questions by key, or a function of the inputs",
    ),
    "asks": _CHECKED_LATER,
    "join": _CHECKED_LATER,
    "on_cancel": _CHECKED_LATER,
    "requires_task_id": _FLAG,
    "suggest": (_is_functions, "a function for each argument"),
    "max_running": _CHECKED_LATER,
    "max_starts_per_minute": _CHECKED_LATER,
    "concurrency_key": _CHECKED_LATER,
    "max_running_per_key": _CHECKED_LATER,
    "card": _FLAG,
}
#: Options for functions of the app alone: a server's tools have these from their framework.
_OF_FUNCTIONS: Mapping[str, _Rule] = {
    "name": _TEXT,
    "output_schema": (lambda value: value is None or isinstance(value, dict), "a JSON schema"),
    **dict.fromkeys(("read_only", "destructive", "idempotent", "open_world"), _FLAG),
}
OPTION_NAMES = (*_OPTIONS, *_OF_FUNCTIONS)


def tool_options(tool_name: str, options: Mapping[str, Any], *, of_function: bool = False) -> dict[str, Any]:
    """The fields of a ToolSpec for these options. Raises ToolDefinitionError and ConfigError."""
    known = {**_OPTIONS, **_OF_FUNCTIONS} if of_function else _OPTIONS
    for option, value in options.items():
        if option not in known:
            raise ToolDefinitionError(tool_name=tool_name, reason=_unknown(option, known))
        fits, wanted = known[option]
        if not fits(value):
            reason = f"{option}={value!r} is not {wanted}"
            raise ToolDefinitionError(tool_name=tool_name, reason=reason)
    fields = dict(options)
    amounts = {name: fields.pop(name, None) for name in ("cpu", "memory_mb", "scratch_mb")}
    for option in ("timeout", "ttl"):
        given = fields.pop(option, None)
        fields[f"{option}_s"] = None if given is None else duration_s(given, f"{tool_name}.{option}")
    secrets = fields.pop("secrets", ())
    fields["secrets"] = frozenset([secrets] if isinstance(secrets, str) else secrets)
    fields["retry"] = retry_policy(fields.pop("retries", None))
    fields["resources"] = Resources(**amounts)
    return fields


def retry_policy(retries: int | Retry | None) -> Retry:
    """`retries=2` tries every failure twice more; a Retry says more; None only what is clearly transient."""
    if retries is None:
        return Retry()
    if isinstance(retries, Retry):
        return retries
    return Retry(max_attempts=retries + 1, on=("*",)) if retries else NO_RETRY


def _unknown(option: Any, known: Mapping[str, Any]) -> str:
    import difflib

    near = difflib.get_close_matches(str(option), known, n=1)
    meant = f", did you mean {near[0]!r}?" if near else ";"
    return f"there is no option {option!r}{meant} known: {', '.join(sorted(known))}"


TaskMode = Literal["optional", "required", "never"]
AnswerMode = Literal["auto", "hold", "handle"]
AsksMode = Literal["client", "anyone"]
JoinMode = Literal["given-up", "always", "never"]
OnCancel = Literal["cancel", "detach"]
Run = Callable[[dict[str, Any], TaskContext], Any | Awaitable[Any]]
#: What to ask the client before the work begins: `{key: (message, schema)}`, or a function of the inputs.
Questions = Mapping[str, tuple[str, Mapping[str, Any] | None]]
AskFirst = Questions | Callable[[Mapping[str, Any]], Questions] | None
#: Values for an argument: of what has been typed, of the other arguments, and of the client's context.
Suggest = Callable[
    [str, Mapping[str, Any], Mapping[str, Any]], typing.Iterable[Any] | Awaitable[typing.Iterable[Any]]
]

#: The key of a task, by its inputs; None for one that has none.
ConcurrencyKey = Callable[[Mapping[str, Any]], str | None]

#: Rules whose breach is told by the names of inputs alone.
_NAMES_ONLY = ("required", "additionalProperties")
_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")
_MODES = {
    "task": get_args(TaskMode),
    "answer": get_args(AnswerMode),
    "asks": get_args(AsksMode),
    "join": get_args(JoinMode),
    "on_cancel": get_args(OnCancel),
    "isolation": get_args(Isolation),
    "result_kind": get_args(ResultKind),
}
#: What the settings say where a tool does not.
_UNSAID = (("isolation", None), ("on_cancel", None), ("answer", None))


@dataclass
class ToolSpec:
    """A slow tool. `run(inputs, context)` does the work in a runner; the rest says how its tasks are run.

    The answers to `ask_first` are in `context.answers` when `run` is called: the client gave them before
    there was a task, or else the task asks for them. With `requires_task_id` a call without `_meta.taskId`
    is refused. `asks` says who answers its questions: the client alone, which refuses if it cannot be asked,
    or anyone, for whom they wait then. `suggest` has the author's own values for arguments that are being
    completed, by argument. `join` says which call before it the same call joins, and `on_cancel` whether a
    client that cancels a held call ends its task. `meta` is put into that of each task. Without `isolation`,
    `on_cancel` or `answer` the app's setting counts. `is_async` says whether it is an `async def`; None:
    whether `run` is. At most `max_running` of its tasks run at a time, and `max_starts_per_minute` start in
    a minute; of those with the same `concurrency_key`, which is a function of the inputs, at most
    `max_running_per_key`, by default 1. Without `card` its calls are not shown on a card. `read_only`,
    `destructive`, `idempotent` and `open_world` are hints for clients; None gives none.
    """

    name: str
    run: Run
    description: str = ""
    title: str = ""
    task: TaskMode = "optional"
    queue: str | None = None
    timeout_s: float | None = None
    retry: Retry = Retry()
    estimate: Estimate = None
    answer: AnswerMode | None = None
    ttl_s: float | None = None
    isolation: Isolation | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    resources: Resources = Resources()
    secrets: frozenset[str] = frozenset()
    input_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object"})
    output_schema: dict[str, Any] | None = None
    result_kind: ResultKind = "value"
    ask_first: AskFirst = None
    asks: AsksMode = "client"
    join: JoinMode = "given-up"
    on_cancel: OnCancel | None = None
    requires_task_id: bool = False
    suggest: Mapping[str, Suggest] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    is_async: bool | None = None
    max_running: int | None = None
    max_starts_per_minute: int | None = None
    concurrency_key: ConcurrencyKey | None = None
    max_running_per_key: int | None = None
    card: bool = True

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            reason = "a name is 1 to 128 of the characters A-Z a-z 0-9 _ . - /"
            raise ToolDefinitionError(tool_name=self.name, reason=reason)
        for option, allowed in _MODES.items():
            value = getattr(self, option)
            if value not in allowed and (option, value) not in _UNSAID:
                reason = f"{option}={value!r} is not one of {', '.join(allowed)}"
                raise ToolDefinitionError(tool_name=self.name, reason=reason)
        if not callable(self.estimate) and self.estimate is not None and hint(self.estimate, {}) is None:
            reason = f"estimate={self.estimate!r} is neither seconds, from 0 on, nor a function of the inputs"
            raise ToolDefinitionError(tool_name=self.name, reason=reason)
        for cause in self.retry.causes:
            self._check_cause(cause)
        #: The policy as each of its tasks keeps it.
        self.kept_retry = self.retry.kept
        self._check_limits()
        if self.is_async is None:
            self.is_async = is_async(self.run)
        if self.ask_first is not None:
            self.run = self._asking_first(self.run)

    @property
    def of_server(self) -> bool:
        """Return whether it is a tool of an attached server, which runs inside the server's lifespan."""
        return self.result_kind == "call_tool_result"

    def queue_in(self, settings: Settings) -> str:
        """The queue of its tasks, where their caller names none. Tools that wait need no core each."""
        return self.queue or (self.is_async and settings.async_queue) or settings.default_queue

    def answer_in(self, settings: Settings) -> AnswerMode:
        """Return how its calls are answered for clients without tasks: its own mode, or the app's."""
        return self.answer or settings.mcp.answer

    def _check_limits(self) -> None:
        for option in ToolLimits.__struct_fields__:
            number = getattr(self, option)
            if number is not None and (type(number) is not int or number < 1):
                reason = f"{option}={number!r} is not a whole number from 1 on"
                raise ToolDefinitionError(tool_name=self.name, reason=reason)
        if self.concurrency_key is not None and (
            not callable(self.concurrency_key) or is_async(self.concurrency_key)
        ):
            reason = 'concurrency_key takes a function (not async) of the inputs: lambda a: a["repo"]'
            raise ToolDefinitionError(tool_name=self.name, reason=reason)
        if self.concurrency_key is None and self.max_running_per_key is not None:
            reason = "max_running_per_key needs a concurrency_key, which says what the key of a task is"
            raise ToolDefinitionError(tool_name=self.name, reason=reason)
        per_key = self.max_running_per_key or (1 if self.concurrency_key else None)
        limits = ToolLimits(self.max_running, self.max_starts_per_minute, per_key)
        #: What limits all its tasks together, as each of them keeps it.
        self.limits = limits or None

    def key_of(self, inputs: Mapping[str, Any]) -> str:
        """Of which tasks at most `max_running_per_key` run: those with the same key. Empty for none.

        Raises BadConcurrencyKey, which quotes nothing of the inputs.
        """
        if self.concurrency_key is None:
            return ""
        try:
            key = self.concurrency_key(inputs)
        except Exception as error:
            reason = f"it raised {type(error).__name__}"
            raise BadConcurrencyKey(tool_name=self.name, reason=reason) from error
        if key is None:
            return ""
        if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS:
            what = f"a text of {len(key)} characters" if isinstance(key, str) else f"a {type(key).__name__}"
            raise BadConcurrencyKey(tool_name=self.name, reason=f"it gave {what}")
        json_text.encode(key, "The concurrency key")
        if self.secrets and Redaction(inputs, self.secrets).text(key) != key:
            return hashlib.sha256(key.encode()).hexdigest()[:16]  # it is shown to who waits for it
        return key

    def _check_cause(self, cause: Any) -> None:
        fits = issubclass(cause, BaseException) if isinstance(cause, type) else callable(cause)
        if not (isinstance(cause, str) or fits) or inspect.iscoroutinefunction(cause):
            reason = (
                f"Retry(on={cause!r}): on takes names of errors, exception classes, "
                "and functions (not async) that are given the exception"
            )
            raise ToolDefinitionError(tool_name=self.name, reason=reason)

    def questions(self, inputs: Mapping[str, Any]) -> Questions:
        """Return the questions to ask before a call with these inputs."""
        asked = self.ask_first(inputs) if callable(self.ask_first) else self.ask_first
        return asked or {}

    def _asking_first(self, run: Run) -> Run:
        def ask_and_run(inputs: dict[str, Any], context: TaskContext) -> Any:
            questions = self.questions(inputs)
            if questions and not context.answers:
                context.answers = context.ask_all(questions)
            return run(inputs, context)

        return ask_and_run

    @cached_property
    def allows_handle(self) -> bool:
        """Return whether a handle, which is an MCPResult, fits the output schema."""
        from ..core.schema import SchemaCheck

        handle = MCPResult(data={"status": "queued"}).add_info("queued").to_dict()
        return self.output_schema is None or SchemaCheck(self.output_schema).complaint(handle) is None

    @cached_property
    def _schema_check(self) -> SchemaCheck:
        from ..core.schema import SchemaCheck

        return SchemaCheck(self.input_schema)

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise InvalidInputs, naming the field and the reason, when the inputs break the schema.

        The tool of an attached server is not checked here: its own framework does so, in its own way.
        """
        if self.result_kind == "call_tool_result":
            return
        check = self._schema_check
        with suppress(Exception):  # of a schema that is wrong, too, `complaint` says what there is to say
            if check.stock is not None and check.stock.is_valid(inputs):
                return
        broken = check.complaint(inputs)
        if broken is not None:
            where = "/".join(map(str, broken.path)) or "the top level"
            raise InvalidInputs(tool_name=self.name, field=where, reason=self._reason(broken))

    def _reason(self, broken: Complaint) -> str:
        """Return the reason of the refusal, without quoting a secret."""
        if self.secrets.intersection(broken.path):
            return f"the value, which is a secret, breaks the rule {broken.rule!r}"
        if self.secrets and not broken.path and broken.rule not in _NAMES_ONLY:
            return f"they break the rule {broken.rule!r}; they are not shown, for they hold a secret"
        if broken.rule == "additionalProperties" and not broken.path:
            return f"{broken.message}; known: {', '.join(self.input_schema.get('properties') or ['none'])}"
        return broken.message

    def masked(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs for people to see: secret ones are hidden."""
        return {key: HIDDEN if key in self.secrets else value for key, value in inputs.items()}

    def unmasked(self, inputs: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs that a person changed: a secret that is still hidden is what it was before."""
        hidden = {key for key in self.secrets.intersection(before) if inputs.get(key) == HIDDEN}
        return {**inputs, **{key: before[key] for key in hidden}}

    def without_secrets(self, said: dict[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of a call as text for people, with secrets hidden."""
        if not self.secrets:
            return said
        shown: dict[str, Any] = Redaction(inputs, self.secrets).value(said)
        return shown


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function is `async def`, also as a method, in a `partial`, or as `__call__`."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def tool_from_function(function: Callable[..., Any], **options: Any) -> ToolSpec:
    """A ToolSpec for a plain function, sync or async; its schema comes from its signature.

    A parameter annotated `TaskContext`, or named `ctx` without an annotation, gets the context and is not
    part of the schema. Raises ToolDefinitionError for a signature that has no JSON schema.
    """
    tool_name = options.get("name") or function.__name__
    fields = tool_options(str(tool_name), options, of_function=True)
    try:
        model, context_parameter = _input_model(function)
        schema = model.model_json_schema(by_alias=True)
    except ToolDefinitionError:
        raise
    except Exception as error:
        reason = f"its parameters have no JSON schema: {error}"
        raise ToolDefinitionError(tool_name=tool_name, reason=reason) from error

    def run(inputs: dict[str, Any], context: TaskContext) -> Any:
        arguments = model.model_validate(inputs)
        values = {entry.alias: getattr(arguments, key) for key, entry in type(arguments).model_fields.items()}
        if context_parameter:
            values[context_parameter] = context
        return function(**values)

    described = {"name": tool_name, "description": inspect.getdoc(function) or ""}
    return ToolSpec(run=run, input_schema=schema, is_async=is_async(function), **{**described, **fields})


def _input_model(function: Callable[..., Any]) -> tuple[Any, str | None]:
    from pydantic import ConfigDict, create_model

    hints = typing.get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    context_parameter = None
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            reason = f"the parameter {parameter} cannot be given by name"
            raise ToolDefinitionError(tool_name=function.__name__, reason=reason)
        if name in ("self", "cls") and not fields and name not in hints:
            reason = f"it is a method; mark it on an instance: bb.tool(instance.{function.__name__})"
            raise ToolDefinitionError(tool_name=function.__name__, reason=reason)
        hint = hints.get(name, Any)
        if TaskContext in (hint, *get_args(hint)) or (name == "ctx" and name not in hints):
            context_parameter = name
        else:
            # Behind an alias, a parameter may have any name, also one that pydantic uses itself.
            fields[f"parameter_{len(fields)}"] = _field_of(hint, parameter.default, name)
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    return create_model(function.__name__, __config__=config, **fields), context_parameter


def _field_of(hint: Any, default: Any, name: str) -> tuple[Any, Any]:
    """A field of the input model. A default that is a `Field` says more than a value does."""
    from pydantic import Field
    from pydantic.fields import FieldInfo

    if isinstance(default, FieldInfo):
        return typing.Annotated[hint, default], Field(alias=name)
    return hint, Field(... if default is inspect.Parameter.empty else default, alias=name)


class Registry:
    """The slow tools of an app, by name."""

    def __init__(self) -> None:
        self._tools: dict[str, ToolSpec] = {}
        #: Asked for a tool that is not here (yet): the tools of an attached server are found when needed.
        self.find_missing: Callable[[str], ToolSpec | None] = lambda name: None
        #: What the tools of an attached server live in: a runner enters it once.
        self.lifespan: Lifespan | None = None
        #: Whether a log record is only for the operator, such as one of an attached server's framework.
        self.is_private_record: Callable[[logging.LogRecord], bool] = lambda record: False
        #: What an attached server offers itself, when that is known, and the patterns that match none of it.
        self.offered: tuple[str, ...] = ()
        self.unmatched: tuple[str, ...] = ()

    def add(self, spec: ToolSpec) -> None:
        if spec.name in self._tools:
            raise ToolDefinitionError(tool_name=spec.name, reason="there is a tool of that name already")
        self._tools[spec.name] = spec

    def get(self, name: str) -> ToolSpec:
        """Raises UnknownTool, naming the known ones."""
        try:
            return self._tools[name]
        except (KeyError, TypeError):
            found = self.find_missing(name) if isinstance(name, str) else None
            if found is not None:
                return self._tools.setdefault(name, found)
            known = ", ".join(sorted(self._tools)) or "none"
            raise UnknownTool(tool_name=name, known=known) from None

    def asks(self, name: str) -> AsksMode:
        """Return the `asks` mode of a tool, also of one that is added on demand."""
        spec = self._tools.get(name) or self.find_missing(name)
        return "client" if spec is None else spec.asks

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)
