"""What Linux is asked about processes: dying with a parent, taking orphans in, killing whole families."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

#: In the environment of every process that a supervisor has to do with.
SUPERVISOR_VARIABLE = "BACKBURNER_SUPERVISOR"
#: In the environment of a runner's children.
RUNNER_VARIABLE = "BACKBURNER_RUNNER"

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def die_with_parent(parent: int) -> None:
    """Be killed when the parent dies, even if it is dead already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that none gets away."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_group(group: int, signal_number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal_number)


def kill_tagged(variable: str, value: str) -> int:
    """Kill every process that was started with `variable=value` in its environment; how many there were."""
    killed = 0
    for pid in tagged(variable, value):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed


def tagged(variable: str, value: str) -> Iterator[int]:
    """The processes, but this one, that were started with `variable=value` in their environment."""
    wanted = f"{variable}={value}".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    yield int(entry)


def group_memory_mb(group: int) -> float:
    """The resident memory of a process group."""
    pages = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # The name in parentheses may hold anything; what follows it is plain.
                fields = Path("/proc", entry, "stat").read_text("latin-1").rpartition(")")[2].split()
                if int(fields[2]) == group:
                    pages += int(fields[21])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1024 * 1024)


def folder_size_mb(folder: Path) -> float:
    """What a folder holds; what vanishes meanwhile does not count."""
    total = 0
    stack = [str(folder)]
    while stack:
        with contextlib.suppress(OSError), os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total / (1024 * 1024)
