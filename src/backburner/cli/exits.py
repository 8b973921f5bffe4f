"""Exit codes: what a script can rely on."""

from __future__ import annotations

from enum import IntEnum

from .. import client_errors, errors
from ..lifecycle import State


class Exit(IntEnum):
    """How a verb ended."""

    OK = 0
    TASK_FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    TROUBLE = 4
    UNFINISHED = 5
    INTERRUPTED = 130


#: In words, for the documentation.
MEANINGS = {
    Exit.OK: "it went well",
    Exit.TASK_FAILED: "the task failed, timed out or was cancelled; of `status`: there is no supervisor",
    Exit.USAGE: "the command is not right: an unknown option or tool, inputs that do not fit",
    Exit.NOT_FOUND: "there is no such task, artifact or token, or it is not yours",
    Exit.TROUBLE: "trouble with the store, the server, the artifact storage, the engine or a full queue",
    Exit.UNFINISHED: "the time is over and the task is not finished; it goes on",
    Exit.INTERRUPTED: "Ctrl-C; tasks go on",
}

_KINDS: tuple[tuple[Exit, tuple[type[errors.BackburnerError], ...]], ...] = (
    (Exit.NOT_FOUND, (errors.TaskNotFound, errors.ArtifactNotFound, errors.UnknownToken)),
    (Exit.UNFINISHED, (errors.NotFinished,)),
    (Exit.USAGE, (client_errors.NotAuthorized,)),
    (
        Exit.TROUBLE,
        (
            *(errors.StoreError, errors.ArtifactStorageError, errors.EngineError, errors.QueueFull),
            client_errors.ConnectionLost,
        ),
    ),
)


def exit_of_error(error: errors.BackburnerError) -> Exit:
    """The code for an error. What is not trouble and not absent is for the caller to put right."""
    return next((code for code, kinds in _KINDS if isinstance(error, kinds)), Exit.USAGE)


def exit_of_state(state: State) -> Exit:
    """The code for a task that somebody waited for."""
    if state is State.SUCCEEDED:
        return Exit.OK
    ended = (State.FAILED, State.TIMED_OUT, State.CANCELLED, State.EXPIRED)
    return Exit.TASK_FAILED if state in ended else Exit.UNFINISHED
