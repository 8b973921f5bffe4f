"""The contract of stores, as a test suite."""

from __future__ import annotations

from tests.contracts.store.claims import Claims, Races, RunLimits
from tests.contracts.store.control import Control
from tests.contracts.store.keeper import KeeperSweeps
from tests.contracts.store.monitoring import ClientTimeouts, Completions, Monitoring
from tests.contracts.store.outbox import HandOuts, Webhooks
from tests.contracts.store.queries import Queries, Watches
from tests.contracts.store.reports import Batches, Reports, Retries
from tests.contracts.store.submissions import OpenCalls, Submissions
from tests.contracts.store.walks import LifecycleWalks, LimitWalks


class StoreContract(
    OpenCalls,
    Submissions,
    Queries,
    Claims,
    RunLimits,
    Reports,
    Batches,
    Retries,
    Control,
    KeeperSweeps,
    Completions,
    ClientTimeouts,
    HandOuts,
    Webhooks,
    Monitoring,
    Watches,
    Races,
    LifecycleWalks,
    LimitWalks,
):
    """The suite that each store passes. A subclass has a fixture `store_url`: a new, empty store per test."""
