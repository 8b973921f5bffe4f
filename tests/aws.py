"""Moto's server: S3 and AWS Batch over HTTP, as far as they are what boto3 talks to."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from typing import Any, Self

import boto3

from tests import services
from tests.services import free_port, wait_until

#: What boto3 finds in the environment; and nothing of whoever runs the tests.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_CONFIG_FILE": "/dev/null",
}

_PROGRAM = (sys.executable, "-c", "from moto.server import main; import sys; main(sys.argv[1:])")


class MotoServer:
    """A server on a free port of this host; what it holds is gone when it stops."""

    def __init__(self, program: Sequence[str] = _PROGRAM, **variables: str) -> None:
        self._program = program
        self._port = free_port()
        self._variables = {**CREDENTIALS, "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": "1000000", **variables}
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        command = [*self._program, "-H", "127.0.0.1", "-p", str(self._port)]
        self._process = process = subprocess.Popen(
            command, env=self._variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        services.running.add(process.pid)
        assert wait_until(lambda: process.poll() is not None or self._answers())
        assert process.poll() is None, "moto's server did not come up"
        return self

    def stop(self) -> None:
        """Harmless when it is not running."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            services.running.discard(self._process.pid)
            self._process = None

    def client(self, service: str, **options: Any) -> Any:
        """A client of boto3 that talks to it."""
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            **options,
        )

    def configure(self, path: str, body: bytes) -> None:
        """Tell moto itself something."""
        with urllib.request.urlopen(f"{self.url}/moto-api/{path}", body, timeout=10) as answer:
            assert answer.status < 300

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/moto-api/", timeout=1):
            return True
        return False
