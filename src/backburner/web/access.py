"""Who asks, whose tasks he sees, and whether he may change anything."""

from __future__ import annotations

from dataclasses import dataclass

from mcp.server.auth.middleware.auth_context import get_access_token

from ..mcp.request import caller_of_request, owner_of_request
from ..mcp.serving.roles import Role, role_of
from ..short_names import whole_owner
from ..store import Store
from ..task import Caller
from .refusals import NotPermitted, TokenRequired


@dataclass(frozen=True, slots=True)
class Access:
    """Who asks. `principal` owns what he makes, and `is_local` says that nobody needs a token here."""

    principal: str
    role: Role
    caller: Caller | None = None
    is_local: bool = False

    @property
    def owner(self) -> str | None:
        """Whose tasks he sees; None: everyone's."""
        return None if self.role.sees_all else self.principal

    @property
    def is_operator(self) -> bool:
        """Whether hosts, processes and what servers hide from clients are shown.

        Without tokens, every request comes from the host itself.
        """
        return self.role.sees_all or self.is_local

    @property
    def steers_queues(self) -> bool:
        """Queues are everyone's. Where there are no tokens, there is nobody else."""
        return self.role.operates and (self.role.sees_all or self.is_local)

    def chosen_owner(self, name: str | None, store: Store) -> str | None:
        """The owner whose tasks are asked for: his own, or if he sees those of all, whomever he names."""
        if name is None:
            return self.owner
        if not self.role.sees_all:
            raise NotPermitted(role=self.role, what="name an owner: it sees the tasks of one alone")
        return whole_owner(name, store.count_owners())

    def must_operate(self) -> None:
        if not self.role.operates:
            raise NotPermitted(role=self.role, what="change anything")

    def must_steer_queues(self) -> None:
        self.must_steer_all("pause or resume queues, which are everyone's")

    def must_steer_all(self, what: str) -> None:
        """For what is everyone's, as queues are."""
        if not self.steers_queues:
            raise NotPermitted(role=self.role, what=what)


def access_of_request(*, tokens: bool) -> Access:
    """The access of the request that is being answered, where `tokens` are asked for or not.

    Raises TokenRequired.
    """
    token = get_access_token()
    if token is None:
        if tokens:
            raise TokenRequired
        return Access(owner_of_request(), Role.OPERATE, is_local=True)
    return Access(owner_of_request(), role_of(token.scopes), caller_of_request())
