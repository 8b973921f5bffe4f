"""A Slurm for the tests of this folder: one for each process that runs tests."""

import os
from collections.abc import Iterator

import pytest

from tests.system.outside.slurm.cluster import SlurmCluster


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """The cluster, which this process and all that it starts find by SLURM_CONF."""
    cluster = SlurmCluster()
    os.environ["SLURM_CONF"] = str(cluster.conf)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        del os.environ["SLURM_CONF"]
