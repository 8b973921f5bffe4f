"""The suite that any engine must pass."""

from __future__ import annotations

from .artifacts import Artifacts
from .asking import Asking
from .attempts import Attempts
from .cancelling import Cancelling
from .limits import Limits
from .outcomes import Outcomes
from .output import Output
from .processes import Processes


class EngineContract(Outcomes, Attempts, Limits, Cancelling, Asking, Output, Artifacts, Processes):
    """What Backburner promises about the run of a task, as tests. Subclass it and start your engine:

        from backburner.testing import EngineContract, contract_app

        class TestMyEngine(EngineContract):
            @pytest.fixture(scope="class")
            @classmethod
            def app(cls, tmp_path_factory):
                app = contract_app(engine="mine", store=f"sqlite:///{tmp_path_factory.mktemp('it')}/tasks.db")
                app.start()
                yield app
                app.close()

    The tools are in `backburner.testing.engine_tools`, where your runners can import them. Queue
    `one_by_one` must have one worker, `cpu_standard` at least two.
    """
