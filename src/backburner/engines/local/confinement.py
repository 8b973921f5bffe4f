"""What confines one runner, and how its process enters it, before it has a thread or a task."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import landlock

#: How a process ends that could not be confined.
NOT_CONFINED_CODE = 78

_NEW_USERS, _NEW_NETWORK = 0x10000000, 0x40000000
_SET_NO_NEW_PRIVILEGES = 38
_CAPABILITY_VERSION = 0x20080522
_SET_FLAGS, _UP = 0x8914, 0x41
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Confinement:
    """The bounds of one runner. `scratch` is the private folder of the attempt that it is for.

    `user` is a user's and a group's number. `folder` is its task's; with `own_files` it is all that
    can be written to, but `writable`, and what is `hidden` cannot even be read.
    """

    folder: str
    scratch: str
    user: tuple[int, int] | None = None
    no_new_privileges: bool = False
    own_network: bool = False
    own_files: bool = False
    writable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Confinement:
        user = values["user"]
        return cls(**{**values, "user": None if user is None else (user[0], user[1])})

    def enter(self) -> None:
        """Confine this process for good. Raises OSError, in which case it must not go on."""
        if self.own_network:
            leave_network()
        if self.user is not None:
            _become(*self.user)
        if self.no_new_privileges or self.own_files:
            _checked(_libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        if self.folder:
            self._settle()
        if self.own_files:
            landlock.restrict(
                readable=landlock.all_but(self.hidden),
                writable=[self.folder, *self.writable, *_DEVICES],
            )

    def _settle(self) -> None:
        """Where there is a folder of its own, that is the place for temporary files, and its home."""
        try:
            Path(self.scratch).mkdir(mode=0o700, exist_ok=True)
        except PermissionError as error:
            text = f"its user cannot reach {self.folder}: let others pass (chmod o+x) each folder above it"
            raise OSError(error.errno, text) from None
        os.environ["TMPDIR"] = self.scratch
        tempfile.tempdir = None  # as the app may have found it
        if self.user is not None:
            os.environ["HOME"] = self.scratch


def _become(user: int, group: int) -> None:
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def leave_network() -> None:
    """Have a network with nothing in it but a loopback. Raises OSError where that is not allowed.

    Who is not root does it as the only user of a space of its own, in which no rights are kept.
    """
    if os.geteuid() == 0:
        _checked(_libc.unshare(_NEW_NETWORK))
        _raise_loopback()
        return
    user, group = os.geteuid(), os.getegid()
    _checked(_libc.unshare(_NEW_USERS | _NEW_NETWORK))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _raise_loopback()
    nothing = struct.pack("6I", *[0] * 6)
    _checked(_libc.capset(struct.pack("Ii", _CAPABILITY_VERSION, 0), nothing))


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH22x", b"lo", _UP))


def _checked(done: int) -> None:
    if done != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
