"""Linux process functions: parents and orphans, killing process trees, memory and disk use."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: In the environment of every process of a supervisor.
SUPERVISOR_VARIABLE = "BACKBURNER_SUPERVISOR"

#: A device and the number of a file on it.
FileId = tuple[int, int]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MB = 1024 * 1024
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, even if that has died already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def outlive_parent() -> None:
    """Undo `die_with_parent`."""
    _prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_group(group: int, signal_number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal_number)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def end_children(spare: Collection[int] = ()) -> None:
    """Kill and reap every child of this process, except those to spare, and their orphans.

    For a process that adopts orphans: no descendant escapes, whatever group or session it has.
    """
    while doomed := children() - set(spare):
        for pid in doomed:
            kill(pid)
        for pid in doomed:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def end_tagged(variable: str, value: str, *, patience_s: float = 1.0, give_up_s: float = 10.0) -> bool:
    """Wait until no process is left that was started with `variable=value`; kill them after `patience_s`.

    Returns False when some are left in the end: they hang in the kernel.
    """
    began = time.monotonic()
    while pids := _tagged(variable, value):
        waited_s = time.monotonic() - began
        if waited_s > give_up_s:
            return False
        if waited_s > patience_s:
            for pid in pids:
                kill(pid)
        time.sleep(0.005)
    return True


def signal_process(pid: int, started: int | None, *numbers: int, wait_s: float = 0.0) -> bool:
    """Send signals to the process with this pid and start time; return whether it has ended in time.

    False also when there is none: it may be in another PID namespace.
    """
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if started_at(pid) != started:
            return False
        for number in numbers:
            signal.pidfd_send_signal(handle, number)
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        return bool(poller.poll(wait_s * 1000))
    except OSError:
        return False
    finally:
        os.close(handle)


def end_process(pid: int, started: int, *, give_up_s: float = 5.0) -> bool:
    """Kill a process; return whether it has ended. See `signal_process`."""
    return signal_process(pid, started, signal.SIGKILL, wait_s=give_up_s)


def _tagged(variable: str, value: str) -> list[int]:
    wanted = f"{variable}={value}".encode()
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if pid != os.getpid() and wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def who_has_open(path: Path) -> list[int]:
    """Return the other processes that have a file open, as far as this user may see."""
    found = []
    wanted = path.stat()
    for pid in _pids():
        with contextlib.suppress(OSError):
            opened = [entry.stat() for entry in os.scandir(f"/proc/{pid}/fd") if _is_file(entry)]
            if pid != os.getpid() and any(os.path.samestat(wanted, one) for one in opened):
                found.append(pid)
    return found


def _is_file(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return entry.is_file()
    return False


def started_at(pid: int) -> int | None:
    """Return the start time of a process, in ticks since the boot; unique together with the pid."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def is_running(pid: int, started: int | None) -> bool:
    """Return whether the process with this pid and start time exists."""
    return started_at(pid) == started


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped by a signal."""
    fields = _stat(pid)
    return fields is not None and fields[0] in ("T", "t")


def children() -> set[int]:
    """Return the children of this process, zombies included."""
    try:  # exact as long as none is reaped meanwhile; listing all processes takes milliseconds
        lists = [Path(f"/proc/self/task/{thread}/children") for thread in os.listdir("/proc/self/task")]
        return {int(pid) for children in lists for pid in children.read_text().split()}
    except OSError:  # a thread that has just ended, or a kernel without these lists
        return {pid for pid, (parent, _) in _families().items() if parent == os.getpid()}


def has_children() -> bool:
    """Return whether this process has a child, zombies included."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / _MB
    return 0.0


@dataclass(frozen=True, slots=True)
class Use:
    """Memory, and disk space of unlinked files, that a process tree uses, in MB."""

    memory_mb: float
    unlinked_mb: float


def family_use(pid: int, known: Collection[FileId] = ()) -> Use:
    """Return what a process and its descendants use, without the files that are `known`.

    Memory includes open files of memfd_create and /dev/shm, which count once, mapped or not.
    """
    families = _families()
    family, size = {pid}, 0
    while len(family) > size:
        size = len(family)
        family |= {child for child, (parent, _) in families.items() if parent in family}
    resident = sum(pages for member, (_, pages) in families.items() if member in family) * _PAGE
    open_files = {one: found for one, found in hidden_files(family).items() if one not in known}
    in_memory = sum(size for (device, _), size in open_files.items() if device in _memory_devices())
    mapped = sum(map(_shared_memory, family))
    unlinked = sum(open_files.values()) - in_memory
    return Use((resident - mapped + max(mapped, in_memory)) / _MB, unlinked / _MB)


def hidden_files(pids: Collection[int]) -> dict[FileId, int]:
    """Return the size of each open file of these processes that is unlinked or in memory.

    Processes that may not be inspected are left out.
    """
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    file = entry.stat()
                    hidden = file.st_nlink == 0 or file.st_dev in _memory_devices()
                    if hidden and stat.S_ISREG(file.st_mode):
                        found[file.st_dev, file.st_ino] = file.st_blocks * 512
    return found


@cache
def _memory_devices() -> frozenset[int]:
    devices = set()
    with contextlib.suppress(OSError):
        devices.add(Path("/dev/shm").stat().st_dev)
    with contextlib.suppress(OSError, AttributeError):
        file = os.memfd_create("backburner")
        devices.add(os.fstat(file).st_dev)
        os.close(file)
    return frozenset(devices)


def _shared_memory(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text("latin-1").splitlines():
            if line.startswith("RssShmem:"):
                return int(line.split()[1]) * 1024
    return 0


def _families() -> dict[int, tuple[int, int]]:
    """Return the parent and the resident pages of every process."""
    found = {}
    for pid in _pids():
        if (fields := _stat(pid)) is not None:
            found[pid] = int(fields[1]), int(fields[21])
    return found


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on; None when there is no such process."""
    try:
        # The name in parentheses may contain anything.
        fields = Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > 21 else None


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def folder_size(folder: Path) -> int:
    """Return the bytes of all files below a folder, without following links."""
    total = 0
    stack: list[tuple[str, FileId | None]] = [(str(folder), None)]
    while stack:
        path, seen = stack.pop()
        for name, found in _entries(path, seen):
            if stat.S_ISDIR(found.st_mode):
                stack.append((f"{path}/{name}", _file_id(found)))
            else:
                total += found.st_size
    return total


def _entries(path: str, seen: FileId | None) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the entries of a folder, unless it is another one than was `seen` in its parent."""
    try:
        place = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if seen is None or seen == _file_id(os.fstat(place)):
            with os.scandir(place) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        yield entry.name, entry.stat(follow_symlinks=False)
    finally:
        os.close(place)


def _file_id(found: os.stat_result) -> FileId:
    return found.st_dev, found.st_ino
