"""What can go wrong on the client's side: as in `errors`, the docstring is the message."""

from __future__ import annotations

from .errors import BackburnerError


class ConnectionLost(BackburnerError):
    """The server {server} cannot be reached: {reason}."""

    code = "connection_lost"


class NotAuthorized(ConnectionLost):
    """The server {server} does not let this client in: {reason}. Give a token that it knows: `token=…`, or `--token` on the command line."""

    code = "not_authorized"


class CallInterrupted(ConnectionLost):
    """The connection to {server} broke while {tool_name} was being called ({reason}); it may have started or not."""

    code = "call_interrupted"


class ResultLost(BackburnerError):
    """The result of {task_id} cannot be had any more: {reason}. {known} Call the tool again if it may run twice."""

    code = "result_lost"


class TaskWasCancelled(BackburnerError):
    """Task {task_id} was cancelled, so it has no result."""

    code = "task_was_cancelled"


class NotOffered(BackburnerError):
    """The server does not offer {what} for task {task_id}."""

    code = "not_offered"


class DamagedDownload(BackburnerError):
    """The artifact {name} arrived damaged: its sha256 is {found} and not {expected}. Download it again."""

    code = "damaged_download"


class NoResultInTime(BackburnerError):
    """No result of task {task_id} came within {limit_s:g} s. {details}"""

    code = "no_result_in_time"


class UnknownHandle(BackburnerError):
    """There is no pending call with the task id {task_id!r} here."""

    code = "unknown_handle"
