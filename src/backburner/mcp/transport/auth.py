"""Bearer tokens: roles, the token file, verifiers and revocation."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, TokenVerifier
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...app import Backburner
from ...core.files import locked, write_private
from ...core.times import from_iso, iso
from ...errors import ConfigError, UnknownToken
from ...service.names import owner_of
from ...settings import Settings

_SCOPE = "backburner:"


class Role(StrEnum):
    """Permission of a token: read or operate, on the owner's tasks or on all."""

    READ = "read"
    OPERATE = "operate"
    READ_ALL = "read-all"
    OPERATE_ALL = "operate-all"

    @property
    def operates(self) -> bool:
        """True if it may submit, change and delete tasks."""
        return self in (Role.OPERATE, Role.OPERATE_ALL)

    @property
    def sees_all(self) -> bool:
        return self in (Role.READ_ALL, Role.OPERATE_ALL)

    @property
    def scope(self) -> str:
        return _SCOPE + self


def role_of(scopes: Iterable[str]) -> Role:
    """Return the role that a token's scopes name; `operate` if they name none.

    Several roles allow only what each allows. An unknown role counts as `read`, as does `backburner:` inside
    a scope, such as `api://lab/backburner:read`.
    """
    named = [scope.removeprefix(_SCOPE) for scope in scopes if _SCOPE in scope.lower()]
    if not named:
        return Role.OPERATE
    roles = [Role(name) if name in set(Role) else Role.READ for name in named]
    operates, sees_all = all(role.operates for role in roles), all(role.sees_all for role in roles)
    if operates:
        return Role.OPERATE_ALL if sees_all else Role.OPERATE
    return Role.READ_ALL if sees_all else Role.READ


_HEADING = "# Bearer tokens; `backburner token` writes this file. Only hashes are kept.\n"
_SETTING = "http.auth.tokens"


def hash_token(token: str) -> str:
    """Return a token's hash as the file has it."""
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Token:
    """A line of the file. Tokens of one owner share their tasks; times are in milliseconds."""

    name: str
    hash: str
    owner: str
    scopes: tuple[str, ...] = ()
    created_at: int | None = None
    expires_at: int | None = None

    @property
    def principal(self) -> str:
        """Owner of its tasks in stores."""
        return owner_of(self.owner, None, self.owner)

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= time.time() * 1000

    def line(self) -> str:
        words = [self.name, self.hash, *self.scopes]
        if self.owner != self.name:
            words.append(f"owner={self.owner}")
        times = {"created": self.created_at, "expires": self.expires_at}
        words += [f"{word}={iso(ms)}" for word, ms in times.items() if ms is not None]
        return " ".join(words) + "\n"


class TokenFile:
    """The file of bearer tokens, one per line: name, hash, scopes, and `owner=`, `created=`, `expires=`.

    `#` begins a comment. Without `owner=` the name is the owner. Hashes are plain SHA-256, so tokens must be
    long and random.

        alice   sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
        ci-bot  sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752  tasks
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()

    @classmethod
    def of(cls, settings: Settings, data_dir: Path) -> TokenFile:
        """Return the file named in the settings, or else that in the data folder."""
        return cls(settings.http.auth.tokens or data_dir / "tokens")

    def read(self) -> list[Token]:
        """Return all tokens; none without a file. Raises ConfigError, naming the line."""
        lines = self._lines()
        return [token for number, line in enumerate(lines, 1) if (token := self._token(number, line))]

    def add(
        self, owner: str, name: str | None, scopes: Sequence[str], expires_at: int | None
    ) -> tuple[Token, str]:
        """Create a token; returns its entry and the secret, which is not stored. Raises ConfigError."""
        with locked(self.path):
            taken = {token.name for token in self.read()}
            made = Token(
                _word("name", name or _free(owner, taken)),
                hash_token(secret := f"bb_{secrets.token_urlsafe(32)}"),
                _word("owner", owner),
                tuple(_word("scope", scope) for scope in scopes),
                int(time.time() * 1000),
                expires_at,
            )
            if made.name in taken:
                reason = f"a token named {made.name!r} exists already; revoke it, or use another name"
                raise ConfigError(setting=_SETTING, reason=reason)
            lines = self._lines() or [_HEADING]
            self._replace([*lines, made.line()])
        return made, secret

    def revoke(self, name: str) -> list[Token]:
        """Remove the tokens of that name. Raises UnknownToken and ConfigError."""
        with locked(self.path):
            gone = [token for token in self.read() if token.name == name]
            if not gone:
                raise UnknownToken(name=name, path=str(self.path))
            self._replace(
                [
                    line
                    for number, line in enumerate(self._lines(), 1)
                    if (token := self._token(number, line)) is None or token.name != name
                ]
            )
        return gone

    def _lines(self) -> list[str]:
        try:
            return [f"{line}\n" for line in self.path.read_text("utf-8").splitlines()]
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(setting=_SETTING, reason=str(error)) from error

    def _replace(self, lines: Sequence[str]) -> None:
        try:
            write_private(self.path, "".join(lines))
        except OSError as error:
            raise ConfigError(setting=_SETTING, reason=str(error)) from error

    def _token(self, number: int, line: str) -> Token | None:
        """Return the token on a line; None for an empty line or comment."""
        name, *words = line.partition("#")[0].split() or [""]
        if not name:
            return None
        try:
            return _token(name, words)
        except (ValueError, IndexError):
            reason = f"line {number} of {self.path} is not `name sha256:<64 hex digits> [scopes]`"
            raise ConfigError(setting=_SETTING, reason=reason) from None


def _token(name: str, words: Sequence[str]) -> Token:
    """Parse the words of a line. Raises ValueError and IndexError."""
    digest, scopes, said = words[0].lower(), [], dict.fromkeys(("owner", "created", "expires"), "")
    if len(digest) != len(hash_token("")) or not digest.startswith("sha256:"):
        raise ValueError(digest)
    for word in words[1:]:
        key, is_said, value = word.partition("=")
        if is_said and key in said:
            said[key] = value
        else:
            scopes.append(word)
    created, expires = (from_iso(said[key]) if said[key] else None for key in ("created", "expires"))
    return Token(name, digest, said["owner"] or name, tuple(scopes), created, expires)


def _free(owner: str, taken: set[str]) -> str:
    """Return a name for the owner's next token."""
    number = 1
    while (name := owner if number == 1 else f"{owner}-{number}") in taken:
        number += 1
    return name


