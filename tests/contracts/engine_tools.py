"""The app whose tools the engine contract runs. Runners import this file by its path."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from backburner.app import Backburner
from backburner.core.retry import Retry
from backburner.errors import ProtocolError
from backburner.tools.context import TaskContext

NAME = "engine_contract"
#: By its path, because workers of brokers and jobs may lack the repository on their import path.
TARGET = f"file:{Path(__file__).resolve()}#{NAME}"
QUEUES = {"cpu_standard": 2, "one_by_one": 1}
CANCEL_GRACE_S = 1.5
MAX_LOG_BYTES = 2_000_000

app = Backburner(NAME, queues=QUEUES)


def contract_app(
    *, supervisor: Mapping[str, Any] | None = None, limits: Mapping[str, Any] | None = None, **settings: Any
) -> Backburner:
    """Return an app with the suite's tools and these settings, which any process can load."""
    given = {
        "queues": QUEUES,
        "supervisor": {"cancel_grace_s": CANCEL_GRACE_S, **(supervisor or {})},
        "limits": {"max_log_bytes": MAX_LOG_BYTES, **(limits or {})},
        **settings,
    }
    copy = Backburner(NAME, **given)
    copy.target = TARGET
    for spec in app.tools:
        copy.add_tool(spec)
    return copy


@app.tool
def add(a: int, b: int = 2) -> dict[str, int]:
    return {"sum": a + b}


@app.tool
async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@app.tool
def whoami(ctx: TaskContext) -> dict[str, Any]:
    return {
        "task_id": ctx.task_id,
        "attempt": ctx.attempt,
        "owner": ctx.owner,
        "tags": list(ctx.tags),
        "meta": dict(ctx.meta),
        "answers": {key: answer.to_dict() for key, answer in ctx.answers.items()},
        "caller": None if ctx.caller is None else ctx.caller.to_dict(),
    }


@app.tool
def fail(message: str) -> None:
    raise LookupError(message)


@app.tool
async def fail_later(message: str) -> None:
    await asyncio.sleep(0)
    raise LookupError(message)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@app.tool
def fail_unspeakably() -> None:
    raise Unspeakable


@app.tool
def answer_with_protocol_error() -> None:
    raise ProtocolError(-32042, "go there first", {"url": "https://example.org/"})


@app.tool(retries=0)
def end_badly(how: str) -> None:
    """End in a way that a tool should not."""
    ways: dict[str, Callable[[], Any]] = {
        "sys.exit": lambda: sys.exit(3),
        "os._exit": lambda: os._exit(3),
        "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "interrupt": _interrupt,
    }
    ways[how]()


def _interrupt() -> None:
    raise KeyboardInterrupt


@app.tool
def give(what: str) -> Any:
    """Give back what is hard to give back."""
    nested: list[Any] = []
    if what == "deep":
        for _ in range(100_000):
            nested = [nested]
    things: dict[str, Callable[[], Any]] = {
        "object": object,
        "nan": lambda: float("nan"),
        "nul": lambda: "a\0b",
        "surrogate": lambda: "\ud800",
        "deep": lambda: nested,
        "path": lambda: Path("/tmp/x"),
        "bytes": lambda: b"\xff\xfe",
        "set": lambda: {1},
    }
    return things[what]()


@app.tool
def give_much(size: int) -> str:
    return "x" * size


@app.tool(retries=Retry(max_attempts=3, backoff_s=0.2, on=("ConnectionError",)))
def succeed_at(attempt: int, ctx: TaskContext) -> int:
    if ctx.attempt < attempt:
        raise ConnectionError(f"attempt {ctx.attempt} of {attempt}")
    return ctx.attempt


@app.tool(retries=Retry(max_attempts=2, backoff_s=3, on=("ConnectionError",)))
def succeed_later(ctx: TaskContext) -> int:
    """Fail once, and succeed after a while."""
    if ctx.attempt == 1:
        raise ConnectionError("try again later")
    return ctx.attempt


def _is_reset(error: BaseException) -> bool:
    return "reset" in str(error)


def _is_undecided(error: BaseException) -> bool:
    raise LookupError("nobody knows")


def _end(error: BaseException) -> bool:
    raise SystemExit(1)


#: What is tried again, by the name of a tool that fails once with a ConnectionResetError, or a KeyError.
RETRIED_ON: dict[str, Any] = {
    "by_name_of_base": "ConnectionError",
    "by_class": OSError,
    "by_function": _is_reset,
    "by_any_of_a_list": ["worker_lost", ZeroDivisionError, _is_reset],
    "by_function_that_raises": _is_undecided,
    "by_function_that_ends": _end,
}


