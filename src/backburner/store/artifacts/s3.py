"""Artifacts in S3-compatible storage, by boto3 with its usual credentials.

An artifact is the object `<prefix><task_id>/artifacts/<artifact_id>/<name>`. A large one is a multipart
upload, completed only when its hash is right.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import threading
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, BinaryIO

from ...core.files import as_attachment
from ...core.task import Artifact
from ...errors import ArtifactStorageError, ConfigError
from ...settings import ArtifactSettings
from .aws import make_client, told
from .folder import CHUNK, OwnFolder, check_hash, whole

#: The size of a part, of which one is in memory, and the most parts that S3 accepts.
_PART_BYTES = 16 << 20
_MOST_PARTS = 10_000
#: The longest lifetime of a signed URL.
_LONGEST_LINK_S = 7 * 86400

_ADVICE = {
    "NoSuchBucket": "create the bucket, or set artifacts.url to an existing one",
    "404": "create the bucket, or set artifacts.url to an existing one",
    "AccessDenied": "allow these credentials to get, put, list and delete objects in the bucket",
    "403": "allow these credentials to get, put, list and delete objects in the bucket",
}
_GONE = ("NoSuchKey", "404")


class S3Storage:
    """Artifacts in a bucket. Artifacts of this host's own folder stay readable."""

    elsewhere = True

    def __init__(self, settings: ArtifactSettings, own: OwnFolder) -> None:
        """Raises ConfigError without boto3."""
        self._settings = settings
        self._own = own
        self._making = threading.Lock()
        try:
            import botocore  # noqa: F401
        except ImportError:
            reason = "S3 storage needs boto3: pip install 'backburner[s3]'"
            raise ConfigError(setting="artifacts.url", reason=reason) from None

    def keep(self, artifact: Artifact, source: BinaryIO) -> None:
        place = {"Bucket": self._settings.bucket, "Key": self._key(artifact)}
        try:
            with self._errors():
                if self._is_kept(artifact, place):
                    return
                if artifact.size_bytes <= _PART_BYTES:
                    data = b"".join(whole(artifact, source))
                    check_hash(self._settings.url, artifact, hashlib.sha256(data).hexdigest())
                    self._client.put_object(**place, Body=data, ChecksumSHA256=_checksum(data))
                else:
                    self._keep_in_parts(artifact, source, place)
        except OSError as error:
            raise self._error(f"{artifact.name} cannot be read: {error}") from error

    def _is_kept(self, artifact: Artifact, place: dict[str, str]) -> bool:
        """Return whether this file is stored already. Raises ArtifactStorageError if another one is."""
        digest = hashlib.sha256()
        try:
            with contextlib.closing(self._body(place)) as body:
                for chunk in body.iter_chunks(CHUNK):
                    digest.update(chunk)
        except FileNotFoundError:
            return False
        check_hash(self._settings.url, artifact, digest.hexdigest())
        return True

    def _keep_in_parts(self, artifact: Artifact, source: BinaryIO, place: dict[str, str]) -> None:
        begun = self._client.create_multipart_upload(**place, ChecksumAlgorithm="SHA256")
        upload = {**place, "UploadId": begun["UploadId"]}
        digest, parts = hashlib.sha256(), []
        size = max(_PART_BYTES, artifact.size_bytes // (_MOST_PARTS - 1))
        try:
            for number, data in enumerate(whole(artifact, source, size), 1):
                digest.update(data)
                checksum = _checksum(data)
                sent = self._client.upload_part(
                    **upload, PartNumber=number, Body=data, ChecksumSHA256=checksum
                )
                parts.append({"PartNumber": number, "ETag": sent["ETag"], "ChecksumSHA256": checksum})
            check_hash(self._settings.url, artifact, digest.hexdigest())
            self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one to raise
                self._client.abort_multipart_upload(**upload)
            raise

    def chunks(self, artifact: Artifact, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        if self._own.has(artifact):
            yield from self._own.chunks(artifact, offset, length)
            return
        end = artifact.size_bytes if length is None else min(artifact.size_bytes, offset + length)
        if offset >= end:
            return
        where = {"Bucket": self._settings.bucket, "Key": self._key(artifact)}
        what = {**where, "Range": f"bytes={offset}-{end - 1}"}
        with self._errors(), contextlib.closing(self._body(what)) as body:
            yield from body.iter_chunks(CHUNK)

    def _body(self, what: Mapping[str, str]) -> Any:
        """Raises FileNotFoundError for a missing object."""
        from botocore.exceptions import ClientError

        try:
            return self._client.get_object(**what)["Body"]
        except ClientError as error:
            if error.response["Error"]["Code"] in _GONE:
                raise FileNotFoundError("the object does not exist") from error
            raise

    def read(self, artifact: Artifact, offset: int = 0, length: int | None = None) -> bytes:
        return b"".join(self.chunks(artifact, offset, length))

    def link(self, artifact: Artifact, media_type: str, for_s: float) -> tuple[str, float] | None:
        if self._settings.links != "storage" or self._own.has(artifact):
            return None
        for_s = min(for_s, _LONGEST_LINK_S)
        what = {
            "Bucket": self._settings.bucket,
            "Key": self._key(artifact),
            "ResponseContentType": media_type,
            # A tool's output must not run as a page of the storage's origin.
            "ResponseContentDisposition": as_attachment(artifact.name),
        }
        with self._errors():
            return self._client.generate_presigned_url(
                "get_object", what, ExpiresIn=max(1, int(for_s))
            ), for_s

    def remove(self, task_id: str) -> None:
        self._own.remove(task_id)
        bucket = self._settings.bucket
        with self._errors():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=bucket, Prefix=f"{self._settings.prefix}{task_id}/"
            )
            for page in pages:
                if keys := [{"Key": one["Key"]} for one in page.get("Contents", ())]:
                    done = self._client.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
                    for refused in done.get("Errors", ()):
                        raise self._error(f"{refused['Key']} cannot be removed: {refused.get('Message')}")

    def check(self) -> str:
        with self._errors():
            self._client.head_bucket(Bucket=self._settings.bucket)
        return self._settings.url

    @cached_property
    def _client(self) -> Any:
        with self._making:
            if (made := vars(self).get("_client")) is not None:  # by another thread
                return made
            settings = self._settings
            client = make_client(
                "s3",
                settings.endpoint,
                signature_version="s3v4",
                # A private server rarely has a DNS name for each bucket.
                s3={"addressing_style": "path"} if settings.endpoint else None,
            )
            vars(self)["_client"] = client
            return client

    def _key(self, artifact: Artifact) -> str:
        return self._settings.prefix + artifact.path

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return told(self._error, _ADVICE)

    def _error(self, reason: str) -> ArtifactStorageError:
        return ArtifactStorageError(storage=self._settings.url, reason=reason)


def _checksum(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()
