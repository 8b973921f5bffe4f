"""The contract of engines, as a test suite."""

from __future__ import annotations

from tests.contracts.engine.limits import Cancels, Limits
from tests.contracts.engine.outcomes import Attempts, Outcomes, Processes
from tests.contracts.engine.output import Artifacts, Output
from tests.contracts.engine.questions import Questions

#: The part of the suite that `make test` runs on every engine but the local one on SQLite: what an engine
#: itself decides. `make test-whole` runs all of it on each engine.
REPRESENTATIVE = frozenset(
    {
        "test_files_are_kept_with_their_hashes_and_cannot_be_changed",
        "test_a_checkpoint_is_handed_to_the_next_attempt",
        "test_several_questions_are_answered_one_by_one",
        "test_a_queued_task_is_cancelled_at_once_and_never_runs",
        "test_a_tool_that_does_not_listen_is_killed_with_all_its_descendants",
        "test_a_tool_over_its_time_is_killed_with_all_its_descendants",
    }
)


class EngineContract(Outcomes, Attempts, Limits, Cancels, Questions, Output, Artifacts, Processes):
    """The suite that each engine passes. A subclass has a fixture `app`: a started `contract_app`.

    Queue `one_by_one` must have one worker, `cpu_standard` at least two.
    """
