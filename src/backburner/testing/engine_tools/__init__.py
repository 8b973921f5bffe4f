"""The tools of the engine's suite, in a package that any engine's runners can import.

Each module has tools for one part of the suite, and puts them into `app`.
"""

from __future__ import annotations

from . import artifacts as artifacts
from . import asking as asking
from . import attempts as attempts
from . import limits as limits
from . import outcomes as outcomes
from . import output as output
from . import processes as processes
from .base import CANCEL_GRACE_S as CANCEL_GRACE_S
from .base import MAX_LOG_BYTES as MAX_LOG_BYTES
from .base import MAX_RESULT_BYTES as MAX_RESULT_BYTES
from .base import app as app
from .base import contract_app as contract_app
