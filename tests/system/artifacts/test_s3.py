"""Artifacts in S3-compatible storage: made on one host, read on all, whole or not there at all."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from backburner.client import BackburnerClient
from backburner.errors import ArtifactStorageError
from backburner.settings import ArtifactSettings
from backburner.store.artifacts import open_artifacts
from tests.aws import CREDENTIALS, MotoServer
from tests.services import wait_until
from tests.system.artifacts.conftest import MakeHost
from tests.system.artifacts.files import keep, made_file, outgoing
from tests.system.artifacts.hosts import most_memory_mb

#: More than one part of an upload.
SIZE = 18_000_000


def pattern(size: int) -> bytes:
    return b"".join(f"{number:063}\n".encode() for number in range(0, size, 64))[:size]


def keys_in(moto: MotoServer, bucket: str) -> list[str]:
    return [one["Key"] for one in moto.client("s3").list_objects_v2(Bucket=bucket).get("Contents", ())]


async def test_what_one_host_made_is_read_on_another_in_every_way(
    host: MakeHost, moto: MotoServer, bucket: str, tmp_path: Path
) -> None:
    working, serving, data = host("working"), host("serving"), pattern(SIZE)
    task_id = working.call("keep", size=SIZE)["task_id"]
    assert working.files == []
    (key,) = keys_in(moto, bucket)
    assert key.startswith(f"lab/files/{task_id}/artifacts/art_")
    fetched = serving.backburner("artifacts", "get", task_id, "-o", "here")
    assert (tmp_path / "here" / "data.bin").read_bytes() == data, fetched.stderr
    with serving.http() as server:
        async with BackburnerClient(server.url) as client, httpx2.AsyncClient() as http:
            (made,) = await (await client.resume(task_id)).artifacts()
            assert made.download_url is not None
            assert made.download_url.startswith(server.address)
            await made.download(tmp_path / "there.bin")
            assert (tmp_path / "there.bin").read_bytes() == data
            for asked, answer in {
                "bytes=100-199": (206, data[100:200], f"bytes 100-199/{SIZE}"),
                "bytes=-7": (206, data[-7:], f"bytes {SIZE - 7}-{SIZE - 1}/{SIZE}"),
                f"bytes={SIZE - 1}-": (206, data[-1:], f"bytes {SIZE - 1}-{SIZE - 1}/{SIZE}"),
                f"bytes={SIZE}-": (416, b"", f"bytes */{SIZE}"),
            }.items():
                part = await http.get(made.download_url, headers={"Range": asked})
                assert (part.status_code, part.content, part.headers["content-range"]) == answer
            head = await http.head(made.download_url)
            assert (head.status_code, head.headers["content-length"]) == (200, str(SIZE))
            resource = f"{made.resource}?offset=64&length=64"
            (piece,) = (await client.connection.request("resources/read", {"uri": resource}))["contents"]
            assert piece["_meta"] == {"offset": 64, "length": 64, "size": SIZE}
            written = working.call("write", length=400_000)
            whole = await (await client.resume(written["task_id"])).result()
            assert [block.model_dump()["text"] for block in whole.content] == ["x" * 400_000]
    assert serving.backburner("result", written["task_id"]).stdout == "x" * 400_000 + "\n"


async def test_clients_get_the_storage_s_own_links_where_that_is_set(
    host: MakeHost, moto: MotoServer, tmp_path: Path
) -> None:
    serving = host("serving", artifacts__links="storage")
    task_id = serving.call("keep", size=1000)["task_id"]
    with serving.http() as server:
        async with BackburnerClient(server.url) as client, httpx2.AsyncClient() as http:
            (made,) = await (await client.resume(task_id)).artifacts()
            assert made.download_url is not None
            assert made.download_url.startswith(moto.url)
            answer = await http.get(made.download_url)
            assert answer.content == pattern(1000)
            assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''data.bin"
            await made.download(tmp_path)
            assert (tmp_path / "data.bin").read_bytes() == pattern(1000)


@pytest.mark.whole
def test_what_expires_or_is_forgotten_leaves_no_object(host: MakeHost, moto: MotoServer, bucket: str) -> None:
    one = host("one")
    forgotten = one.call("keep", size=10)["task_id"]
    assert one.backburner("prune", "--older-than", "0s").returncode == 0
    assert one.backburner("show", forgotten).returncode == 3
    assert keys_in(moto, bucket) == []
    submitted = json.loads(
        one.backburner("call", "--detach", "keep", "size:=10", "--ttl", "10s", "--json").stdout
    )
    assert wait_until(lambda: any(submitted["task_id"] in key for key in keys_in(moto, bucket)))
    assert wait_until(lambda: not keys_in(moto, bucket))


@pytest.fixture
def own_moto() -> Iterator[MotoServer]:
    server = MotoServer().start()
    yield server
    server.stop()


@pytest.mark.whole
async def test_a_storage_that_is_away_is_told_and_leaves_nothing_half_there(
    host: MakeHost, own_moto: MotoServer, tmp_path: Path
) -> None:
    own_moto.client("s3").create_bucket(Bucket="lab")
    one = host("one", artifacts__url="s3://lab", artifacts__endpoint=own_moto.url)
    task_id = one.call("keep", size=10)["task_id"]
    with one.http() as server:
        async with BackburnerClient(server.url) as client, httpx2.AsyncClient() as http:
            (made,) = await (await client.resume(task_id)).artifacts()
            own_moto.stop()
            assert made.download_url is not None
            answer = await http.get(made.download_url, timeout=30)
            assert answer.status_code == 503
            assert "The artifact storage s3://lab failed: it cannot be reached now" in answer.text
            with pytest.raises(MCPError) as refused:
                await client.connection.request("resources/read", {"uri": made.resource})
            assert refused.value.error.data == {"code": "artifact_storage_error"}
    fetched = one.backburner("artifacts", "get", task_id, "-o", "here")
    assert (fetched.returncode, "try again shortly" in fetched.stderr) == (4, True)
    assert list((tmp_path / "here").iterdir()) == []
    refused_here = one.call("keep_if_possible")
    assert refused_here["result"].startswith(
        "artifact_storage_error: The artifact storage s3://lab could not"
    )
    assert refused_here["artifacts"] == []
    # The task fails that does not look out for it, and goes well once the storage is back.
    failed = one.call("keep", size=10)
    assert (failed["state"], failed["error"]["exception"]) == ("failed", "artifact_storage_error")
    assert failed["artifacts"] == []
    own_moto.start().client("s3").create_bucket(Bucket="lab")
    assert one.backburner("retry", failed["task_id"]).returncode == 0
    assert one.backburner("watch", failed["task_id"]).returncode == 0
    assert len(keys_in(own_moto, "lab")) == 1


@pytest.mark.whole
def test_what_is_wrong_with_a_storage_is_told_with_what_to_do(host: MakeHost, moto: MotoServer) -> None:
    nowhere = host("nowhere", artifacts__url="s3://not-there")
    assert "create the bucket, or set artifacts.url" in nowhere.call("keep_if_possible")["result"]
    assert "create the bucket" in nowhere.backburner("doctor").stdout
    nobody = host("nobody")
    nobody.variables = {**CREDENTIALS, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    assert "set AWS_ACCESS_KEY_ID" in nobody.backburner("doctor").stdout
    assert "which answers" in host("well").backburner("doctor").stdout


def test_credentials_that_the_storage_does_not_know_are_told(tmp_path: Path) -> None:
    strict = MotoServer(INITIAL_NO_AUTH_ACTION_COUNT="1").start()
    try:
        strict.client("s3").create_bucket(Bucket="lab")
        artifact = made_file(tmp_path, b"data")
        settings = ArtifactSettings(url="s3://lab", endpoint=strict.url)
        with pytest.raises(ArtifactStorageError, match="the service does not know the access key") as refused:
            keep(open_artifacts(settings, tmp_path), tmp_path, artifact)
        assert refused.value.code == "artifact_storage_error"
    finally:
        strict.stop()


@pytest.mark.parametrize("size", [1000, SIZE])
def test_a_file_that_changed_meanwhile_is_not_kept(
    tmp_path: Path, moto: MotoServer, bucket: str, size: int
) -> None:
    artifact = made_file(tmp_path, bytes(size))
    with outgoing(tmp_path, artifact).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    settings = ArtifactSettings(url=f"s3://{bucket}", endpoint=moto.url)
    with pytest.raises(ArtifactStorageError, match="changed while it was stored"):
        keep(open_artifacts(settings, tmp_path), tmp_path, artifact)
    assert keys_in(moto, bucket) == []
    assert "Uploads" not in moto.client("s3").list_multipart_uploads(Bucket=bucket)


#: A gigabyte takes a minute; a process that held a file of this size would have grown, too.
MEBIBYTES = int(os.environ.get("BACKBURNER_ARTIFACT_MIB", "256"))


@pytest.fixture(autouse=True)
def own_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.whole
@pytest.mark.slow
def test_a_large_file_goes_through_without_growing_a_process(host: MakeHost) -> None:
    one = host("one", supervisor__idle_exit_s="300")
    one.call("keep_if_possible")  # what boto3 itself takes is no matter
    supervisor = one.supervisor()
    assert supervisor is not None
    before = most_memory_mb(supervisor.pid)
    made = one.call("keep_blank", mebibytes=MEBIBYTES)
    assert made["state"] == "succeeded", made["error"]
    assert most_memory_mb(supervisor.pid) - before < 100
    with one.http() as server:
        url = download_url(server.url, made["task_id"])
        before = most_memory_mb(server.pid)
        digest = hashlib.sha256()
        with httpx2.stream("GET", url, timeout=100) as answer:
            for chunk in answer.iter_bytes(1 << 20):
                digest.update(chunk)
        assert digest.hexdigest() == made["result"]
        assert most_memory_mb(server.pid) - before < 100


def download_url(server: str, task_id: str) -> str:
    async def find() -> str:
        async with BackburnerClient(server) as client:
            (made,) = await (await client.resume(task_id)).artifacts()
            assert made.download_url is not None
            return made.download_url

    return asyncio.run(find())
