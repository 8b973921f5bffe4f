"""Real services for the tests, each private to the run that started it."""

import asyncio
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest

T = TypeVar("T")

#: Main processes of the services now running. They and their children belong to fixtures, not to the test
#: that first asked.
running: set[int] = set()


def wait_until(condition: Callable[[], object], *, within: float = 30) -> bool:
    """Whether `condition` became true within that many seconds."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def ended(process: psutil.Process, *, within: float = 20) -> bool:
    """Whether it ends within that many seconds; what only waits to be buried has ended.

    An orphan is buried by the machine's first process, which may take seconds over it.
    """

    def over() -> bool:
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                return False
            if process.ppid() == os.getpid():
                process.wait(0)
        except psutil.TimeoutExpired:  # some of its threads are still there
            return False
        except psutil.NoSuchProcess:
            pass
        return True

    return wait_until(over, within=within)


async def until(condition: Callable[[], T], *, within: float = 30) -> T:
    """What `condition` gives, as soon as it gives something; the test fails when that takes longer."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)
    return found


def unavailable(reason: str) -> NoReturn:
    """Skip the test, or fail it under CI=true, where every service must be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class PostgresServer:
    """A PostgreSQL server on a free loopback port, with its data in a temporary directory.

    Unless it is told otherwise, its settings are the defaults, so an acknowledged commit is on disk. The port
    and the data stay the same over `stop`, `kill` and `start`; `close` ends it and removes the data.
    """

    def __init__(self, *, durable: bool = True, addresses: Sequence[str] = ()) -> None:
        """One that is not `durable` would not survive a power cut, and makes databases much faster.

        At `addresses` of this machine it serves their three neighbours, too.
        """
        self._durable = durable
        self._addresses = addresses
        self._bin = _postgres_binaries()
        self._user = _unprivileged_user()
        # Not under pytest's own temporary directory, which the unprivileged user may not enter.
        self._directory = Path(tempfile.mkdtemp(prefix="backburner-postgres-"))
        self._data = self._directory / "data"
        self._log = self._directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        try:
            self._initialise()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The number of its main process."""
        assert self._process is not None, "not running"
        return self._process.pid

    def start(self) -> None:
        """Start the server and return when it accepts connections."""
        assert self._process is None, "already running"
        command = [f"{self._bin}/postgres", "-D", str(self._data)]
        settings = {
            "port": self.port,
            "listen_addresses": ",".join(["127.0.0.1", *self._addresses]),
            "unix_socket_directories": "",
            "max_connections": 200,
            **({} if self._durable else {"fsync": "off", "full_page_writes": "off"}),
        }
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        if setpriv := shutil.which("setpriv"):
            # So that the server stops even when the test process is killed and no fixture can end.
            command = [setpriv, "--pdeathsig", "INT", "--", *command]
        with self._log.open("ab") as log:
            self._process = self._spawn(command, log.fileno())
        running.add(self._process.pid)
        process = self._process
        if (
            not wait_until(lambda: process.poll() is not None or self._accepts())
            or process.poll() is not None
        ):
            self.kill()
            raise RuntimeError(f"PostgreSQL did not start:\n{self._log.read_text()[-2000:]}")

    def stop(self) -> None:
        """End every connection and shut down in order. Harmless when it is not running."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
            self.kill()

    def kill(self) -> None:
        """End all its processes at once, as a power cut does. Harmless when it is not running."""
        if self._process is not None:
            doomed: list[psutil.Process] = []
            with contextlib.suppress(psutil.NoSuchProcess):
                doomed = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            for process in doomed:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.wait()
            for process in doomed:
                ended(process, within=10)
            running.discard(self._process.pid)
            self._process = None

    def restart(self) -> None:
        """Stop in order, and start again on the same port."""
        self.stop()
        self.start()

    def crash(self) -> None:
        """Be killed, and start again on the same port."""
        self.kill()
        self.start()

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"backburner_{uuid.uuid4().hex}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    def close(self) -> None:
        """Stop for good and remove the data."""
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _initialise(self) -> None:
        if self._user:
            shutil.chown(self._directory, self._user)
        self._log.touch()
        command = [f"{self._bin}/initdb", "-D", str(self._data), "--username=postgres", "--auth=trust"]
        command += ["--encoding=UTF8", "--locale=C", "--no-sync"]
        with self._log.open("ab") as log:
            if self._spawn(command, log.fileno()).wait():
                raise RuntimeError(f"initdb failed:\n{self._log.read_text()[-2000:]}")
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.writelines(f"host all all {address}/30 trust\n" for address in self._addresses)

    def _spawn(self, command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        account = pwd.getpwnam(self._user) if self._user else None
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=self._directory,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            user=account and account.pw_uid,
            group=account and account.pw_gid,
            extra_groups=[] if account else None,
            start_new_session=True,  # Ctrl-C is for the tests; the fixtures then stop the server
        )

    def _accepts(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


@contextlib.contextmanager
def postgres_database(server_url: str) -> Iterator[str]:
    """Make an empty database and yield its URL; drop it afterwards with whatever is still connected to it."""
    name = f"backburner_{uuid.uuid4().hex}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield urlsplit(server_url)._replace(path=f"/{name}").geturl()
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


class RedisServer:
    """A Redis server on a free loopback port that keeps nothing on disk, or all that it has answered."""

    def __init__(self, *, durable: bool = False) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            unavailable("Redis is not installed: on Debian, `apt-get install redis-server`")
        self._directory = tempfile.mkdtemp(prefix="backburner-redis-")
        self._command = [binary, "--bind", "127.0.0.1", "--save", "", "--dir", self._directory]
        self._command += ["--appendonly", "yes" if durable else "no", "--appendfsync", "always"]
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return self._process.pid

    def start(self) -> None:
        """Start the server and return when it accepts connections."""
        self._process = subprocess.Popen(
            [*self._command, "--port", str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        running.add(self._process.pid)
        assert wait_until(lambda: accepts(self.port)), "Redis did not start"

    def restart(self) -> None:
        """Stop, and start again on the same port: with nothing, unless it is durable."""
        self._stop()
        self.start()

    def flush(self) -> None:
        """Have it forget everything."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            assert connection.recv(64) == b"+OK\r\n"

    def close(self) -> None:
        self._stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            running.discard(self._process.pid)
            self._process = None


