"""What the bearer of a token may do beside calling tools: a role, which is a scope of the token."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

_SCOPE = "backburner:"


class Role(StrEnum):
    """To look, or to steer as well; one owner's tasks, or those of all."""

    READ = "read"
    OPERATE = "operate"
    READ_ALL = "read-all"
    OPERATE_ALL = "operate-all"

    @property
    def operates(self) -> bool:
        """Whether it may submit, steer and delete tasks."""
        return self in (Role.OPERATE, Role.OPERATE_ALL)

    @property
    def sees_all(self) -> bool:
        return self in (Role.READ_ALL, Role.OPERATE_ALL)

    @property
    def scope(self) -> str:
        return _SCOPE + self


def role_of(scopes: Iterable[str]) -> Role:
    """Return the role that a token's scopes name; `operate` if they name none.

    Several roles allow only what each of them allows. An unknown role is `read`, and so is a scope that has
    `backburner:` anywhere but at its beginning: `api://lab/backburner:read`, `openid,backburner:read`.
    """
    named = [scope.removeprefix(_SCOPE) for scope in scopes if _SCOPE in scope.lower()]
    if not named:
        return Role.OPERATE
    roles = [Role(name) if name in set(Role) else Role.READ for name in named]
    operates, sees_all = all(role.operates for role in roles), all(role.sees_all for role in roles)
    if operates:
        return Role.OPERATE_ALL if sees_all else Role.OPERATE
    return Role.READ_ALL if sees_all else Role.READ
