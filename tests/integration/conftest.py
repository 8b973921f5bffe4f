"""Integration tests: our own processes, through the interfaces that users have."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def start_warm_processes(warm_processes: None) -> None:
    """Have the warm server running before the first test."""
