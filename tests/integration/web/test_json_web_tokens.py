"""JSON Web Tokens at the API: their roles, and tokens that are refused."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.deployment import Deployment
from tests.integration.web.conftest import PROGRAM, SIGNING_KEY, Api

KEY_ID = {"kid": "k1"}


def signed(**claims: Any) -> str:
    return jwt.encode(
        {"sub": "alice", "exp": int(time.time()) + 600, **claims}, SIGNING_KEY, "ES256", headers=KEY_ID
    )


@pytest.fixture
def anonymous(guarded: str) -> Iterator[Api]:
    with closing(Api(guarded)) as api:
        yield api


def ask(api: Api, token: str) -> tuple[int, str | None]:
    """The status and the role of the bearer of a token."""
    answer = api.http.get("/me", headers={"Authorization": f"Bearer {token}"})
    return answer.status_code, answer.json().get("role")


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"scope": "openid backburner:read"}, "read"),
        ({"scope": ["openid", "backburner:read"]}, "read"),
        ({"scp": "openid backburner:read"}, "read"),
        ({"scp": ["openid", "backburner:read"]}, "read"),
        ({"scp": ["backburner:operate-all"]}, "operate-all"),
        ({"scope": "backburner:operate-all", "scp": ["backburner:read"]}, "read"),
        ({"scope": "backburner:rule-the-world"}, "read"),
        ({"scope": "openid,backburner:read-all"}, "read"),
        ({"scp": ["api://lab/backburner:read"]}, "read"),
        ({"scope": "openid", "scp": None}, "operate"),
        ({}, "operate"),
    ],
)
def test_a_role_is_read_from_either_scope_claim(anonymous: Api, claims: Any, role: str) -> None:
    assert ask(anonymous, signed(**claims)) == (200, role)


@pytest.mark.parametrize("scopes", [{"backburner:read": True}, 7, [["backburner:read"]], True])
def test_a_token_whose_scopes_are_not_text_is_refused(anonymous: Api, scopes: Any) -> None:
    assert ask(anonymous, signed(scp=scopes))[0] == 401


def forged() -> Iterator[str]:
    def part(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    for algorithm in ("RS256", "EdDSA", "HS256", "none"):
        yield f"{part(json.dumps({'alg': algorithm, **KEY_ID}))}.{part('{}')}.{part('signature')}"


@pytest.mark.parametrize("token", [*forged()], ids=["RS256", "EdDSA", "HS256", "none"])
def test_a_token_whose_algorithm_does_not_fit_its_key_is_refused(anonymous: Api, token: str) -> None:
    assert ask(anonymous, token)[0] == 401


def test_a_long_shared_secret_is_a_key_and_not_a_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = "~unknown-user" + "s" * 300
    with Deployment(tmp_path, (PROGRAM,), {"http__auth__jwt_key": secret}) as made, made.http() as server:
        token = jwt.encode({"sub": "alice", "exp": int(time.time()) + 600}, secret, "HS256")
        with closing(Api(server.address)) as api:
            assert ask(api, token) == (200, "operate")
    assert secret not in "".join(capfd.readouterr())
