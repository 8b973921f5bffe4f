"""The dialects of a server, in the order in which they are asked. A new one is a new folder, and a line here.

The first that takes a call answers it: what none before it takes is the two-stage return's. The task tools
take no calls of others' tools; they come late because their tools are listed last. The card shows what the
two-stage return hands out.
"""

from __future__ import annotations

from ..access import TaskAccess
from ..card.server import TaskCard
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
    of_their_own = Tasks2026(access, rounds), Tasks2025(access), TaskId(access)
    return (
        *of_their_own,
        TwoStage(access, rounds, tokens),
        TaskTools(access),
        TaskCard(access, of_their_own),
    )
