"""Errors. The docstring of an error class is its message: what failed, why, and what to do."""

from __future__ import annotations

import inspect
import re
from typing import Any, ClassVar


class BackburnerError(Exception):
    """Something went wrong in Backburner."""

    code: ClassVar[str] = "backburner_error"

    def __init_subclass__(cls) -> None:
        """Derive `code` from the class name: `task_not_found`, unless the class names another."""
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, **details: Any) -> None:
        self.details = details
        super().__init__(" ".join(inspect.cleandoc(type(self).__doc__ or "").split()).format(**details))

    def to_dict(self) -> dict[str, Any]:
        return {"code": self.code, "message": str(self), "details": self.details}


# -- what the caller can put right ---------------------------------------------------------------


class InvalidRequest(BackburnerError):
    """The request is not valid: {reason}."""


class UnknownTool(InvalidRequest):
    """There is no slow tool named {tool_name!r}. Known ones: {known}."""


class InvalidInputs(InvalidRequest):
    """The inputs of {tool_name} are not valid at {field}: {reason}."""


class InvalidJson(InvalidRequest):
    """{what} cannot be stored as JSON: {reason}. Pass plain JSON values."""


class TooLarge(InvalidRequest):
    """{what} is {size} bytes long; the limit is {limit}. Pass a path or a URL instead, or raise the limit."""


class OverLimit(InvalidRequest):
    """{name} = {asked} is over the limit of {limit}, which {whose} has set. Ask for no more than that."""


class UnknownQueue(InvalidRequest):
    """There is no queue named {queue!r}. Known ones: {known}."""


class InvalidCursor(InvalidRequest):
    """The cursor is not one that was handed out here. Start again without a cursor."""


class NoSuchPart(InvalidRequest):
    """There is no {path}: {reason}."""


class InvalidAnswer(InvalidRequest):
    """The answer to question {key!r} of task {task_id} is not valid: {reason}."""


class BadConcurrencyKey(InvalidRequest):
    """The concurrency_key of {tool_name} failed for these inputs: {reason}. It must return a text of 1 to 256 characters, or None for no key."""


class TaskIdRequired(InvalidRequest):
    """Tool {tool_name!r} requires _meta.taskId, or the key that _meta.asyncTask.taskIdKey names. Call it directly, with an id of the host's in the `_meta` of the call."""


class StateDirRefused(InvalidRequest):
    """State folder {folder!r} refused: {reason}. Name a folder that the server may write to (over HTTP below one of task_id.state_roots), or none to use the server's own."""


class WebhookRefused(InvalidRequest):
    """Webhook refused: {reason}."""


class TaskNotFound(BackburnerError):
    """There is no task {task_id!r} that you may see. It may have expired; list your tasks to see what is there."""


class AmbiguousTask(BackburnerError):
    """More than one task id begins with {beginning!r}: {candidates}. Write more of the one that you mean."""

    code = "task_ambiguous"


class AmbiguousOwner(BackburnerError):
    """More than one owner is called {name!r}. Name the one that you mean in full: {candidates}."""

    code = "owner_ambiguous"


class UnknownToken(BackburnerError):
    """There is no token named {name!r} in {path}. `backburner token ls` shows the names."""


class ArtifactNotFound(BackburnerError):
    """There is no artifact {artifact_id!r} that you may see. It may have expired with its task."""


class NotAllowedNow(BackburnerError):
    """Task {task_id} is {state}, so it cannot {signal} now."""


class NotFinished(BackburnerError):
    """Task {task_id} is still {state}, so it has no result yet. Ask again in {poll_after_ms} ms, or wait for it."""


class IdempotencyConflict(BackburnerError):
    """The idempotency key {key!r} was used before for task {task_id} with other inputs. Use a new key for new inputs."""


class QueueFull(BackburnerError):
    """Queue {queue!r} is full ({length} tasks wait). Submit again in {retry_after_s} s."""


class ConfigError(BackburnerError):
    """The setting {setting} is not valid: {reason}."""


class ToolDefinitionError(BackburnerError):
    """The tool {tool_name!r} cannot be used: {reason}."""


class NoTarget(BackburnerError):
    """The app {name!r} is created {where}, so the processes that run its tasks cannot import it: {advice}."""


class AppNotFound(BackburnerError):
    """No Backburner app was found at {target!r}: {reason}."""


class TokenNotFound(BackburnerError):
    """There is no call in flight with the progress token {token!r}: it has ended, or was silent for too long."""


