"""The dialects of a server, in the order in which they are asked. A new one is a new folder, and a line here.

The first that takes a call answers it: what none before it takes is the two-stage return's. The task tools
take no calls of others' tools; they come last because their tools are listed last.
"""

from __future__ import annotations

from ..access import TaskAccess
from ..input_rounds import InputRounds
from ..progress_tokens import ProgressTokens
from ..server_dialect import ServerDialect
from .task_id.server import TaskId
from .task_tools.server import TaskTools
from .tasks_2025.server import Tasks2025
from .tasks_2026.server import Tasks2026
from .two_stage.server import TwoStage


def server_dialects(
    access: TaskAccess, rounds: InputRounds, tokens: ProgressTokens
) -> tuple[ServerDialect, ...]:
    return (
        Tasks2026(access, rounds),
        Tasks2025(access),
        TaskId(access),
        TwoStage(access, rounds, tokens),
        TaskTools(access),
    )
