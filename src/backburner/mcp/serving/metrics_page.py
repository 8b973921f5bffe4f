"""`/metrics`: what Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ...app import Backburner
from ...errors import BackburnerError
from ...metrics import Metrics
from .one_look import OneLook

#: Less than the time-out of a scrape, which is ten seconds unless somebody says otherwise.
_PATIENCE_S = 8.0
_NOT_INSTALLED = "Metrics need prometheus-client. Install it: pip install 'backburner[metrics]'\n"


class MetricsPage:
    """Answers with the metrics, also while the store cannot be read: then `backburner_store_up` is 0."""

    def __init__(self, app: Backburner) -> None:
        self._metrics = Metrics(app)
        self._look = OneLook(self._metrics.of_store, "backburner-metrics", _PATIENCE_S)

    async def __call__(self, request: Request) -> Response:
        try:
            import prometheus_client  # noqa: F401
        except ImportError:
            return PlainTextResponse(_NOT_INSTALLED, status_code=501)
        try:
            of_store = await self._look.found()
        except (TimeoutError, BackburnerError, OSError):
            return _written(request, self._metrics.of_server(store_up=False))
        return _written(request, [*of_store, *self._metrics.of_server(store_up=True)])


class _Families:
    """What a registry collects: families that are made already."""

    def __init__(self, families: Iterable[Any]) -> None:
        self._families = families

    def collect(self) -> Iterable[Any]:
        return self._families


def _written(request: Request, families: Iterable[Any]) -> Response:
    """In the format that the scraper asks for."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry: Any = CollectorRegistry()
    registry.register(_Families(list(families)))
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), headers={"Content-Type": content_type})
