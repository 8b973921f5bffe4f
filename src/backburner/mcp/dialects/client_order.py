"""The dialects of a client, in the order in which they are asked. A new one is a new folder, and a line here.

The first that knows an answer goes on with it; the last goes on with every task that no other knows.
"""

from __future__ import annotations

from ..client_dialect import ClientDialect
from ..connection import Connection
from .task_id.client import TaskIdClient
from .task_id.host_poller import HostPoller
from .task_tools.client import TaskToolsClient
from .tasks_2025.client import Tasks2025Client
from .tasks_2025.questions import Questions
from .tasks_2026.client import Tasks2026Client
from .two_stage.client import TwoStageClient


def client_dialects(
    connection: Connection,
    questions: Questions,
    tools: TaskToolsClient,
    poller: HostPoller | None,
    *,
    tasks: bool,
) -> tuple[ClientDialect, ...]:
    """Without `tasks` the server is asked for none, in either revision."""
    return (
        *([TaskIdClient(poller)] if poller is not None else []),
        *([Tasks2026Client(connection), Tasks2025Client(connection, questions)] if tasks else []),
        TwoStageClient(connection, tools, asks=tasks),
    )
