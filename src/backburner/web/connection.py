"""The API of a server elsewhere, over one connection: questions, and its refusals as the errors they are."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx2

from .. import client_errors, errors
from ..client_errors import ConnectionLost, NotAuthorized
from ..errors import BackburnerError, InvalidRequest

_TIMEOUT_S = 60
_BY_CODE = {
    kind.code: kind
    for kind in (*vars(errors).values(), *vars(client_errors).values())
    if isinstance(kind, type) and issubclass(kind, BackburnerError)
}


class Connection:
    """To a server, as the bearer of a token. It is reached with the first question."""

    def __init__(self, server: str, token: str | None) -> None:
        """Raises InvalidRequest for an address or a token that can be none."""
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        base = server.rstrip("/").removesuffix("/mcp").removesuffix("/api/v1")
        try:
            parts = urlsplit(server)
            self.name = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
            self._http = httpx2.Client(base_url=f"{base}/api/v1", headers=bearer, timeout=_TIMEOUT_S)
        except (ValueError, httpx2.InvalidURL):
            raise InvalidRequest(reason="the address of the server, or the token, is none") from None

    def get(self, path: str, **query: Any) -> Any:
        """What the server has there. What is None or empty in the query is not asked for."""
        return self.ask("GET", path, {key: value for key, value in query.items() if value not in (None, [])})

    def post(self, path: str, body: Any = None) -> Any:
        return self.ask("POST", path, body={} if body is None else body)

    def ask(self, method: str, path: str, query: Any = None, body: Any = None) -> Any:
        """The answer's JSON. Raises what the server says, ConnectionLost, and NotAuthorized, its kind."""
        try:
            answer = self._http.request(method, path, params=query, json=body)
        except httpx2.HTTPError as error:
            raise ConnectionLost(server=self.name, reason=str(error) or type(error).__name__) from None
        if answer.status_code >= 400:
            raise self._error(answer)
        try:
            return answer.json()
        except ValueError:
            reason = f"it answered {answer.status_code}, and not as the API of Backburner does"
            raise ConnectionLost(server=self.name, reason=reason) from None

    def _error(self, answer: httpx2.Response) -> BackburnerError:
        try:
            said = dict(answer.json())
        except (TypeError, ValueError):
            said = {}
        detail = str(said.get("detail") or answer.text.strip()[:200] or answer.reason_phrase)
        if answer.status_code in (401, 403):
            return NotAuthorized(server=self.name, reason=detail.rstrip("."))
        try:
            return _BY_CODE[said["code"]](**said["details"])
        except (KeyError, TypeError, ValueError):  # of another release, or of something else at this address
            return ConnectionLost(server=self.name, reason=f"it answered {answer.status_code}: {detail}")

    def close(self) -> None:
        self._http.close()
