"""A server for workers that come in by its door. What it hands out where, the environment says."""

from __future__ import annotations

from tests.contracts.engine_tools import contract_app
from tests.told_transport import serve_as_told

if __name__ == "__main__":
    serve_as_told(contract_app(http={"worker_door": True}))
