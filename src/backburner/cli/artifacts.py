"""`artifacts`: the files that a task made."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ..records import record
from ..terminal_text import printable
from .output import moment, print_json, say, show, size, table
from .place import Place
from .verb import TaskId, verb

if TYPE_CHECKING:
    from ..task import Artifact


class ListsByDefault(TyperGroup):
    """`artifacts TASK_ID` is `artifacts ls TASK_ID`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["ls", *args]
        return super().parse_args(ctx, args)


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=ListsByDefault,
        no_args_is_help=True,
        rich_markup_mode="rich",
        help="List a task's files, or fetch them.",
    )
    verb(
        group,
        "ls",
        examples=[
            "backburner artifacts tsk_01J8WQ6JY7 -t lab.py",
            "backburner artifacts ls tsk_01J8WQ6JY7 --json",
        ],
        remote=True,
    )(list_artifacts)
    verb(
        group,
        "get",
        examples=[
            "backburner artifacts get tsk_01J8WQ6JY7 -t lab.py              # all of them, to this folder",
            "backburner artifacts get tsk_01J8WQ6JY7 opt.traj -o results/",
        ],
        remote=True,
    )(get_artifacts)
    app.add_typer(group, name="artifacts", rich_help_panel="Tasks")


def list_artifacts(place: Place, task_id: TaskId) -> None:
    """List the files that a task made."""
    artifacts = place.service.artifacts(task_id, owner=place.owner)
    if place.as_json:
        print_json({"task_id": task_id, "artifacts": record(artifacts)})
        return
    if not artifacts:
        say("No artifacts.")
        return
    rows = [
        [one.name, one.kind, size(one.size_bytes), moment(one.created_at), one.artifact_id]
        for one in artifacts
    ]
    show(table(["NAME", "KIND", "SIZE", "MADE", "ARTIFACT"], rows, whole=("NAME", "SIZE")))


def get_artifacts(
    place: Place,
    task_id: TaskId,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME…", help="Names or artifact ids (default: all)", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to put them into")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there")] = False,
) -> None:
    """Copy a task's files to a folder, and check each against its SHA-256."""
    chosen = _choose(place.service.artifacts(task_id, owner=place.owner), names or [])
    output.mkdir(parents=True, exist_ok=True)
    fetched = []
    for artifact in chosen:
        target = _fetch(place, artifact, output, force=force)
        fetched.append({**record(artifact), "file": str(target)})
        if not place.as_json:
            print(printable(target))
    if place.as_json:
        print_json({"task_id": task_id, "artifacts": fetched})


def _choose(artifacts: Sequence[Artifact], names: list[str]) -> list[Artifact]:
    from ..errors import ArtifactNotFound

    for name in names:
        if not any(name in (one.name, one.artifact_id) for one in artifacts):
            raise ArtifactNotFound(artifact_id=printable(name))
    chosen = [one for one in artifacts if not names or one.name in names or one.artifact_id in names]
    return list({one.name: one for one in chosen}.values())  # of one name, the latest attempt's


def _fetch(place: Place, artifact: Artifact, folder: Path, *, force: bool) -> Path:
    from ..errors import EngineError
    from ..folders import safe_file_name

    target = folder / safe_file_name(artifact.name)
    if target.exists() and not force:
        raise typer.BadParameter(f"{printable(target)} is there already; --force overwrites it")
    beside = target.with_name(f".{target.name}.{artifact.artifact_id}")
    try:
        found = _copy(place, artifact, beside)
        if found != artifact.sha256:
            reason = (
                f"{artifact.artifact_id} has changed where it is kept: its SHA-256 is {found},"
                f" not {artifact.sha256}"
            )
            raise EngineError(engine=place.settings.engine, reason=reason)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    return target


def _copy(place: Place, artifact: Artifact, target: Path) -> str:
    """The SHA-256 of what was copied."""
    from ..errors import ArtifactNotFound

    digest = hashlib.sha256()
    with target.open("wb") as out:
        try:
            for chunk in place.artifacts.chunks(artifact):
                digest.update(chunk)
                out.write(chunk)
        except FileNotFoundError:
            raise ArtifactNotFound(artifact_id=artifact.artifact_id) from None
    return digest.hexdigest()
