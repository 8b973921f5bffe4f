"""Programs of others that the tests talk to, pinned, in environments of their own under `.interop/`.

    python -m tests.system.interop.environment      # makes those that are missing; `make services` does so

An environment is made once, and anew when what it is to hold has changed.
"""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
CLIENTS = HERE / "clients"
FOLDER = HERE.parents[2] / ".interop"
_SDK_RANGE = re.compile(r"(mcp|fastmcp)>=([\d.]+),<\d+")


def our_requirements(*, oldest_sdk: bool) -> tuple[str, ...]:
    """What pyproject.toml says that we need, with FastMCP; of the SDKs any release, or the oldest."""
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())["project"]
    admitted = [*project["dependencies"], *project["optional-dependencies"]["fastmcp"]]
    ranges = {found[1]: found[2] for each in admitted if (found := _SDK_RANGE.fullmatch(each))}
    assert ranges.keys() == {"mcp", "fastmcp"}, admitted
    pinned = [f"{name}=={oldest}" for name, oldest in ranges.items()]
    return (*admitted, *pinned) if oldest_sdk else tuple(admitted)


#: Python environments by name, and what each holds. Two releases of one package cannot share one.
PYTHON = {
    "mcp1": ("mcp==1.30.*",),
    "fastmcp": ("fastmcp==4.1.2", "fastmcp-tasks==4.1.2"),
    "sdk-oldest": our_requirements(oldest_sdk=True),
    "sdk-newest": our_requirements(oldest_sdk=False),
}
#: What the benchmarks set us against; made when they run.
PEERS = {
    "huey": ("huey[redis]==3.5.4",),
    "pgqueuer": ("pgqueuer==1.6.0", "asyncpg==0.32.*"),
    "dramatiq": ("dramatiq[redis]==2.2.1",),
    "celery": ("celery[redis]==5.7.0",),
    "docket": ("pydocket==0.27.0",),
}
_INSTALL_S = 600
#: What could not be made in this process: a second try would only take as long as the first.
failures: dict[Path, "Unavailable"] = {}


class Unavailable(Exception):
    """An environment is not there and cannot be made."""


def python(name: str) -> Path:
    """The interpreter of that Python environment, which is made if it is missing. Raises Unavailable."""
    folder, requirements = FOLDER / name, (PYTHON | PEERS)[name]
    interpreter = folder / "bin" / "python"

    def install() -> None:
        run([sys.executable, "-m", "venv", str(folder)])
        run([str(interpreter), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements])

    _make(folder, f"{sys.version_info[:2]} {' '.join(requirements)}", install)
    return interpreter


def node() -> Path:
    """Node itself, beside the packages of package.json, which are installed if missing. Raises Unavailable.

    It comes from npm too, where that has one: the conformance suite wants a newer one than Debian's.
    """
    folder, recipe = FOLDER / "node", HERE / "package.json"

    def install() -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise Unavailable("npm is not installed: `make services` as root, or install Node with npm")
        folder.mkdir(parents=True)
        shutil.copy(recipe, folder)
        # Node looks for packages beside and above a program, wherever the link to it stands.
        (folder / "clients").symlink_to(os.path.relpath(CLIENTS, folder))
        run(
            [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"],
            working_directory=folder,
        )

    _make(folder, recipe.read_text(), install)
    shipped = next(folder.glob("node_modules/node-linux-*/bin/node"), None)
    if shipped is None and (installed := shutil.which("node")) is None:
        raise Unavailable("Node is not installed")
    return shipped or Path(str(installed))


def node_program(name: str) -> list[str]:
    """The command that runs one of the TypeScript SDKs' client programs. Raises Unavailable."""
    keep_links = ["--preserve-symlinks", "--preserve-symlinks-main"]
    return [str(node()), *keep_links, str(FOLDER / "node" / "clients" / name)]


def conformance() -> list[str]:
    """The command of the official conformance suite. Raises Unavailable."""
    packages = FOLDER / "node" / "node_modules"
    return [str(node()), str(packages / "@modelcontextprotocol" / "conformance" / "dist" / "index.js")]


def _make(folder: Path, recipe: str, install: Callable[[], None]) -> None:
    stamp = folder / ".installed"
    if folder in failures:
        raise failures[folder]
    with _alone(folder):
        if stamp.exists() and stamp.read_text() == recipe:
            return
        shutil.rmtree(folder, ignore_errors=True)
        try:
            install()
        except Unavailable as error:
            failures[folder] = error
            raise
        stamp.write_text(recipe)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two test runs in one checkout must not make the same environment at once."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(command: list[str], *, working_directory: Path = FOLDER) -> None:
    # Whatever environment the tests themselves run in is not to leak into those made here.
    environment = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    try:
        subprocess.run(
            command,
            cwd=working_directory,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=_INSTALL_S,
        )
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"{' '.join(command[:4])} … failed:\n{error.stderr[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{' '.join(command[:4])} … took too long") from error


def main() -> None:
    with ThreadPoolExecutor() as pool:
        making = [pool.submit(node), *(pool.submit(python, name) for name in PYTHON)]
    for made in making:
        try:
            made.result()
        except Unavailable as error:
            print(f"services: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
