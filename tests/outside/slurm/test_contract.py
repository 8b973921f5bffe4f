"""The engine `slurm` passes the suite that any engine must pass, on a real Slurm.

Each task is a job, which takes seconds to start. So one or two tests of each part run by default, and the
whole suite, about ten minutes, with BACKBURNER_WHOLE_SUITE=1.
"""

from collections.abc import Iterator

import pytest

from backburner import Backburner
from backburner.testing import EngineContract, contract_app
from backburner.testing.engine.base import EngineTests
from tests.engine.local import running
from tests.outside.slurm.cluster import SlurmCluster
from tests.whole import WHOLE

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.timeout(600)]

suite = EngineContract


class OnSlurm(EngineTests):
    @pytest.fixture(scope="class")
    @classmethod
    def app(
        cls, slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory, run_directory: str
    ) -> Iterator[Backburner]:
        app = contract_app(
            store=f"sqlite:///{tmp_path_factory.mktemp('engine')}/tasks.db",
            engine="slurm",
            slurm={"arguments": {"one_by_one": "--licenses=single"}},
            supervisor={"keeper_interval_s": 0.2, "idle_exit_s": 0},
        )
        with running(app, shared=True):
            yield app


if WHOLE:

    class TestSlurmOnTheWholeSuite(OnSlurm, EngineContract): ...

else:

    class TestSlurm(OnSlurm):
        asked = suite.asked
        test_what_is_said = suite.test_everything_that_is_said_is_logged_in_order
        test_large_result = suite.test_a_large_result_becomes_an_artifact_with_a_preview
        test_files = suite.test_files_are_kept_with_their_hashes_and_cannot_be_changed
        test_checkpoint = suite.test_a_checkpoint_is_handed_to_the_next_attempt
        test_questions = suite.test_several_questions_are_answered_one_by_one
        test_cancel_in_line = suite.test_a_queued_task_is_cancelled_at_once_and_never_runs
        test_cancel = suite.test_a_tool_that_does_not_listen_is_killed_with_all_its_descendants
        test_time_limit = suite.test_a_tool_over_its_time_is_killed_with_all_its_descendants
        test_scratch_limit = suite.test_a_tool_over_its_scratch_space_is_a_named_failure_and_leaves_none
