"""A place that is a server elsewhere, through its API: it has neither files nor settings here."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..short_names import SHORT_CHARS
from ..task import LOCAL_OWNER
from ..web.connection import Connection
from ..web.remote import RemoteFiles, RemoteService
from ..web.remote_operator import RemoteOperator
from .place import Place, Where

if TYPE_CHECKING:
    from ..artifacts import ArtifactStore
    from ..config import Settings
    from ..service import TaskService
    from ..task import Task


def open_server(where: Where, server: str, settings: Settings) -> Place:
    """A server; it is reached with the first question. Raises InvalidRequest."""
    return RemotePlace(where, settings, Connection(server, where.token))


class RemotePlace(Place):
    """What is not here, the server answers; what it does not tell, is not said."""

    def __init__(self, where: Where, settings: Settings, server: Connection) -> None:
        self._server, self._remote = server, RemoteService(server)
        super().__init__(where, settings, cast("TaskService", self._remote), Path())

    @cached_property
    def owner(self) -> str | None:
        """The server knows whose token it is, and whom a name means."""
        return None if self.where.owner == LOCAL_OWNER else self.where.owner

    @property
    def name(self) -> str:
        return self._server.name

    @cached_property
    def artifacts(self) -> ArtifactStore:
        return cast("ArtifactStore", RemoteFiles(self._remote))

    @cached_property
    def operator(self) -> RemoteOperator:
        return RemoteOperator(self._server)

    def other_owner_of(self, task_id: str) -> None:
        """The server does not tell what others have."""

    def short_id(self, task_id: str) -> str:
        """As short as the shortest: to ask the server for every id would take long."""
        return task_id[:SHORT_CHARS]

    def shown_inputs(self, task: Task) -> dict[str, Any] | None:
        return task.inputs  # a server shows no secret

    def say_if_nobody_works(self, task: Task) -> None: ...