def _break_once(error: str, ctx: TaskContext) -> int:
    if ctx.attempt == 1:
        raise ConnectionResetError("reset by peer") if error == "reset" else KeyError(error)
    return ctx.attempt


for _name, _on in RETRIED_ON.items():
    app.tool(name=_name, retries=Retry(max_attempts=2, backoff_s=0.01, on=_on))(_break_once)


@app.tool(retries=Retry(max_attempts=5, backoff_s=0.01, on=("*",)))
def count_on(ctx: TaskContext) -> list[int]:
    """Each attempt adds one to what the last one kept, and fails until there are three."""
    counted = [*(ctx.checkpoint_data or []), ctx.attempt]
    ctx.checkpoint(counted)
    if len(counted) < 3:
        raise RuntimeError("not yet")
    return counted


@app.tool
def run_until(folder: str, ctx: TaskContext) -> int:
    """Run until there is a file `go` in the folder; a file there says that this attempt has begun."""
    Path(folder, f"{ctx.task_id}-{ctx.attempt}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.005)
    return ctx.attempt


@app.tool(retries=Retry(max_attempts=1000, backoff_s=0.01, max_backoff_s=0.05, on=("*",)))
def ledgered(kind: str, ledger: str, seconds: float, ctx: TaskContext) -> str:
    """Work of a kind, with the task's lock in the ledger held for as long as any process of it is at work."""
    with _locked(Path(ledger), ctx) as lock:
        if kind == "quick":
            return kind
        if kind == "child":
            # It has the lock as well, so that one that outlives its runner is seen.
            subprocess.run(["sleep", str(seconds)], check=False, start_new_session=True, pass_fds=[lock])
        if kind == "checkpoint":
            for step in range(ctx.checkpoint_data or 0, 5):
                ctx.checkpoint(step + 1)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ctx.progress(percent=50)
            time.sleep(0.005)
            ctx.raise_if_cancelled()
    return kind


@contextlib.contextmanager
def _locked(ledger: Path, ctx: TaskContext) -> Iterator[int]:
    """Write into the ledger that this attempt begins, and whether another one is still at work."""
    lock = os.open(ledger / ctx.task_id, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            word = "begin"
        except BlockingIOError:
            word = "overlap"
        with (ledger / "ledger").open("a") as lines:
            lines.write(f"{word} {ctx.task_id} {ctx.attempt}\n")
        yield lock
    finally:
        os.close(lock)


@app.tool
def talk_until(folder: str) -> int:
    """Say a word now and then until there is a file `go` in the folder; how many there were."""
    words = 0
    while not Path(folder, "go").exists():
        print(f"word {words}")
        words += 1
        time.sleep(0.02)
    return words


@app.tool
def parent() -> int:
    """The parent of the runner's parent: on the local engine, the supervisor."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


@app.tool
def sleep(seconds: float, ctx: TaskContext) -> float:
    """A tool that looks whether it is cancelled."""
    print("asleep")
    if ctx.wait_cancelled(seconds):
        print("tidied up")
        ctx.raise_if_cancelled()
    return seconds


@app.tool
async def sleep_async(seconds: float) -> float:
    print("asleep", flush=True)
    try:
        await asyncio.sleep(seconds)
    finally:
        print("tidied up")
    return seconds


@app.tool
def stay(seconds: float) -> float:
    """A tool that ignores every hint, as do its children: one of its group, one that left it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    script = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)"
    )
    subprocess.Popen([sys.executable, "-S", "-c", script])
    subprocess.Popen([sys.executable, "-S", "-c", script], start_new_session=True, env={})
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(1, f"{os.getpid()}\n".encode())
            time.sleep(600)
        os._exit(0)
    time.sleep(seconds)
    return seconds


