"""Launches: the environment, arguments, folder and import path that runners inherit from the submitter."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from ....core.files import locked, read_json, write_json
from ....settings import LogSettings, Settings
from ....store.protocol import Store

_PATH, _KEPT = "PYTHONPATH", "BACKBURNER_PYTHONPATH"


def environment(
    variables: Mapping[str, str] | None = None, path: Iterable[str] | None = None
) -> dict[str, str]:
    """Return an environment in which another Python has this import path; by default, this process's."""
    variables = os.environ if variables is None else variables
    folders = os.pathsep.join(folder or str(Path.cwd()) for folder in (sys.path if path is None else path))
    return {_KEPT: variables.get(_PATH, ""), **variables, _PATH: folders}


def restore_environment() -> None:
    """Restore the server's PYTHONPATH; the import path stays."""
    kept = os.environ.pop(_KEPT, None)
    if kept is not None:
        os.environ[_PATH] = kept
    if not os.environ.get(_PATH):
        os.environ.pop(_PATH, None)


log = logging.getLogger("backburner.launches")

#: Variables of terminals, sessions and service managers: another value makes no other launch. Ours count by
#: the settings that they make.
NOISE = (
    *("_", "PWD", "OLDPWD", "SHLVL", "TERM", "TERM_*", "COLORTERM", "COLUMNS", "LINES", "VTE_VERSION"),
    *("WINDOWID", "STY", "TMUX", "TMUX_*", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "GPG_TTY"),
    *("XDG_SESSION_*", "XDG_SEAT", "XDG_VTNR", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID"),
    *("NOTIFY_SOCKET", "LISTEN_*", "MAINPID", "PYTEST_*", "BACKBURNER_*"),
)

_ID = re.compile(r"[0-9a-f]{32}")
_KEY = "key.json"
_KEPT_UNUSED_S = 86400.0


@dataclass(frozen=True)
class Launch:
    """Environment for importing an app as a process of this host did; empty for the supervisor's own."""

    launch_id: str = ""
    host: str = ""
    executable: str = ""
    arguments: Sequence[str] = ()
    folder: str = ""
    path: Sequence[str] = ()
    variables: Mapping[str, str] | None = None

    @property
    def python(self) -> str:
        return self.executable or sys.executable

    def environment(self) -> dict[str, str]:
        """Return the environment for a process of this launch."""
        return dict(os.environ) if self.variables is None else environment(self.variables, self.path)

    @property
    def working_folder(self) -> str | None:
        """The folder to start that process in; None when it no longer exists."""
        return self.folder if self.folder and Path(self.folder).is_dir() else None


#: In a zygote and its runners: the launch they were started with, which their own submissions inherit.
inherited: str | None = None


def launches_folder(data_dir: Path) -> Path:
    return data_dir / "launches"


class OwnLaunch:
    """The launch of this process, written when it is first needed.

    Its file is locked, and so retained, until `close`.
    """

    def __init__(self, data_dir: Path, arguments: Sequence[str], version: str, settings: Settings) -> None:
        self._folder = launches_folder(data_dir)
        self._arguments = arguments
        self._version = version
        # The store and the logs do not affect how tasks run.
        self._settings = replace(settings, store="", data_dir="", target="", log=LogSettings()).to_json()
        self._launch_id = ""
        self._held: int | None = None

    def __call__(self) -> str:
        """Return its id; empty if its file cannot be written."""
        if inherited is not None:
            return inherited
        if self._held is None:
            try:
                self._hold(self._take())
            except OSError as error:
                log.warning(
                    "tasks get the environment of their supervisor; ours cannot be written: %s", error
                )
        return self._launch_id

    def close(self) -> None:
        """Retain the file only while tasks need it."""
        if self._held is not None:
            os.close(self._held)
            self._held, self._launch_id = None, ""

    def _hold(self, launch: Launch) -> None:
        file = self._folder / f"{launch.launch_id}.json"
        with locked(self._folder / _KEY):
            if not file.exists():
                write_json(file, asdict(launch))
            os.utime(file)
            self._held = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._held, fcntl.LOCK_SH)
        self._launch_id = launch.launch_id

    def _take(self) -> Launch:
        path = dict.fromkeys(folder or str(Path.cwd()) for folder in sys.path)
        launch = Launch(
            host=socket.gethostname(),
            executable=sys.executable or "",
            arguments=[*self._arguments],
            folder=_working_folder(),
            path=[*path],
            variables=dict(os.environ),
        )
        counts = {name: value for name, value in os.environ.items() if not _is_noise(name)}
        stands_for = [asdict(replace(launch, variables=counts)), self._version, self._settings]
        text = json.dumps(stands_for, sort_keys=True)
        digest = hmac.new(self._key(), text.encode(), hashlib.sha256).hexdigest()
        return replace(launch, launch_id=digest[:32])

    def _key(self) -> bytes:
        """Return the secret of this folder, without which values cannot be guessed from an id."""
        file = self._folder / _KEY
        with locked(file):
            if "key" not in (kept := read_json(file)):
                kept = {"key": secrets.token_hex(32)}
                write_json(file, kept)
        return bytes.fromhex(kept["key"])


class Launches:
    """Launches of a data folder, for its supervisor."""

    def __init__(self, data_dir: Path, *, own_only: bool = False) -> None:
        """`own_only`: everything runs with the supervisor's own environment."""
        self._folder = launches_folder(data_dir)
        self._own_only = own_only

    def find(self, launch_id: str) -> Launch | None:
        """Return a launch; None when it is gone or of another host."""
        if self._own_only or not _ID.fullmatch(launch_id):
            return None
        try:
            values = read_json(self._folder / f"{launch_id}.json")
            launch = Launch(**values) if values else None
        except (OSError, ValueError, TypeError) as error:
            log.warning("cannot read launch %s: %s", launch_id, error)
            return None
        return launch if launch is not None and launch.host == socket.gethostname() else None

    def prune(self, store: Store, *, now: float | None = None) -> None:
        """Remove launches that were unused for a day and that no unfinished task names.

        Raises StoreError and OSError.
        """
        before = (time.time() if now is None else now) - _KEPT_UNUSED_S
        files = [file for file in self._folder.glob("*.json") if _ID.fullmatch(file.stem)]
        if not files:
            return
        named = store.launches()
        with locked(self._folder / _KEY):
            for file in files:
                if _is_held(file):
                    os.utime(file)
                elif file.stem not in named and file.stat().st_mtime < before:
                    file.unlink()


def _is_held(file: Path) -> bool:
    with file.open() as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _is_noise(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in NOISE)


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""
