"""The suite that any store must pass."""

# ruff: noqa: E402

from __future__ import annotations

import pytest

_PARTS = (
    "calling claiming clients ending handing_out keeping limit_walk limiting looking racing reading reporting"
    " retrying steering submitting telling turns walk watching"
)
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS.split()))

from .calling import Calling
from .claiming import Claiming
from .clients import Clients
from .ending import Endings
from .handing_out import HandingOut
from .keeping import Keeping
from .limit_walk import WalkUnderLimits
from .limiting import Limiting
from .looking import Looking
from .racing import Racing
from .reading import Reading
from .reporting import Reporting
from .retrying import Retrying
from .steering import Steering
from .submitting import Submitting
from .telling import Telling
from .turns import Turns
from .walk import Walk
from .watching import Watching


class StoreContract(
    Calling,
    Submitting,
    Reading,
    Claiming,
    Limiting,
    Reporting,
    Turns,
    Retrying,
    Steering,
    Keeping,
    Endings,
    Clients,
    HandingOut,
    Telling,
    Looking,
    Watching,
    Racing,
    Walk,
    WalkUnderLimits,
):
    """What `backburner.store.Store` promises, as tests. Subclass it and say where an empty store is:

        class TestMyStore(StoreContract):
            open_store = staticmethod(my_package.open_store)

            @pytest.fixture
            def store_url(self, tmp_path):
                return f"mine://{tmp_path}/tasks"

    `open_store(url, clock=…)` opens the store; it is a function at the top of a module, so that
    other processes find it, too. `store_url` names a new, empty store for each test.
    """
