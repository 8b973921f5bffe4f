"""Settings as environment variables that say the same, for a process that loads the app itself elsewhere."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import Any

from . import Settings, every_setting, plain, variable


def as_variables(settings: Settings) -> dict[str, str]:
    """The variables of all settings that are not as by default. Some of them are secrets.

    An app that names a setting in its code wins over them; so it did where these settings come from.
    """
    default = Settings()
    found: dict[str, Any] = {}
    for path, _ in every_setting():
        value = attrgetter(path)(settings)
        if value is not None and value != attrgetter(path)(default):
            found[variable(path)] = value
    return {
        name: value if isinstance(value, str) else json.dumps(value, default=plain)
        for name, value in found.items()
    }