class RabbitServer:
    """A RabbitMQ server on a free loopback port, with its data and its port mapper of its own.

    The port and the data stay the same over `stop` and `start`; `close` ends it and removes the data.
    """

    def __init__(self) -> None:
        script = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        epmd = shutil.which("epmd")
        if not script.exists() or epmd is None:
            unavailable("RabbitMQ is not installed: on Debian, `apt-get install rabbitmq-server`")
        self._script, self._epmd = str(script), epmd
        self._directory = Path(tempfile.mkdtemp(prefix="backburner-rabbitmq-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"
        (self._directory / "plugins").write_text("[].")
        (self._directory / "rabbitmq.conf").write_text(f"listeners.tcp.local = 127.0.0.1:{self.port}\n")
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._directory),
            "LC_ALL": "C",
            "ERL_EPMD_PORT": str(free_port()),
            "RABBITMQ_NODENAME": f"backburner{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": f"{self._directory}/data",
            "RABBITMQ_LOG_BASE": f"{self._directory}/log",
            "RABBITMQ_CONFIG_FILE": f"{self._directory}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{self._directory}/plugins",
            # One thread of Erlang, that sleeps when there is nothing to do: it starts with less work.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        }

    @property
    def pid(self) -> int:
        """The number of its main process."""
        return self._processes[-1].pid

    def start(self) -> None:
        """Start the server and return when it accepts connections."""
        mapper = [self._epmd, "-address", "127.0.0.1", "-port", self._environment["ERL_EPMD_PORT"]]
        for command in (mapper, [self._script]):
            if setpriv := shutil.which("setpriv"):
                command = [setpriv, "--pdeathsig", "TERM", "--", *command]
            with (self._directory / "output").open("ab") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self._directory,
                    env=self._environment,
                    start_new_session=True,
                )
            self._processes.append(process)
            running.add(process.pid)
        if not wait_until(lambda: process.poll() is not None or accepts(self.port), within=60):
            raise RuntimeError(f"RabbitMQ did not start:\n{(self._directory / 'output').read_text()[-2000:]}")

    def stop(self) -> None:
        """End it. What was on its disk is there when it starts again."""
        while self._processes:
            process = self._processes.pop()
            process.terminate()
            process.wait(60)
            running.discard(process.pid)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


Server = TypeVar("Server", PostgresServer, RedisServer, RabbitServer)


@contextlib.contextmanager
def started(server: Server) -> Iterator[Server]:
    """The server, running; it is closed also when it does not come up."""
    try:
        server.start()
        yield server
    finally:
        server.close()


class WallClock:
    """A wall clock for processes that tests start, which jumps when it is told to: libfaketime.

    Clocks that cannot be set go on as they do.
    """

    #: Where the monotonic clock is left alone, libfaketime breaks the call by which Python sleeps.
    _SLEEP = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds) and None\n"

    def __init__(self, folder: Path) -> None:
        library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
        if library is None:
            unavailable("libfaketime is not installed: `make services` as root")
        self._folder = folder / "wall-clock"
        self._folder.mkdir()
        (self._folder / "sitecustomize.py").write_text(self._SLEEP)
        self._offset = self._folder / "offset"
        self.set(0)
        self._environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def show_to_children(self, patch: pytest.MonkeyPatch) -> None:
        """Let processes that are started under this patch go by it."""
        patch.syspath_prepend(str(self._folder))
        for name, value in self._environment.items():
            patch.setenv(name, value)

    def set(self, hours: float) -> None:
        """Be so many hours ahead of the true time from now on."""
        new = self._offset.with_suffix(".new")
        new.write_text(f"{hours * 3600:+.0f}\n")
        new.replace(self._offset)


def _postgres_binaries() -> Path:
    """The directory of initdb and postgres, which Debian keeps off the PATH."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name))
    if on_path := shutil.which("initdb"):
        candidates.insert(0, Path(on_path).resolve().parent)
    if pg_config := shutil.which("pg_config"):
        bindir = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        candidates.append(Path(bindir.stdout.strip()))
    for directory in candidates:
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            return directory
    unavailable("PostgreSQL is not installed: `make services` as root, or set BACKBURNER_TEST_POSTGRES_URL")


def _unprivileged_user() -> str | None:
    """Whom to run the server as: PostgreSQL refuses root. None means the present user."""
    if os.geteuid() != 0:
        return None
    accounts = {account.pw_name for account in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in accounts)


def accepts(port: int | str) -> bool:
    """Whether somebody on this host takes connections there."""
    try:
        socket.create_connection(("127.0.0.1", int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """One that stays free until it is used: the kernel gives it to nobody, nor do the tests beside us."""
    mine = 10_000 + 2_500 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8)
    while True:
        port = mine + secrets.randbelow(2_500)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
