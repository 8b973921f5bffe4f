"""The app of `guarded.py` in the test's own process."""

import runpy
from pathlib import Path

from backburner import Backburner


def load_guarded() -> Backburner:
    """A new app for each deployment: a module that is imported again would give the first one's."""
    app: Backburner = runpy.run_path(str(Path(__file__).with_name("guarded.py")))["bb"]
    return app
