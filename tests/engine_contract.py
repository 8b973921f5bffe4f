"""The part of the engine contract that `make test` runs on every engine but the local one on SQLite.

`make test-whole` runs all of it on each engine.
"""

#: What an engine itself decides: what is handed out, handed back, and not wanted any more.
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
