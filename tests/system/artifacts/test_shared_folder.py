"""Artifacts in a folder that all hosts have mounted."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from backburner.artifacts import open_artifacts
from backburner.config import ArtifactSettings
from backburner.errors import ArtifactNotFound, ArtifactStorageError
from tests.system.artifacts.files import made_file


def test_what_one_host_made_another_reads_and_removes(tmp_path: Path) -> None:
    settings = ArtifactSettings(url=f"file://{tmp_path}/shared")
    one, other = (open_artifacts(settings, tmp_path / name) for name in ("one", "other"))
    before = made_file(tmp_path / "one", b"before")
    artifact = made_file(tmp_path / "one", b"0123456789")
    one.keep(artifact)
    assert not (tmp_path / "one" / artifact.path).exists()
    assert (other.read(artifact), other.read(artifact, 2, 3)) == (b"0123456789", b"234")
    assert b"".join(other.chunks(artifact, 8)) == b"89"
    shared = other.file(artifact)
    assert shared is not None
    assert stat.S_IMODE(shared.stat().st_mode) == 0o400
    # One that was made before the folder was shared is still read on its own host, and there alone.
    assert (one.read(before), other.file(before)) == (b"before", None)
    other.remove(artifact.task_id)
    assert list((tmp_path / "shared").iterdir()) == []
    with pytest.raises(FileNotFoundError):
        one.read(artifact)


def test_what_cannot_be_kept_is_not_half_there(tmp_path: Path) -> None:
    artifact = made_file(tmp_path / "one", b"data")
    (tmp_path / "shared").write_text("no folder")
    nowhere = open_artifacts(ArtifactSettings(url=f"file://{tmp_path}/shared"), tmp_path / "one")
    for refused in (nowhere.check, lambda: nowhere.keep(artifact)):
        with pytest.raises(ArtifactStorageError):
            refused()
    (tmp_path / "one" / artifact.path).write_bytes(b"other")
    place = open_artifacts(ArtifactSettings(url=f"file://{tmp_path}/files"), tmp_path / "one")
    with pytest.raises(ArtifactStorageError, match="changed while it was kept"):
        place.keep(artifact)
    assert [path for path in (tmp_path / "files").rglob("*") if path.is_file()] == []


def test_a_link_out_of_the_task_s_folder_is_not_followed(tmp_path: Path) -> None:
    artifact = made_file(tmp_path / "one", b"data")
    (tmp_path / "secret").write_bytes(b"data")
    (tmp_path / "one" / artifact.path).unlink()
    (tmp_path / "one" / artifact.path).symlink_to(tmp_path / "secret")
    place = open_artifacts(ArtifactSettings(url=f"file://{tmp_path}/shared"), tmp_path / "one")
    with pytest.raises(ArtifactNotFound):
        place.keep(artifact)
