"""System tests: programs and services of others, several hosts, and faults."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def start_warm_processes(warm_processes: None) -> None:
    """Have the warm server running before the first test."""