class ProgressTimeout(BackburnerError):
    """The call with the progress token {token!r} was silent for more than {silence_s} s and is no longer tracked."""

    code = "timeout"


class NoClient(BackburnerError):
    """No client is connected for the progress token {token!r}."""

    code = "no_client_pid"


class ReferenceNotFound(InvalidRequest):
    """The reference {reference!r} leads to nothing in the arguments or the context."""

    code = "not_found"


class CompletionFailed(InvalidRequest):
    """No completions are available: {reason}."""


# -- workers -------------------------------------------------------------------------------------


class LeaseLost(BackburnerError):
    """Attempt {attempt} of task {task_id} has lost its lease; its write was refused and changed nothing."""


class TaskCancelled(BackburnerError):
    """The task was cancelled. Raised inside the tool by `ctx.raise_if_cancelled()`."""


class ProtocolError(BackburnerError):
    """{message}"""

    # A tool may raise it: the client gets this JSON-RPC error in place of a result.
    def __init__(self, error_code: int, message: str, data: Any = None) -> None:
        super().__init__(message=message, error_code=error_code, data=data)


class ToolFailed(BackburnerError):
    """{message}"""

    # The tool of an attached server answered with an error: `result` is that `CallToolResult`.
    def __init__(self, message: str, result: dict[str, Any]) -> None:
        super().__init__(message=message, result=result)


class EngineError(BackburnerError):
    """The engine {engine} failed: {reason}."""


class DataDirTaken(EngineError):
    """The data folder {folder} is in use for another store: the supervisor with pid {pid} works there on {store}. Tasks wait until it has ended. Give each store a folder of its own: set data_dir."""


class NotConfined(EngineError):
    """Tools cannot be isolated as {setting} asks: {reason}. No task runs without it; `backburner doctor` lists what this machine supports."""


# -- stores --------------------------------------------------------------------------------------


class StoreError(BackburnerError):
    """The store {store} failed: {reason}."""


class StoreUnavailable(StoreError):
    """The store {store} cannot be reached now ({reason}). Nothing acknowledged is lost; try again shortly."""


class StoreBusy(StoreError):
    """The store {store} is locked by another program ({reason}). Close that program or try again."""


class StoreFull(StoreError):
    """The store {store} cannot grow: {reason}. Free some disk space; nothing acknowledged is lost."""


class StoreReadOnly(StoreError):
    """The store {store} cannot be written: {reason}. Check the permissions of the file and of its folder, or the rights of the database's user."""


class StoreBroken(StoreError):
    """The disk of the store {store} failed: {reason}. See what the system says (dmesg), and move to another disk."""


class StoreCorrupt(StoreError):
    """The store {store} is damaged or is not a Backburner store: {reason}. Restore a backup or use another file."""


class StoreRefused(StoreError):
    """The store {store} refused a value: {reason}."""


class StoreGone(StoreError):
    """The store {store} was removed or replaced while it was open. Start what uses it again."""


class StoreTooNew(StoreError):
    """The store {store} has schema version {found}; this Backburner knows up to {known}. Upgrade Backburner."""


class NotCopied(StoreError):
    """The store {store} was not copied: {reason}."""


class ArtifactStorageError(BackburnerError):
    """The artifact storage {storage} failed: {reason}."""


class ConnectionLost(BackburnerError):
    """The server {server} cannot be reached: {reason}."""


class NotAuthorized(ConnectionLost):
    """The server {server} does not let this client in: {reason}. Give a token that it knows: `token=…`, or `--token` on the command line."""


class CallInterrupted(ConnectionLost):
    """The connection to {server} broke while {tool_name} was being called ({reason}); it may have started or not."""


class ResultLost(BackburnerError):
    """The result of {task_id} is lost: {reason}. {known} Call the tool again if it may run twice."""


class TaskWasCancelled(BackburnerError):
    """Task {task_id} was cancelled, so it has no result."""


class NotOffered(BackburnerError):
    """The server does not offer {what} for task {task_id}."""


class DamagedDownload(BackburnerError):
    """The artifact {name} arrived damaged: its sha256 is {found} and not {expected}. Download it again."""


class NoResultInTime(BackburnerError):
    """No result of task {task_id} came within {limit_s:g} s. {details}"""


class UnknownHandle(BackburnerError):
    """There is no pending call with the task id {task_id!r} here."""
