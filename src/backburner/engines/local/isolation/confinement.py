"""Confinement of one runner process: Landlock, user, network and limits."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

#: Exit code of a process that could not be confined.
NOT_CONFINED_CODE = 78

_NEW_USERS, _NEW_NETWORK = 0x10000000, 0x40000000
_SET_NO_NEW_PRIVILEGES = 38
_CAPABILITY_VERSION = 0x20080522
_SET_FLAGS, _UP = 0x8914, 0x41
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Confinement:
    """Confinement of one runner. `folder` is that of its task, `scratch` the private one of its attempt.

    `user` is a user's and a group's id. With `own_files`, only `folder` and `writable` can be written to,
    and `hidden` cannot be read.
    """

    folder: str
    scratch: str
    user: tuple[int, int] | None = None
    no_new_privileges: bool = False
    own_network: bool = False
    own_files: bool = False
    writable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def enter(self) -> None:
        """Confine this process for good. After an OSError it must exit."""
        if self.own_network:
            leave_network()
        if self.user is not None:
            _become(*self.user)
        if self.no_new_privileges or self.own_files:
            _checked(_libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        if self.folder:
            self._settle()
        if self.own_files:
            restrict(
                readable=all_but(self.hidden),
                writable=[self.folder, *self.writable, *_DEVICES],
            )

    def _settle(self) -> None:
        """Use the scratch folder for temporary files, and as the home of another user."""
        try:
            Path(self.scratch).mkdir(mode=0o700, exist_ok=True)
        except PermissionError as error:
            text = f"its user cannot reach {self.folder}: let others pass (chmod o+x) each folder above it"
            raise OSError(error.errno, text) from None
        os.environ["TMPDIR"] = self.scratch
        tempfile.tempdir = None  # the app may have set it
        if self.user is not None:
            os.environ["HOME"] = self.scratch


def _become(user: int, group: int) -> None:
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def leave_network() -> None:
    """Enter a network with nothing but a loopback. Raises OSError where that is not allowed.

    Without root it takes a user namespace, in which the process keeps no rights.
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


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_UP_TO_TRUNCATE = (1 << 15) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_SCOPE_SIGNALS = 1 << 1

#: The first Landlock version (of Linux 6.2) that restricts truncation. Devices are distinguished from the
#: fifth on, and signals restricted from the sixth.
OLDEST_VERSION = 3
_WITH_DEVICES, _WITH_SIGNALS = 5, 6


def version() -> int:
    """Return the kernel's Landlock version; 0 for none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))


def restrict(*, readable: Collection[str], writable: Collection[str]) -> None:
    """Restrict this process and its children to files below these paths, and to signals among themselves.

    To be called while there is one thread. Needs `no_new_privileges` or root. Raises OSError.
    """
    known = version()
    everything = _UP_TO_TRUNCATE | (_IOCTL_DEVICE if known >= _WITH_DEVICES else 0)
    # The kernel rejects attributes that it does not know, so they are cut to its size.
    attributes = struct.pack("QQQ", everything, 0, _SCOPE_SIGNALS if known >= _WITH_SIGNALS else 0)
    size = 24 if known >= _WITH_SIGNALS else 8
    ruleset = _call(_CREATE_RULESET, attributes, size, 0)
    try:
        for paths, access in ((readable, _READING), (writable, everything)):
            for path in paths:
                _allow(ruleset, path, access & everything)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    """Add a rule for a path, unless it is gone or cannot be reached."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        kind = os.fstat(place).st_mode
        if stat.S_ISLNK(kind):  # its target has a rule of its own, or none
            return
        allowed = access if stat.S_ISDIR(kind) else access & _OF_FILES
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", allowed, place), 0)
    finally:
        os.close(place)


def _call(number: int, *arguments: int | bytes) -> int:
    done = int(_libc.syscall(number, *arguments))
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return done


def all_but(hidden: Collection[str]) -> list[str]:
    """Return paths that cover everything except the hidden ones, which must be real paths.

    Files that are created later beside the way to a hidden path are not covered.
    """
    return list(_beside("/", {path.rstrip("/") for path in hidden}))


def _beside(folder: str, hidden: Collection[str]) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.path in hidden:
            continue
        if any(path.startswith(entry.path + "/") for path in hidden):
            yield from _beside(entry.path, hidden)
        else:
            yield entry.path
