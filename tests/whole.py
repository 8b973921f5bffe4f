"""What takes long and shows again what others show: it is left to `make test-whole`."""

import os

import pytest

WHOLE = bool(os.environ.get("BACKBURNER_WHOLE_SUITE"))
WITH_WHOLE = pytest.mark.skipif(not WHOLE, reason="it is run by `make test-whole`")