def _word(what: str, text: str) -> str:
    if not text or "#" in text or any(char.isspace() or not char.isprintable() for char in text):
        reason = f"{text!r} is not a valid {what}: it must be one word, without #"
        raise ConfigError(setting=_SETTING, reason=reason)
    return text


logger = logging.getLogger(__name__)

_ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_SYMMETRIC = ("HS256", "HS384", "HS512")


class StaticTokens:
    """Tokens from the token file.

    A changed file is read again with the next request. If it is invalid, the error is logged and the old
    tokens stay.
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
        """Read the file again if it has changed."""
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._tokens = self._read()
        except ConfigError as error:
            logger.error("Token file could not be read; the old tokens stay valid: %s", error)
        else:
            logger.info("Read %d tokens from %s", len(self._tokens), self._file.path)

    def _stamp_now(self) -> tuple[int, ...]:
        """Return values that change with the file; empty without a file."""
        try:
            found = self._file.path.stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    async def verify_token(self, token: str) -> AccessToken | None:
        self._look_again()
        given, found = hash_token(token), None
        for known in self._tokens:  # all of them, for constant time
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
            # It may fetch keys, so not on the event loop.
            return (await asyncio.to_thread(self._fetcher.get_signing_key_from_jwt, token)).key
        return self._key_set[jwt.get_unverified_header(token).get("kid")].key


class AnyOf:
    """Accepts a token that one of the verifiers accepts."""

    def __init__(self, verifiers: Sequence[TokenVerifier]) -> None:
        self._verifiers = verifiers

    async def verify_token(self, token: str) -> AccessToken | None:
        for verifier in self._verifiers:
            found = await verifier.verify_token(token)
            if found is not None and (found.expires_at is None or found.expires_at >= time.time()):
                return found
        return None


def verifier_of(app: Backburner) -> TokenVerifier | None:
    """Return the verifier of an app's tokens; None if it has none. Raises ConfigError."""
    settings, verifiers = app.settings, list[TokenVerifier]()
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
    """Return the scopes of a claim: text separated by blanks, or a list of texts.

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
    """Return a key and its algorithms. Raises ConfigError, which never contains the key."""
    try:
        text = key if (path := _file_named(key)) is None else path.read_text("utf-8")
    except OSError as error:
        reason = f"the file that it names cannot be read: {error.strerror}"
        raise ConfigError(setting="http.auth.jwt_key", reason=reason) from None
    except UnicodeDecodeError as error:
        raise ConfigError(setting="http.auth.jwt_key", reason="the file that it names is not text") from error
    if "-----BEGIN" in text:
        return text, _ASYMMETRIC
    secret = text.strip()
    if len(secret.encode()) < 32:
        raise ConfigError(setting="http.auth.jwt_key", reason="a shared secret has at least 32 bytes")
    return secret, _SYMMETRIC


def _file_named(key: str) -> Path | None:
    """Return the file of that name; None if there is none, or the text is no file name."""
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


#: Interval of repeated checks during a long request.
_EVERY_S = 3.0

#: Returns whether a request is still authorized.
Check = Callable[[Scope], Awaitable[bool]]


def token_check(verifier: TokenVerifier) -> Check:
    """Return a check that the token is still known, with the same owner and scopes."""

    async def holds(scope: Scope) -> bool:
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            return True
        before = user.access_token
        now = await verifier.verify_token(before.token)
        return now is not None and (now.client_id, now.scopes) == (before.client_id, before.scopes)

    return holds


class Revocation:
    """Ends a stream or held call within seconds after one of the checks fails."""

    def __init__(self, app: ASGIApp, checks: list[Check]) -> None:
        self._app, self._checks = app, checks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_begun = is_ended = False

        async def note_and_send(message: Message) -> None:
            nonlocal is_begun, is_ended
            is_begun = True
            is_ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        watching: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(None) as until:

                def begin() -> None:
                    nonlocal watching
                    watching = asyncio.ensure_future(self._watch(scope, until))

                later = asyncio.get_running_loop().call_later(_EVERY_S, begin)
                try:
                    await self._app(scope, receive, note_and_send)
                finally:
                    later.cancel()
                    if watching is not None:
                        watching.cancel()
        except TimeoutError:
            if not until.expired():
                raise
            if not is_begun:
                refusal = PlainTextResponse("This token or session is not valid any more\n", 401)
                await refusal(scope, receive, send)
            elif not is_ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, scope: Scope, until: asyncio.Timeout) -> None:
        while await self._holds(scope):  # noqa: ASYNC110
            await asyncio.sleep(_EVERY_S)
        with contextlib.suppress(RuntimeError):  # the request has ended meanwhile
            until.reschedule(0)

    async def _holds(self, scope: Scope) -> bool:
        try:
            return all([await check(scope) for check in self._checks])
        except Exception:
            logger.warning("A token or session could not be verified again", exc_info=True)
            return True
