"""Hosts on this machine: network namespaces, each with a cable to it that a test can pull out."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests import services
from tests.contracts import engine_tools
from tests.deployment import foreign_environment

APP = f"{engine_tools.__file__}:app"
WORKER = [str(Path(sys.executable).with_name("backburner")), "worker", APP]
#: So that it ends even when the test process is killed and no fixture can.
_TIED = ["setpriv", "--pdeathsig", "KILL", "--"]


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


class Host:
    """A network namespace, and the supervisor in it. What it sends while it is cut off is lost."""

    def __init__(self, name: str, number: int, folder: Path) -> None:
        """`number` is its own on this machine."""
        self.name = f"bb{os.getpid()}-{name}"
        self._cable = f"bb{os.getpid()}-{number}"
        self._network = f"10.{100 + os.getpid() // 250 % 100}.{os.getpid() % 250}.{4 * number}"
        self.folder = folder
        self._worker: subprocess.Popen[bytes] | None = None
        own, mine = self._addresses
        ip("netns", "add", self.name)
        ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("addr", "add", f"{mine}/30", "dev", self._cable)
        ip("link", "set", self._cable, "up")
        ip("-n", self.name, "addr", "add", f"{own}/30", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", self.name, "link", "set", device, "up")

    @property
    def _addresses(self) -> tuple[str, str]:
        before, _, last = self._network.rpartition(".")
        return f"{before}.{int(last) + 2}", f"{before}.{int(last) + 1}"

    @property
    def way_out(self) -> str:
        """The address of this machine for it."""
        return self._addresses[1]

    def start(self, store: str, settings: dict[str, str], *queues: str) -> None:
        """Start a supervisor, which works when this returns. `store` is as this machine has it."""
        environment = {
            **foreign_environment(),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "BACKBURNER_DATA_DIR": str(self.folder),
            **{f"BACKBURNER_{name.upper()}": value for name, value in settings.items()},
        }
        options = [word for queue in queues for word in ("--queue", queue)]
        store = store.replace("127.0.0.1", self.way_out)
        with (self.folder / "worker.log").open("ab") as log:
            began = log.tell()
            self._worker = subprocess.Popen(
                [*_TIED, "ip", "netns", "exec", self.name, *WORKER, "--store", store, *options],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        services.running.add(self._worker.pid)
        said = self.folder / "worker.log"
        assert services.wait_until(lambda: " works on " in said.read_text()[began:]), said.read_text()

    @property
    def supervisor(self) -> psutil.Process:
        assert self._worker is not None, "not started"
        return psutil.Process(self._worker.pid)

    def runners(self) -> list[psutil.Process]:
        """The processes in which tools run."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [runner for zygote in self.supervisor.children() for runner in zygote.children()]
        return []

    def cut(self) -> None:
        ip("link", "set", self._cable, "down")

    def join(self) -> None:
        ip("link", "set", self._cable, "up")

    def kill(self) -> None:
        """End all that runs there at once, as a power cut does. Harmless when nothing does."""
        for pid in ip("netns", "pids", self.name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if self._worker is not None:
            self._worker.wait()
            services.running.discard(self._worker.pid)
            self._worker = None

    def close(self) -> None:
        self.kill()
        ip("link", "del", self._cable)
        ip("netns", "del", self.name)


@contextlib.contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[Host, Host]]:
    """Two of them, with data folders of their own; the files of tasks are in `folder/tasks` for both."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        services.unavailable("network namespaces need root and `ip`: on Debian, `apt-get install iproute2`")
    (folder / "tasks").mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        hosts = []
        for number, name in enumerate(["one", "two"]):
            own = folder / name
            own.mkdir()
            (own / "tasks").symlink_to(folder / "tasks")
            try:
                host = Host(name, number, own)
            except subprocess.CalledProcessError as error:
                services.unavailable(f"no network namespace can be made here: {error.stderr}")
            stack.callback(host.close)
            hosts.append(host)
        yield hosts[0], hosts[1]
