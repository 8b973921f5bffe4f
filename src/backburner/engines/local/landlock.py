"""Landlock: a process gives up, for good, files that it could use otherwise. No rights are needed for it."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Collection, Iterator

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_UP_TO_TRUNCATE = (1 << 15) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_SCOPE_SIGNALS = 1 << 1

#: The first version (of Linux 6.2) that keeps files from being emptied. Devices are told apart from the
#: fifth on, and signals to others stopped from the sixth.
OLDEST_VERSION = 3
_WITH_DEVICES, _WITH_SIGNALS = 5, 6

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Which version the kernel has; 0 for none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))


def restrict(*, readable: Collection[str], writable: Collection[str]) -> None:
    """Let this process, and all that it starts, use files below these paths alone; signals stay among them.

    To be called while there is one thread. Takes `no_new_privileges` or root. Raises OSError.
    """
    known = version()
    everything = _UP_TO_TRUNCATE | (_IOCTL_DEVICE if known >= _WITH_DEVICES else 0)
    # What a kernel does not know of, it must not be told about: so it is told up to its own size.
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
    """What is gone meanwhile, or may not be reached, needs no rule."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        kind = os.fstat(place).st_mode
        if stat.S_ISLNK(kind):  # where it leads there are rules of its own, or none
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
    """Paths that together hold everything there is but the hidden ones, which must be real paths.

    What comes to be later beside the way to a hidden path is not among it.
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
