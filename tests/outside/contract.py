"""How much of the suite that any engine must pass runs by default: on one broker all, on others a part."""

from __future__ import annotations

from backburner.testing import EngineContract
from backburner.testing.engine.attempts import Attempts
from backburner.testing.engine.cancelling import Cancelling
from tests.whole import WHOLE


class BrokerContract(Attempts, Cancelling):
    """What a broker has a part in: what comes back to it, and what is not wanted any more."""


if WHOLE:
    BrokerContract = EngineContract  # type: ignore[assignment,misc]
