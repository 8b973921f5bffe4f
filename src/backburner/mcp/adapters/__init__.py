"""Adapters for server frameworks: install the dialects, and run the server's tools as tasks."""

from __future__ import annotations

from .servers import install as install
from .servers import new_server as new_server
