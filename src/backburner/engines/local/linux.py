"""What Linux is asked about processes: dying with a parent, taking orphans in, ending whole families."""

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

#: In the environment of every process that a supervisor has to do with.
SUPERVISOR_VARIABLE = "BACKBURNER_SUPERVISOR"

#: A device and the number of a file on it.
FileId = tuple[int, int]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MB = 1024 * 1024
_prctl = ctypes.CDLL(None, use_errno=True).prctl


# -- who dies with whom ----------------------------------------------------------------------------


def die_with_parent(parent: int) -> None:
    """Be killed when the parent dies, even if it is dead already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def outlive_parent() -> None:
    """Take `die_with_parent` back."""
    _prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that none gets away."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


# -- ending --------------------------------------------------------------------------------------


def kill_group(group: int, signal_number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal_number)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def end_children(spare: Collection[int] = ()) -> None:
    """Kill and bury every child of this process but those to spare, and what they leave behind.

    For a process that adopts orphans: then no descendant gets away, whatever group, session or
    environment it has made for itself.
    """
    while doomed := children() - set(spare):
        for pid in doomed:
            kill(pid)
        for pid in doomed:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def end_tagged(variable: str, value: str, *, patience_s: float = 1.0, give_up_s: float = 10.0) -> bool:
    """Wait until no process is left that was started with `variable=value` in its environment.

    They have `patience_s` to end by themselves and are killed then. False when some are left even
    so, which nothing but the kernel can keep alive.
    """
    began = time.monotonic()
    while pids := tagged(variable, value):
        waited_s = time.monotonic() - began
        if waited_s > give_up_s:
            return False
        if waited_s > patience_s:
            for pid in pids:
                kill(pid)
        time.sleep(0.005)
    return True


def signal_process(pid: int, started: int | None, *numbers: int, wait_s: float = 0.0) -> bool:
    """Send signals to the process that has this pid and began at that moment; whether it is gone by then.

    False also when there is none: it may be one that is not to be seen from here.
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
    """Kill a process; whether it is gone then. As `signal_process`."""
    return signal_process(pid, started, signal.SIGKILL, wait_s=give_up_s)


# -- looking -------------------------------------------------------------------------------------


def tagged(variable: str, value: str) -> list[int]:
    """The processes, but this one, that were started with `variable=value` in their environment."""
    wanted = f"{variable}={value}".encode()
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if pid != os.getpid() and wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def who_has_open(path: Path) -> list[int]:
    """The processes, but this one, that have a file open, as far as this user may see."""
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
    """When a process began, in ticks since the boot; None when there is none. With the pid, it is unique."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def is_running(pid: int, started: int | None) -> bool:
    """Whether the process that has this pid and began at that moment is there."""
    return started_at(pid) == started


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal, and not continued."""
    fields = _stat(pid)
    return fields is not None and fields[0] in ("T", "t")


def children() -> set[int]:
    """The children of this process, dead ones that nobody has waited for included."""
    try:  # exact as long as none is waited for meanwhile; a look at all processes takes milliseconds
        lists = [Path(f"/proc/self/task/{thread}/children") for thread in os.listdir("/proc/self/task")]
        return {int(pid) for children in lists for pid in children.read_text().split()}
    except OSError:  # a thread that has just ended, or a kernel without these lists
        return {pid for pid, (parent, _) in _families().items() if parent == os.getpid()}


def has_children() -> bool:
    """Whether this process has a child, dead or alive."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def memory_mb(pid: int) -> float:
    """The resident memory of a process."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / _MB
    return 0.0


@dataclass(frozen=True, slots=True)
class Use:
    """What a family of processes uses: memory, and disk space of files without a name, in MB."""

    memory_mb: float
    unlinked_mb: float


def family_use(pid: int, known: Collection[FileId] = ()) -> Use:
    """What a process and all its descendants use, but for the open files that are known.

    Memory is what is resident, and files in memory that a process has open: those of memfd_create, and
    those in /dev/shm. They count once, whether they are mapped or not.
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
    """The bytes of each file that these processes have open and that no folder of theirs shows.

    That is a file without a name, or one in memory. A process that may not be looked into shows none.
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
    """The file systems of files in memory."""
    devices = set()
    with contextlib.suppress(OSError):
        devices.add(Path("/dev/shm").stat().st_dev)
    with contextlib.suppress(OSError, AttributeError):
        file = os.memfd_create("backburner")
        devices.add(os.fstat(file).st_dev)
        os.close(file)
    return frozenset(devices)


def _shared_memory(pid: int) -> int:
    """The bytes of files in memory that are resident in a process."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text("latin-1").splitlines():
            if line.startswith("RssShmem:"):
                return int(line.split()[1]) * 1024
    return 0


def _families() -> dict[int, tuple[int, int]]:
    """Every process: its parent and its resident pages."""
    found = {}
    for pid in _pids():
        if (fields := _stat(pid)) is not None:
            found[pid] = int(fields[1]), int(fields[21])
    return found


def _stat(pid: int) -> list[str] | None:
    """What the kernel says of a process, from its state on; None when there is none."""
    try:
        # The name in parentheses may hold anything; what follows it is plain.
        fields = Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > 21 else None


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def folder_size(folder: Path) -> int:
    """The bytes of all that is in a folder; what vanishes meanwhile does not count.

    No link is followed: a folder counts only if it is the one that was seen in the folder above it.
    """
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
    """What is in a folder; nothing if it is another than the one that was seen, or gone."""
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
