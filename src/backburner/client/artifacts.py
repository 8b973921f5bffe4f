"""Files that a task made, fetched and checked."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import tempfile
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ..client_errors import ConnectionLost, DamagedDownload
from ..mcp.connection import Connection

_CHUNK = 1 << 20


@dataclass(frozen=True)
class RemoteArtifact:
    """A file on the server's side. `download` is atomic: a file that is there is whole and has this hash."""

    artifact_id: str
    name: str
    kind: str
    size_bytes: int
    sha256: str
    resource: str
    download_url: str | None = None
    _connection: Connection | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, shown: dict[str, Any], connection: Connection) -> RemoteArtifact:
        known = {name: shown.get(name) for name in cls.__dataclass_fields__ if not name.startswith("_")}
        return cls(**known, _connection=connection)  # type: ignore[arg-type]

    async def download(self, to: str | Path = ".") -> Path:
        """Fetch it to a file, or into a folder under its own name. Raises DamagedDownload."""
        target = await asyncio.to_thread(self._target, Path(to))
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:50]}.")
        digest = hashlib.sha256()
        try:
            with os.fdopen(descriptor, "wb") as file:
                await self._fetch(file, digest)
            if digest.hexdigest() != self.sha256:
                raise DamagedDownload(name=self.name, found=digest.hexdigest(), expected=self.sha256)
            await asyncio.to_thread(Path(temporary).replace, target)
        except BaseException:
            await asyncio.to_thread(Path(temporary).unlink, missing_ok=True)
            raise
        return target

    def _target(self, to: Path) -> Path:
        # The name comes from the server: it must not lead out of the folder.
        return to / (Path(self.name).name or self.artifact_id) if to.is_dir() else to

    async def _fetch(self, file: IO[bytes], digest: Any) -> None:
        async with contextlib.aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                digest.update(chunk)
                await asyncio.to_thread(file.write, chunk)

    async def _chunks(self) -> AsyncGenerator[bytes]:
        if self.download_url is None:
            async for chunk in self._read_resource():
                yield chunk
            return
        import httpx2

        try:
            async with (
                httpx2.AsyncClient(timeout=60) as http,
                http.stream("GET", self.download_url) as answer,
            ):
                answer.raise_for_status()
                async for chunk in answer.aiter_bytes(_CHUNK):
                    yield chunk
        except httpx2.HTTPError as error:
            raise ConnectionLost(server=self.download_url.partition("?")[0], reason=error) from error

    async def _read_resource(self) -> AsyncGenerator[bytes]:
        """By `resources/read`, a range at a time: for servers without an address, as over stdio."""
        assert self._connection is not None, "an artifact that came from a server has its connection"
        offset = 0
        while offset < self.size_bytes:
            params = {"uri": f"{self.resource}?offset={offset}&length={_CHUNK}"}
            (part,) = (await self._connection.request("resources/read", params))["contents"]
            chunk = base64.b64decode(part["blob"]) if "blob" in part else part["text"].encode()
            if not chunk:
                return  # shorter than it was said to be: the hash will tell
            yield chunk
            offset += len(chunk)
