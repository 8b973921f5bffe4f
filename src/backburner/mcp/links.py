"""Signed, expiring links to artifacts, and the `task://` addresses of what a task has made."""

from __future__ import annotations

import mimetypes
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from itsdangerous import BadData, URLSafeSerializer

from ..errors import ArtifactNotFound
from ..folders import safe_file_name
from ..result_parts import media_type_in
from ..store import Store
from ..task import Artifact, Task
from ..times import iso

#: Where the client of the request that is being served found the server; empty where that has no address.
BASE_URL: ContextVar[str] = ContextVar("backburner_base_url", default="")


#: The storage's own link to an artifact of a media type for so many seconds, and for how many it works.
OfStorage = Callable[[Artifact, str, float], tuple[str, float] | None]


def _none(artifact: Artifact, media_type: str, for_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Link:
    url: str
    expires_at: int


class Links:
    """Makes and opens links. `base_url` is where the HTTP server is for its clients; empty: where the request
    that is being served found it, if it came by HTTP. Those that the artifacts' storage has come first."""

    def __init__(self, store: Store, base_url: str, link_s: float, of_storage: OfStorage = _none) -> None:
        self._signer: Any = URLSafeSerializer(store.secret(), salt="backburner.artifact")
        self._link_s = link_s
        self._of_storage = of_storage
        self.base_url = base_url.rstrip("/")

    def to(self, artifact: Artifact, expires_at: int | None) -> Link | None:
        """A link that works until the task expires, and not longer than the settings say."""
        now = int(time.time() * 1000)
        until = now + int(self._link_s * 1000)
        until = until if expires_at is None else min(until, expires_at)
        if (own := self._of_storage(artifact, media_type(artifact), (until - now) / 1000)) is not None:
            return Link(own[0], now + int(own[1] * 1000))
        base_url = self.base_url or BASE_URL.get()
        if not base_url:
            return None
        token = self._signer.dumps([artifact.artifact_id, until])
        path = f"/artifacts/{artifact.artifact_id}/{_named(artifact)}"
        return Link(f"{base_url}{path}?token={token}", until)

    def shown(self, task: Task, artifacts: Sequence[Artifact]) -> dict[str, Any]:
        """What a task has made, so far or in all, as its owner sees it."""
        made = [self._shown(artifact, task.expires_at) for artifact in artifacts]
        return {"task_id": task.task_id, "state": task.state, "artifacts": made}

    def _shown(self, artifact: Artifact, expires_at: int | None) -> dict[str, Any]:
        link = self.to(artifact, expires_at)
        return {
            "artifact_id": artifact.artifact_id,
            "name": artifact.name,
            "kind": artifact.kind,
            "size_bytes": artifact.size_bytes,
            "sha256": artifact.sha256,
            "resource": artifact_uri(artifact),
            "download_url": None if link is None else link.url,
            "expires_at": iso(expires_at if link is None else link.expires_at),
        }

    def check(self, artifact_id: str, token: str) -> None:
        """Raises ArtifactNotFound unless the token was made for this artifact and is not over."""
        try:
            signed_id, until = self._signer.loads(token)
        except (BadData, TypeError, ValueError):
            raise ArtifactNotFound(artifact_id=artifact_id) from None
        if signed_id != artifact_id or until < time.time() * 1000:
            raise ArtifactNotFound(artifact_id=artifact_id)


def result_uri(task_id: str) -> str:
    return f"task://{task_id}/result"


def artifact_uri(artifact: Artifact) -> str:
    return f"task://{artifact.task_id}/artifacts/{artifact.artifact_id}/{_named(artifact)}"


def _named(artifact: Artifact) -> str:
    """The last part of an address. It is for people, since the id is what counts, so it can be a tame one."""
    return quote(safe_file_name(artifact.name), safe="")


def media_type(artifact: Artifact) -> str:
    return media_type_of(artifact.name, artifact.kind)


def media_type_of(name: str, kind: str) -> str:
    """An artifact's kind, if that is one; else by the ending of its name, which itself may be anything."""
    ending = PurePosixPath(name).suffix
    guessed = media_type_in(kind) or mimetypes.guess_type(f"file{ending}")[0]
    return guessed or "application/octet-stream"
