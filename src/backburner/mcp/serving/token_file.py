"""The file of named bearer tokens: their hashes, owners, scopes and times, a token on each line."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...config import Settings
from ...errors import ConfigError, UnknownToken
from ...json_file import locked, write_private
from ...short_names import owner_of
from ...times import from_iso, iso

_HEADING = "# Bearer tokens; `backburner token` writes this file. Only hashes are kept.\n"
_SETTING = "http.auth.tokens"


def hash_token(token: str) -> str:
    """How a token is written in the file."""
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
        """The owner of its tasks, as stores have it."""
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
    """The tokens that may come in.

    One token a line: its name, blanks, its hash as `hash_token` makes it, then perhaps scopes, and
    `owner=`, `created=` and `expires=`; `#` begins a comment. Without `owner=` the name is the owner.
    Tokens must be long and random, for the hash is plain SHA-256.

        alice   sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
        ci-bot  sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752  tasks
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()

    @classmethod
    def of(cls, settings: Settings, data_dir: Path) -> TokenFile:
        """The one that the settings name, else the one in the data folder."""
        return cls(settings.http.auth.tokens or data_dir / "tokens")

    def read(self) -> list[Token]:
        """All of them; none if there is no file. Raises ConfigError, naming the line."""
        lines = self._lines()
        return [token for number, line in enumerate(lines, 1) if (token := self._token(number, line))]

    def add(
        self, owner: str, name: str | None, scopes: Sequence[str], expires_at: int | None
    ) -> tuple[Token, str]:
        """Make a token; what is kept of it, and the token itself, which is not. Raises ConfigError."""
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
                reason = f"there is a token named {made.name!r} already; revoke it, or use another name"
                raise ConfigError(setting=_SETTING, reason=reason)
            lines = self._lines() or [_HEADING]
            self._replace([*lines, made.line()])
        return made, secret

    def revoke(self, name: str) -> list[Token]:
        """Forget the tokens of that name. Raises UnknownToken, and ConfigError."""
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
        """The token on a line; None on one that is empty or a comment."""
        name, *words = line.partition("#")[0].split() or [""]
        if not name:
            return None
        try:
            return _token(name, words)
        except (ValueError, IndexError):
            reason = f"line {number} of {self.path} is not `name sha256:<64 hex digits> [scopes]`"
            raise ConfigError(setting=_SETTING, reason=reason) from None


def _token(name: str, words: Sequence[str]) -> Token:
    """The token of a line's words. Raises ValueError and IndexError."""
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
    """A name for the next token of an owner."""
    number = 1
    while (name := owner if number == 1 else f"{owner}-{number}") in taken:
        number += 1
    return name


def _word(what: str, text: str) -> str:
    if not text or "#" in text or any(char.isspace() or not char.isprintable() for char in text):
        reason = f"{text!r} is no {what}: it must be one word, without #"
        raise ConfigError(setting=_SETTING, reason=reason)
    return text
