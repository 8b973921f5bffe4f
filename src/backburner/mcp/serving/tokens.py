"""The verifiers of bearer tokens that settings can switch on: named tokens from a file, and JWTs."""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from mcp.server.auth.provider import AccessToken

from ...app import Backburner
from ...errors import ConfigError
from .token_file import Token, TokenFile, hash_token

logger = logging.getLogger(__name__)

_ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_SYMMETRIC = ("HS256", "HS384", "HS512")


class Verifier(Protocol):
    """The SDK's TokenVerifier: gives the token's principal, or None to turn it away."""

    async def verify_token(self, token: str) -> AccessToken | None: ...


class StaticTokens:
    """Named bearer tokens from a file that holds only their hashes; `TokenFile` says how it looks.

    A file that was changed or replaced is read again with the next request. One that cannot be read,
    or is not well formed, is logged, and the tokens stay as they were.
    """

    def __init__(self, path: str | Path) -> None:
        """Raises ConfigError, naming the line."""
        self._file = TokenFile(path)
        self._stamp = self._stamp_now()
        self._tokens = self._read()

    def _read(self) -> list[Token]:
        if not self._stamp:
            raise ConfigError(setting="http.auth.tokens", reason=f"there is no file {self._file.path}")
        return self._file.read()

    def _look_again(self) -> None:
        """Read the file anew if it is another than the one that was read last."""
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._tokens = self._read()
        except ConfigError as error:
            logger.error("The tokens stay as they were: %s", error)
        else:
            logger.info("%d tokens were read from %s", len(self._tokens), self._file.path)

    def _stamp_now(self) -> tuple[int, ...]:
        """What differs when the file was written or replaced; nothing when it is gone."""
        try:
            found = self._file.path.stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    async def verify_token(self, token: str) -> AccessToken | None:
        self._look_again()
        given, found = hash_token(token), None
        for known in self._tokens:  # all of them, so that the time tells nothing
            if hmac.compare_digest(given, known.hash):
                found = known
        if found is None:
            return None
        return AccessToken(
            token=token,
            client_id=found.owner,
            scopes=list(found.scopes),
            subject=found.owner,
            expires_at=None if found.expires_at is None else found.expires_at // 1000,
        )


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
            scopes = [*_scopes_in(claims.get("scope")), *_scopes_in(claims.get("scp"))]
        except (
            jwt.PyJWTError,
            KeyError,
            TypeError,
            ValueError,
        ):  # TypeError: the key is for another algorithm
            return None
        audience = claims.get("aud")
        return AccessToken(
            token=token,
            client_id=str(claims.get("client_id") or claims.get("azp") or claims["sub"]),
            scopes=scopes,
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


def verifier_of(app: Backburner) -> Verifier | None:
    """The verifier for the tokens of an app, or None when it has none. Raises ConfigError."""
    settings, verifiers = app.settings, list[Verifier]()
    file = TokenFile.of(settings, app.data_dir)
    if settings.http.auth.tokens or file.path.exists():
        verifiers.append(StaticTokens(file.path))
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


def _scopes_in(claim: Any) -> list[str]:
    """Return the scopes of a claim: one text with blanks between them, or a list of texts.

    Raises ValueError for any other value.
    """
    if claim is None:
        return []
    if isinstance(claim, str):
        return claim.split()
    if isinstance(claim, list) and all(isinstance(scope, str) for scope in claim):
        return [word for scope in claim for word in scope.split()]
    raise ValueError("the scopes are neither text nor a list of texts")


def _read_key(key: str) -> tuple[str, Sequence[str]]:
    """Return a key and the algorithms that it fits. Raises ConfigError, which never quotes the setting."""
    try:
        text = key if (path := _file_named(key)) is None else path.read_text("utf-8")
    except OSError as error:
        reason = f"the file that it names cannot be read: {error.strerror}"
        raise ConfigError(setting="http.auth.jwt_key", reason=reason) from None
    except UnicodeDecodeError as error:
        raise ConfigError(setting="http.auth.jwt_key", reason="the file that it names is no text") from error
    if "-----BEGIN" in text:
        return text, _ASYMMETRIC
    secret = text.strip()
    if len(secret.encode()) < 32:
        raise ConfigError(setting="http.auth.jwt_key", reason="a shared secret has at least 32 bytes")
    return secret, _SYMMETRIC


def _file_named(key: str) -> Path | None:
    """Return the file of that name. None if there is none, also where the text cannot be a file name."""
    try:
        path = Path(key).expanduser()
        return path if path.is_file() else None
    except RuntimeError:  # `~` and no such user
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise


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
