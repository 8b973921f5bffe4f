"""Adapters: how a server of each framework gets the dialects, and how its own tools run as tasks."""

from __future__ import annotations

from .servers import install as install
from .servers import new_server as new_server
