"""What can go wrong. The docstring of an error is its message, for people: what happened, to what, and what to
do next. `error.code` is for programs, and never changes; `error.details` holds the values."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar


class BackburnerError(Exception):
    """Something went wrong in Backburner."""

    code: ClassVar[str] = "backburner_error"

    def __init__(self, **details: Any) -> None:
        self.details = details
        super().__init__(" ".join(inspect.cleandoc(type(self).__doc__ or "").split()).format(**details))

    def to_dict(self) -> dict[str, Any]:
        return {"code": self.code, "message": str(self), "details": self.details}


# -- what the caller can put right ---------------------------------------------------------------


class InvalidRequest(BackburnerError):
    """The request cannot be taken: {reason}."""

    code = "invalid_request"


class UnknownTool(InvalidRequest):
    """There is no slow tool named {tool_name!r}. Known ones: {known}."""

    code = "unknown_tool"


class InvalidInputs(InvalidRequest):
    """The inputs of {tool_name} are not valid at {field}: {reason}."""

    code = "invalid_inputs"


class InvalidJson(InvalidRequest):
    """{what} cannot be kept as JSON: {reason}."""

    code = "invalid_json"


class TooLarge(InvalidRequest):
    """{what} is {size} bytes long; the limit is {limit}. Pass a path or a URL instead, or raise the limit."""

    code = "too_large"


class OverLimit(InvalidRequest):
    """{name} = {asked} is over the limit of {limit}, which {whose} has set. Ask for no more than that."""

    code = "over_limit"


class UnknownQueue(InvalidRequest):
    """There is no queue named {queue!r}. Known ones: {known}."""

    code = "unknown_queue"


class InvalidCursor(InvalidRequest):
    """The cursor is not one that was handed out here. Start again without a cursor."""

    code = "invalid_cursor"


class NoSuchPart(InvalidRequest):
    """There is no {path}: {reason}."""

    code = "no_such_part"


class InvalidAnswer(InvalidRequest):
    """The answer to question {key!r} of task {task_id} is not valid: {reason}."""

    code = "invalid_answer"


class BadConcurrencyKey(InvalidRequest):
    """The concurrency_key of {tool_name} has no key for these inputs: {reason}. It must give a text of 1 to 256 characters, or None for a task that may run beside any other."""

    code = "bad_concurrency_key"


class TaskIdRequired(InvalidRequest):
    """Tool {tool_name!r} requires _meta.taskId, or the key that _meta.asyncTask.taskIdKey names. Call it directly, with an id of the host's in the `_meta` of the call."""

    code = "task_id_required"


class StateDirRefused(InvalidRequest):
    """The folder {folder!r} cannot have the prompt log of this call: {reason}. Name a folder that the server may write to (over HTTP below one of task_id.state_roots), or none to have the server's own."""

    code = "state_dir_refused"


class WebhookRefused(InvalidRequest):
    """The webhook cannot be had: {reason}."""

    code = "webhook_refused"


class TaskNotFound(BackburnerError):
    """There is no task {task_id!r} that you may see. It may have expired; list your tasks to see what is there."""

    code = "task_not_found"


class AmbiguousTask(BackburnerError):
    """More than one task id begins with {beginning!r}: {candidates}. Write more of the one that you mean."""

    code = "task_ambiguous"


class AmbiguousOwner(BackburnerError):
    """More than one owner is called {name!r}. Name the one that you mean in full: {candidates}."""

    code = "owner_ambiguous"


class UnknownToken(BackburnerError):
    """There is no token named {name!r} in {path}."""

    code = "unknown_token"


class ArtifactNotFound(BackburnerError):
    """There is no artifact {artifact_id!r} that you may see."""

    code = "artifact_not_found"


class NotAllowedNow(BackburnerError):
    """Task {task_id} is {state}, so it cannot {signal}."""

    code = "not_allowed_now"


class NotFinished(BackburnerError):
    """Task {task_id} is still {state}, so it has no result yet. Ask again in {poll_after_ms} ms, or wait for it."""

    code = "not_finished"


class IdempotencyConflict(BackburnerError):
    """The idempotency key {key!r} was used before for task {task_id} with other inputs. Use a new key for new inputs."""

    code = "idempotency_conflict"


class QueueFull(BackburnerError):
    """Queue {queue!r} is full ({length} tasks wait). Submit again in {retry_after_s} s."""

    code = "queue_full"


class ConfigError(BackburnerError):
    """The setting {setting} is not valid: {reason}."""

    code = "config_error"


