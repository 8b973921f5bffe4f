"""The settings of the artifact store: where the files that tasks make are kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from ..errors import ConfigError
from .groups import setting

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_ENDPOINT = re.compile(r"https?://[^\s/?#@]+/?")


@dataclass(frozen=True, slots=True)
class ArtifactSettings:
    """Where the files that tasks make are kept; artifacts.md says what each place is for."""

    url: str = setting(
        "",
        "Where artifacts are kept: s3://bucket/prefix, or file:///folder for one that all hosts share"
        " (default: in `data_dir`, on the host that ran the task)",
        example='"s3://lab-artifacts/backburner"',
    )
    endpoint: str = setting(
        "",
        "The server of an S3-compatible storage (default: AWS, or what AWS_ENDPOINT_URL_S3 says)",
        example='"https://minio.lab.example"',
    )
    region: str = setting("", "The storage's region (default: as AWS's own tools find it)")
    links: Literal["server", "storage"] = setting(
        "server",
        "Whose links clients get: the `server`'s, which reads the storage for them, or signed ones of the"
        " `storage` itself, which then must be reachable for clients",
    )

    def __post_init__(self) -> None:
        if self.url and not self.bucket and not self.folder:
            reason = f"{self.url!r} is no place; write s3://bucket/prefix, or file:///folder"
            raise ConfigError(setting="artifacts.url", reason=reason)
        if self.endpoint and not _ENDPOINT.fullmatch(self.endpoint):
            reason = (
                f"{self.endpoint!r} is no address of a server; write for example https://minio.lab.example"
            )
            raise ConfigError(setting="artifacts.endpoint", reason=reason)
        if self.links == "storage" and not self.bucket:
            reason = "only S3-compatible storage signs links; set artifacts.url to s3://bucket/prefix"
            raise ConfigError(setting="artifacts.links", reason=reason)

    @property
    def bucket(self) -> str:
        """The bucket in S3-compatible storage; empty where it is a folder."""
        parts = urlsplit(self.url)
        return parts.netloc if parts.scheme == "s3" and _BUCKET.fullmatch(parts.netloc) else ""

    @property
    def prefix(self) -> str:
        """What the keys of all objects in the bucket begin with: empty, or with a slash at its end."""
        prefix = urlsplit(self.url).path.strip("/")
        return f"{prefix}/" if prefix else ""

    @property
    def folder(self) -> str:
        """The shared folder; empty where it is none."""
        parts = urlsplit(self.url)
        return (
            unquote(parts.path) if parts.scheme == "file" and not parts.netloc and parts.path != "/" else ""
        )