@app.tool
def ignore_cancel(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


@app.tool
def hold_the_gil(seconds: float) -> str:
    """A C call that never lets another thread of its process run."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    return "done"


@app.tool
def allocate(mb: int) -> int:
    return len(bytearray(mb * 1024 * 1024))


@app.tool
def allocate_in_children(mb: int) -> None:
    """Two children have half of it each."""
    script = f"import time; kept = b'x' * ({mb} << 19); time.sleep(600)"
    for _ in range(2):
        subprocess.Popen([sys.executable, "-S", "-c", script], start_new_session=True)
    os.wait()


@app.tool
def fill_scratch(mb: int, ctx: TaskContext) -> None:
    print(ctx.scratch)
    for number in range(mb):
        (ctx.scratch / f"{number}").write_bytes(os.urandom(1024 * 1024))
    time.sleep(600)


@app.tool
def fill(mb: int, where: str, ctx: TaskContext) -> None:
    """Use memory or disk space that no folder of the task shows."""
    data = bytes(1 << 20)
    if where == "artifacts":
        for number in range(mb):
            ctx.artifact(data, name=f"{number}")
    elif where == "beside scratch":
        (ctx.scratch.parent / "beside").write_bytes(data * mb)
    else:
        with _hidden_file(where, ctx) as file:
            for _ in range(mb):
                file.write(data)
            file.flush()
            time.sleep(600)
    time.sleep(600)


def _hidden_file(where: str, ctx: TaskContext) -> BinaryIO:
    if where == "memfd":
        return os.fdopen(os.memfd_create("hidden"), "wb")
    path = Path("/dev/shm" if where == "shared memory" else ctx.scratch) / f"{ctx.task_id}-hidden"
    file = path.open("wb")
    path.unlink()
    return file


@app.tool
def cpus() -> list[int]:
    """The CPUs that a child of the tool may use."""
    script = "import os; print(*sorted(os.sched_getaffinity(0)))"
    child = subprocess.run([sys.executable, "-S", "-c", script], check=True, capture_output=True, text=True)
    return [int(cpu) for cpu in child.stdout.split()]


@app.tool
def time_left(ctx: TaskContext) -> float | None:
    return None if ctx.deadline is None else ctx.deadline.timestamp() - time.time()


_NAME_SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@app.tool
def ask_name(ctx: TaskContext) -> dict[str, Any]:
    answer = ctx.ask("What is your name?", _NAME_SCHEMA)
    return {"action": answer.action, "content": answer.content, "accepted": answer.accepted}


@app.tool
async def ask_name_async(ctx: TaskContext) -> dict[str, Any]:
    answer = await ctx.ask_async("What is your name?", _NAME_SCHEMA)
    return {"action": answer.action, "content": answer.content, "accepted": answer.accepted}


@app.tool
def ask_for_a_while(timeout: float, default: dict[str, Any] | None, ctx: TaskContext) -> dict[str, Any]:
    answer = ctx.ask("What is your name?", _NAME_SCHEMA, timeout=timeout, default=default)
    return {"action": answer.action, "content": answer.content}


@app.tool
def ask_two_for_a_while(ctx: TaskContext) -> dict[str, Any]:
    questions = {"first": ("First name?", _NAME_SCHEMA), "last": ("Last name?", None)}
    answers = ctx.ask_all(questions, timeout="300ms", defaults={"first": {"name": "Ann"}})
    return {key: [answer.action, answer.content] for key, answer in answers.items()}


@app.tool
def ask_at_length(words: str, ctx: TaskContext) -> int:
    """Ask with so many words of input that it takes a while to hand the task over."""
    ctx.ask("What is your name?", _NAME_SCHEMA)
    return len(words)


@app.tool
def ask_two(ctx: TaskContext) -> dict[str, Any]:
    answers = ctx.ask_all({"first": ("First name?", _NAME_SCHEMA), "last": ("Last name?", None)})
    return {key: [answer.action, answer.content] for key, answer in answers.items()}


@app.tool
def ask_twice(ctx: TaskContext) -> list[Any]:
    return [ctx.ask("Who?", _NAME_SCHEMA).content, ctx.ask("And who else?", _NAME_SCHEMA).content]


@app.tool(retries=Retry(max_attempts=2, backoff_s=0.01, on=("*",)))
def ask_then_fail_once(ctx: TaskContext) -> Any:
    answer = ctx.ask("Who?", _NAME_SCHEMA)
    if ctx.attempt == 1:
        raise RuntimeError("once")
    return answer.content


class _Together(dict[str, Any]):
    """Questions that two threads begin to read at the same moment."""

    both = threading.Barrier(2)

    def __iter__(self) -> Iterator[str]:
        self.both.wait()
        return super().__iter__()


@app.tool
def ask_from_two_threads(ctx: TaskContext) -> dict[str, Any]:
    def ask(name: str) -> Any:
        params = {"mode": "form", "message": name, "requestedSchema": _NAME_SCHEMA}
        return ctx.request_all(_Together(who=("elicitation/create", params)))["who"]["content"]["name"]

    names = ["Ann", "Bob"]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(ask, names), strict=True))


log = logging.getLogger("lab")


@app.tool
def talk(ctx: TaskContext) -> None:
    print("printed")
    os.write(1, b"written\n")
    log.warning("logged %d", 1)
    subprocess.run(["echo", "from a child"], check=True)
    ctx.log("noted", level="error")
    ctypes.CDLL(None).puts(b"from C")
    print("no newline", end="")
    log.info("in between")
    print(" yet")
    print("to stderr", file=sys.stderr)
    print("the end", end="")


@app.tool
def say(words: str) -> None:
    print(words)


@app.tool
def flood(lines: int) -> None:
    for number in range(lines):
        print(f"line {number}")


@app.tool
def write_garbage() -> None:
    os.write(1, bytes(range(256)) + b"\n")
    os.write(1, b"\0log {not a record}\n")
    os.write(1, b'\0log {"ts": 1e999, "level": "", "message": ""}\n')
    os.write(1, b'\0log {"ts": %d, "level": "", "message": ""}\n' % 10**400)
    os.write(1, b"\0log " + b"[" * 100_000 + b"\n")
    os.write(2, b"x" * 100_000 + b"\n")
    log.error("a\0b\ud800")
    print("after")


@app.tool
def fork_and_log() -> None:
    """A child that was forked, and not started anew, logs as well."""
    log.info("parent")
    if (child := os.fork()) == 0:
        log.info("child")
        os._exit(0)
    os.waitpid(child, 0)
    log.info("parent again")


@app.tool
def progress(steps: int, ctx: TaskContext) -> float:
    """Seconds of CPU that so many calls took."""
    began = time.process_time()
    for step in range(steps):
        ctx.progress(step + 1, steps, phase="work", message=f"step {step + 1}", best=step)
    return time.process_time() - began


@app.tool
def go_back(ctx: TaskContext) -> None:
    ctx.progress(8, 10)
    ctx.progress(2, 10, message="a new round")


@app.tool
def odd_progress(ctx: TaskContext) -> str:
    """Nothing that a tool says about itself may stop it, or its supervisor."""
    ctx.progress(float("nan"), 3, message="a\0b\ud800", phase=3, odd=object())  # type: ignore[arg-type]
    time.sleep(0.15)
    ctx.progress(10**400, 3, big=10**400)
    time.sleep(0.15)
    ctx.progress(percent=float("inf"))
    return "done"


@app.tool
def keep_files(ctx: TaskContext) -> dict[str, str]:
    """One of bytes, one by its path, one from the scratch folder."""
    plain = ctx.scratch.parent / "plain.txt"
    plain.write_text("plain")
    (ctx.scratch / "deep").mkdir()
    (ctx.scratch / "deep" / "trajectory.xyz").write_bytes(b"\0" * 3_000_000)
    kept = [
        ctx.artifact(b"abc", name="abc.bin", kind="blob"),
        ctx.artifact(plain),
        ctx.artifact("deep/trajectory.xyz", kind="trajectory"),
    ]
    return {artifact.name: artifact.sha256 for artifact in kept}


@app.tool
def keep_odd_names(names: list[str], ctx: TaskContext) -> list[str]:
    return [ctx.artifact(b"data", name=name).path for name in names]


@app.tool
def keep_missing(ctx: TaskContext) -> None:
    ctx.artifact("no/such/file")


@app.tool
def keep_then_fail(ctx: TaskContext) -> None:
    ctx.artifact(b"so far", name="partial.txt")
    raise RuntimeError("after all")


@app.tool
def pid() -> int:
    return os.getpid()


@app.tool(isolation="fresh")
def fresh_pid() -> int:
    return os.getpid()


@app.tool
def leave_child() -> int:
    """Return, while a child goes on and on writing."""
    script = "import time\nwhile True: print('left behind', flush=True); time.sleep(0.001)"
    return subprocess.Popen([sys.executable, "-S", "-c", script]).pid


@app.tool
def leave_thread() -> int:
    """Return, while a thread goes on and on writing."""

    def write() -> None:
        while True:
            print("left behind")
            time.sleep(0.001)

    threading.Thread(target=write, daemon=True).start()
    return os.getpid()


_kept: list[Any] = []


@app.tool
async def leave_coroutine() -> int:
    async def write() -> None:
        while True:
            print("left behind")
            await asyncio.sleep(0)

    _kept.append(asyncio.create_task(write()))
    return os.getpid()


@app.tool
def close_output() -> int:
    print("before")
    sys.stdout.close()
    os.close(1)
    os.close(2)
    return os.getpid()


@app.tool
def threads(count: int) -> int:
    """Threads that all print; they are joined."""

    def write(number: int) -> None:
        print(f"thread {number}")

    running = [threading.Thread(target=write, args=(number,)) for number in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return count