class ToolDefinitionError(BackburnerError):
    """The tool {tool_name!r} cannot be used: {reason}."""

    code = "tool_definition_error"


class NoTarget(BackburnerError):
    """The app {name!r} is made {where}. The processes that run its tasks import it, and would not find it: {advice}."""

    code = "no_target"


class AppNotFound(BackburnerError):
    """No Backburner app was found at {target!r}: {reason}."""

    code = "app_not_found"


class TokenNotFound(BackburnerError):
    """There is no call in flight with the progress token {token!r}: it has ended, or was silent for too long."""

    code = "token_not_found"


class ProgressTimeout(BackburnerError):
    """The call with the progress token {token!r} was silent for more than {silence_s} s; it is tracked no more."""

    code = "timeout"


class NoClient(BackburnerError):
    """There is no client to tell about the progress token {token!r}."""

    code = "no_client_pid"


class ReferenceNotFound(InvalidRequest):
    """The reference {reference!r} leads to nothing in the arguments or the context."""

    code = "not_found"


class CompletionFailed(InvalidRequest):
    """There is nothing to complete from: {reason}."""

    code = "completion_failed"


# -- workers -------------------------------------------------------------------------------------


class LeaseLost(BackburnerError):
    """Attempt {attempt} of task {task_id} is no longer the current one; the write was refused and changed nothing."""

    code = "lease_lost"


class TaskCancelled(BackburnerError):
    """The task was cancelled. Raised inside the tool by `ctx.raise_if_cancelled()`."""

    code = "task_cancelled"


class ProtocolError(BackburnerError):
    """{message}"""

    # A tool may raise it: the client gets this JSON-RPC error in place of a result.
    code = "protocol_error"

    def __init__(self, error_code: int, message: str, data: Any = None) -> None:
        super().__init__(message=message, error_code=error_code, data=data)


class ToolFailed(BackburnerError):
    """{message}"""

    # The tool of an attached server answered with an error: `result` is that `CallToolResult`.
    code = "tool_failed"

    def __init__(self, message: str, result: dict[str, Any]) -> None:
        super().__init__(message=message, result=result)


class EngineError(BackburnerError):
    """The engine {engine} could not do it: {reason}."""

    code = "engine_error"


class DataDirTaken(EngineError):
    """The data folder {folder} is in use for another store: the supervisor with pid {pid} works there on {store}. Tasks wait until it has ended. Give each store a folder of its own: set data_dir."""

    code = "data_dir_taken"


class NotConfined(EngineError):
    """Tools cannot be confined as {setting} asks: {reason}. No task is run without it; `backburner doctor` says what this machine gives."""

    code = "not_confined"


# -- stores --------------------------------------------------------------------------------------


class StoreError(BackburnerError):
    """The store {store} failed: {reason}."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The store {store} cannot be reached now ({reason}). Nothing acknowledged is lost; try again shortly."""

    code = "store_unavailable"


class StoreBusy(StoreError):
    """The store {store} is locked by another program ({reason}). Close that program or try again."""

    code = "store_busy"


class StoreFull(StoreError):
    """The store {store} cannot grow: {reason}. Free some disk space; nothing acknowledged is lost."""

    code = "store_full"


class NoRoomToCompact(StoreError):
    """The store {store} can be compacted when {needed_mb} MB of its disk are free: it is written anew. Now it is {free_mb} MB. Forget tasks first, as `backburner prune --older-than 1d` does, or make room."""

    code = "no_room_to_compact"


class StoreReadOnly(StoreError):
    """The store {store} cannot be written: {reason}. Check the permissions of the file and of its folder, or the rights of the database's user."""

    code = "store_read_only"


class StoreBroken(StoreError):
    """The disk of the store {store} failed: {reason}. See what the system says (dmesg), and move to another disk."""

    code = "store_broken"


class StoreCorrupt(StoreError):
    """The store {store} is damaged or is not a Backburner store: {reason}. Restore a backup or use another file."""

    code = "store_corrupt"


class StoreRefused(StoreError):
    """The store {store} cannot keep what it was given: {reason}."""

    code = "store_refused"


class StoreGone(StoreError):
    """The store {store} was removed or replaced while it was open. Start what uses it again."""

    code = "store_gone"


class StoreTooNew(StoreError):
    """The store {store} has schema version {found}; this Backburner knows up to {known}. Upgrade Backburner."""

    code = "store_too_new"


class NotCopied(StoreError):
    """The store {store} was not copied: {reason}."""

    code = "not_copied"


class ArtifactStorageError(BackburnerError):
    """The artifact storage {storage} could not do it: {reason}."""

    code = "artifact_storage_error"
