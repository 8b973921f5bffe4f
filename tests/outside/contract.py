"""How much of the suite that any engine must pass runs by default: on one broker all, on others a part."""

from __future__ import annotations

import os

import pytest

from backburner.testing import EngineContract
from backburner.testing.engine.attempts import Attempts
from backburner.testing.engine.cancelling import Cancelling

#: `make test-engines` runs all of it on every engine.
WHOLE = bool(os.environ.get("BACKBURNER_WHOLE_CONTRACT"))
WITH_WHOLE = pytest.mark.skipif(not WHOLE, reason="it is run by `make test-engines`")


class BrokerContract(Attempts, Cancelling):
    """What a broker has a part in: what comes back to it, and what is not wanted any more."""


if WHOLE:
    BrokerContract = EngineContract  # type: ignore[assignment,misc]
