"""Artifacts in a folder that all hosts have mounted."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from backburner.errors import ArtifactStorageError
from backburner.settings import ArtifactSettings
from backburner.store.artifacts import open_artifacts
from tests.system.artifacts.files import keep, made_file, outgoing


def test_what_one_host_made_another_reads_and_removes(tmp_path: Path) -> None:
    settings = ArtifactSettings(url=f"file://{tmp_path}/shared")
    one, other = (open_artifacts(settings, tmp_path / name) for name in ("one", "other"))
    before = made_file(tmp_path / "one", b"before")
    keep(open_artifacts(ArtifactSettings(), tmp_path / "one"), tmp_path / "one", before)
    artifact = made_file(tmp_path / "one", b"0123456789")
    keep(one, tmp_path / "one", artifact)
    assert not (tmp_path / "one" / artifact.path).exists()
    assert (other.read(artifact), other.read(artifact, 2, 3)) == (b"0123456789", b"234")
    assert b"".join(other.chunks(artifact, 8)) == b"89"
    assert stat.S_IMODE((tmp_path / "shared" / artifact.path).stat().st_mode) == 0o400
    # One that was made before the folder was shared is still read on its own host, and there alone.
    assert one.read(before) == b"before"
    with pytest.raises(FileNotFoundError):
        other.read(before)
    other.remove(artifact.task_id)
    assert list((tmp_path / "shared").iterdir()) == []
    with pytest.raises(FileNotFoundError):
        one.read(artifact)


def test_what_cannot_be_kept_is_not_half_there(tmp_path: Path) -> None:
    artifact = made_file(tmp_path / "one", b"data")
    (tmp_path / "shared").write_text("no folder")
    nowhere = open_artifacts(ArtifactSettings(url=f"file://{tmp_path}/shared"), tmp_path / "one")
    for refused in (nowhere.check, lambda: keep(nowhere, tmp_path / "one", artifact)):
        with pytest.raises(ArtifactStorageError):
            refused()
    outgoing(tmp_path / "one", artifact).write_bytes(b"other")
    place = open_artifacts(ArtifactSettings(url=f"file://{tmp_path}/files"), tmp_path / "one")
    with pytest.raises(ArtifactStorageError, match="changed while it was stored"):
        keep(place, tmp_path / "one", artifact)
    assert [path for path in (tmp_path / "files").rglob("*") if path.is_file()] == []


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    artifact = made_file(tmp_path / "one", b"data")
    (tmp_path / "secret").write_bytes(b"data")
    outgoing(tmp_path / "one", artifact).unlink()
    outgoing(tmp_path / "one", artifact).symlink_to(tmp_path / "secret")
    place = open_artifacts(ArtifactSettings(url=f"file://{tmp_path}/shared"), tmp_path / "one")
    with pytest.raises(FileNotFoundError):
        keep(place, tmp_path / "one", artifact)


def test_a_kept_file_is_not_replaced_by_another_of_its_id(tmp_path: Path) -> None:
    artifact = made_file(tmp_path / "one", b"first")
    place = open_artifacts(ArtifactSettings(url=f"file://{tmp_path}/shared"), tmp_path / "one")
    keep(place, tmp_path / "one", artifact)
    keep(place, tmp_path / "one", artifact)  # the same once more is harmless
    other = replace(artifact, sha256=hashlib.sha256(b"other").hexdigest())
    outgoing(tmp_path / "one", artifact).write_bytes(b"other")
    with pytest.raises(ArtifactStorageError, match="SHA-256"):
        keep(place, tmp_path / "one", other)
    assert place.read(artifact) == b"first"
