"""The verifiers of bearer tokens that settings can switch on: named tokens from a file, and JWTs."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from mcp.server.auth.provider import AccessToken

from ...config import Settings
from ...errors import ConfigError

logger = logging.getLogger(__name__)

#: How often the file of static tokens is looked at, at most.
_LOOK_AGAIN_S = 0.5
_ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_SYMMETRIC = ("HS256", "HS384", "HS512")


class Verifier(Protocol):
    """The SDK's TokenVerifier: gives the token's principal, or None to turn it away."""

    async def verify_token(self, token: str) -> AccessToken | None: ...


def hash_token(token: str) -> str:
    """How a token is written in the file of static tokens."""
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


class StaticTokens:
    """Named bearer tokens from a file that holds only their hashes.

    One token a line: a name, blanks, the token's hash as `hash_token` makes it, and perhaps its
    scopes; `#` begins a comment. The name is the client id, so two tokens of one name share
    their tasks. Tokens must be long and random, for the hash is plain SHA-256.

    A file that was changed or replaced is read again within a second. One that cannot be read, or
    is not well formed, is logged, and the tokens stay as they were.

        alice   sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
        ci-bot  sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752  tasks
    """

    def __init__(self, path: str | Path) -> None:
        """Raises ConfigError, naming the line."""
        self._path = Path(path).expanduser()
        self._stamp = self._stamp_now()
        self._tokens = _read_tokens(self._path)
        self._looked_at = time.monotonic()

    def _look_again(self) -> None:
        """Read the file anew if it is another than the one that was read last."""
        if time.monotonic() - self._looked_at < _LOOK_AGAIN_S:
            return
        self._looked_at = time.monotonic()
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._tokens = _read_tokens(self._path)
        except ConfigError as error:
            logger.error("The tokens stay as they were: %s", error)
        else:
            logger.info("%d tokens were read from %s", len(self._tokens), self._path)

    def _stamp_now(self) -> tuple[int, ...]:
        """What differs when the file was written or replaced; nothing when it is gone."""
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    async def verify_token(self, token: str) -> AccessToken | None:
        self._look_again()
        given, found = hash_token(token), None
        for name, known, scopes in self._tokens:  # all of them, so that the time tells nothing
            if hmac.compare_digest(given, known):
                found = AccessToken(token=token, client_id=name, scopes=scopes, subject=name)
        return found


def _read_tokens(path: Path) -> list[tuple[str, str, list[str]]]:
    """The name, hash and scopes on each line. Raises ConfigError, naming the line."""
    tokens: list[tuple[str, str, list[str]]] = []
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(setting="http.auth.tokens", reason=str(error)) from error
    for number, line in enumerate(lines, 1):
        parts = line.partition("#")[0].split()
        if not parts:
            continue
        if len(parts) < 2 or len(parts[1]) != len(hash_token("")) or not parts[1].startswith("sha256:"):
            reason = f"line {number} of {path} is not `name sha256:<64 hex digits> [scopes]`"
            raise ConfigError(setting="http.auth.tokens", reason=reason)
        tokens.append((parts[0], parts[1].lower(), parts[2:]))
    return tokens


class JwtTokens:
    """JSON Web Tokens, signed with one key or with the keys of a JWKS file or URL."""

    def __init__(self, *, key: str = "", jwks: str = "", issuer: str = "", audience: str = "") -> None:
        """Raises ConfigError when the key or the key set cannot be read."""
        self._issuer, self._audience = issuer or None, audience or None
        self._key: Any = None
        self._key_set: Any = None
        self._fetcher: Any = None
        self._algorithms: Sequence[str] = _ASYMMETRIC
        if key:
            self._key, self._algorithms = _read_key(key)
        elif jwks.startswith(("https://", "http://")):
            import jwt

            self._fetcher = jwt.PyJWKClient(jwks, cache_keys=True, timeout=10)
        else:
            self._key_set = _read_key_set(jwks)

    async def verify_token(self, token: str) -> AccessToken | None:
        import jwt

        try:
            key = await self._key_for(token)
            claims = jwt.decode(
                token,
                key,
                algorithms=list(self._algorithms),
                audience=self._audience,
                issuer=self._issuer,
                options={"require": ["exp", "sub"], "verify_aud": self._audience is not None},
            )
        except (jwt.PyJWTError, KeyError, ValueError):
            return None
        audience = claims.get("aud")
        return AccessToken(
            token=token,
            client_id=str(claims.get("client_id") or claims.get("azp") or claims["sub"]),
            scopes=str(claims.get("scope") or "").split(),
            expires_at=int(claims["exp"]),
            resource=audience if isinstance(audience, str) else None,
            subject=str(claims["sub"]),
            claims=claims,
        )

    async def _key_for(self, token: str) -> Any:
        import jwt

        if self._key is not None:
            return self._key
        if self._fetcher is not None:
            # It may ask the key server, so not on the event loop.
            return (await asyncio.to_thread(self._fetcher.get_signing_key_from_jwt, token)).key
        return self._key_set[jwt.get_unverified_header(token).get("kid")].key


class AnyOf:
    """The first verifier that knows the token."""

    def __init__(self, verifiers: Sequence[Verifier]) -> None:
        self._verifiers = verifiers

    async def verify_token(self, token: str) -> AccessToken | None:
        for verifier in self._verifiers:
            found = await verifier.verify_token(token)
            if found is not None and (found.expires_at is None or found.expires_at >= time.time()):
                return found
        return None


def verifier_of(settings: Settings) -> Verifier | None:
    """The verifier that the settings ask for, or None when they name no tokens. Raises ConfigError."""
    verifiers: list[Verifier] = []
    if settings.http.auth.tokens:
        verifiers.append(StaticTokens(settings.http.auth.tokens))
    if settings.http.auth.jwt_key or settings.http.auth.jwks:
        verifiers.append(
            JwtTokens(
                key=settings.http.auth.jwt_key,
                jwks=settings.http.auth.jwks,
                issuer=settings.http.auth.issuer,
                audience=settings.http.auth.audience,
            )
        )
    return AnyOf(verifiers) if verifiers else None


def _read_key(key: str) -> tuple[str, Sequence[str]]:
    path = Path(key).expanduser()
    try:
        text = path.read_text("utf-8") if len(key) < 1024 and path.is_file() else key
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(setting="http.auth.jwt_key", reason=str(error)) from error
    if "-----BEGIN" in text:
        return text, _ASYMMETRIC
    secret = text.strip()
    if len(secret.encode()) < 32:
        raise ConfigError(setting="http.auth.jwt_key", reason="a shared secret has at least 32 bytes")
    return secret, _SYMMETRIC


def _read_key_set(path: str) -> dict[str | None, Any]:
    import jwt

    try:
        keys = jwt.PyJWKSet.from_json(Path(path).expanduser().read_text("utf-8")).keys
    except (OSError, ValueError, jwt.PyJWTError) as error:
        raise ConfigError(setting="http.auth.jwks", reason=f"{path}: {error}") from error
    by_id: dict[str | None, Any] = {key.key_id: key for key in keys}
    if len(keys) == 1:
        by_id[None] = keys[0]
    return by_id
