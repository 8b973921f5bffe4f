"""wksm_transform_batch: convert many documents, each one isolated from the others."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from ...tools.context import TaskContext
from .conversion import SUFFIXES
from .tree import Problems, require_extra, shown

Format = Literal["markdown", "html", "csv", "json", "text"]

_TIMEOUT_S = 60.0
_CHECKPOINT_EVERY_S = 2.0
_FILES_PER_SECOND = 100
_DONE = ("written", "unchanged")


class Job(NamedTuple):
    source: Path
    target: Path


def wksm_transform_batch(
    paths: Annotated[list[str], Field(description="Documents, and folders to search for documents")],
    to: Annotated[Format, Field(description="The format to convert them to")],
    folder: Annotated[
        str | None, Field(description="The target folder; by default that of each source")
    ] = None,
    overwrite: Annotated[bool, Field(description="Replace different files")] = False,
    *,
    ctx: TaskContext,
) -> dict[str, Any]:
    """Convert documents (Markdown, HTML, CSV, JSON, text) to another of these formats.

    A path may be a file or a folder, which is searched for documents. Each result is written beside its
    source, or into `folder`. An existing file that differs stays, unless `overwrite`. A document that cannot
    be converted is reported and does not stop the others.
    """
    began = time.perf_counter()
    require_extra()
    problems = Problems()
    jobs = list(_plan(paths, to, Path(folder).expanduser().absolute() if folder else None, problems))
    processed = len(jobs) + len(problems)
    outcomes = _convert_all(jobs, to, overwrite, ctx)
    report = []
    for job, outcome in zip(jobs, outcomes, strict=True):
        report.append({"source": shown(job.source), "target": shown(job.target), "outcome": outcome})
        if outcome not in _DONE:
            problems.add(job.source, outcome)
    written = outcomes.count("written")
    content = json.dumps({"to": to, "files": report, "problems": problems}, indent=1)
    ctx.artifact(content.encode(), "report.json", kind="report")
    return {
        "files_processed": processed,
        "files_skipped": processed - written,
        "files_updated": written,
        "unchanged": outcomes.count("unchanged"),
        **problems.summary(),
        "duration_seconds": round(time.perf_counter() - began, 3),
    }


def estimate_batch(inputs: Mapping[str, Any]) -> float:
    """Return one second for each hundred paths. Past runs correct it for folders."""
    return 0.5 + len(inputs["paths"]) / _FILES_PER_SECOND


def _plan(paths: list[str], to: str, folder: Path | None, problems: Problems) -> Iterator[Job]:
    """Yield the conversions, each target once."""
    suffix = next(ending for ending, name in SUFFIXES.items() if name == to)
    taken: dict[Path, Path] = {}
    for source, below in _sources(paths, problems):
        known = SUFFIXES.get(source.suffix.lower())
        if known is None:
            problems.add(source, f"its ending is none of {', '.join(SUFFIXES)}")
        elif known == to:
            problems.add(source, f"is {to} already")
        else:
            target = ((folder / below) if folder else source).with_suffix(suffix)
            first = taken.setdefault(target, source)
            if first == source:
                yield Job(source, target)
            else:
                problems.add(source, f"{shown(first)} has the same target")


def _sources(paths: list[str], problems: Problems) -> Iterator[tuple[Path, Path]]:
    """Yield each document once, with its path below the given folder."""
    seen: set[Path] = set()
    for text in paths:
        top = Path(text).expanduser().absolute()
        if not os.path.lexists(top):
            problems.add(top, "does not exist")
        elif top.is_dir():
            for path in _documents(top, problems):
                if path not in seen:
                    seen.add(path)
                    yield path, path.relative_to(top)
        elif top not in seen:
            seen.add(top)
            yield top, Path(top.name)


def _documents(top: Path, problems: Problems) -> Iterator[Path]:
    for folder, folders, files in os.walk(top, onerror=lambda error: problems.add(error.filename, error)):
        folders.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if path.suffix.lower() in SUFFIXES:
                yield path


def _convert_all(jobs: list[Job], to: str, overwrite: bool, ctx: TaskContext) -> list[str]:
    """Return the outcome of each job. A retry resumes from the last checkpoint."""
    plan = hashlib.sha256(b"\0".join(os.fsencode(path) for job in jobs for path in job)).hexdigest()
    kept = ctx.checkpoint_data or {}
    outcomes: list[str] = list(kept["outcomes"]) if kept.get("plan") == plan else []
    next_checkpoint = time.monotonic() + _CHECKPOINT_EVERY_S
    with Converter(ctx) as converter:
        for done, job in enumerate(jobs[len(outcomes) :], len(outcomes) + 1):
            ctx.raise_if_cancelled()
            outcomes.append(converter.convert(job, to, overwrite))
            ctx.progress(done, len(jobs), message=f"Processing {done} of {len(jobs)} files...")
            if time.monotonic() > next_checkpoint:
                ctx.checkpoint({"plan": plan, "outcomes": outcomes})
                next_checkpoint = time.monotonic() + _CHECKPOINT_EVERY_S
    return outcomes


class Converter:
    """A process that converts documents one by one, replaced when it dies or hangs."""

    def __init__(self, ctx: TaskContext) -> None:
        self._ctx = ctx
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Converter:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def convert(self, job: Job, to: str, overwrite: bool) -> str:
        """Return `written`, `unchanged`, or the reason of a failure."""
        process = self._process = self._process or self._start()
        order = {
            "source": os.fsencode(job.source).hex(),
            "target": os.fsencode(job.target).hex(),
            "to": to,
            "overwrite": overwrite,
        }
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
            line = self._read_line(process)
        except BrokenPipeError:
            line = b""
        if line is None:
            self._end()
            return f"not converted after {_TIMEOUT_S:.0f} s"
        if not line:
            code = self._end()
            return f"the converter crashed on it (exit code {code})"
        answer = json.loads(line)
        return str(answer.get("done") or answer["error"])

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "backburner.packs.files.conversion"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _read_line(self, process: subprocess.Popen[bytes]) -> bytes | None:
        """Return the answer; empty if the process died, None after the timeout."""
        assert process.stdout is not None
        deadline = time.monotonic() + _TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not selector.select(0.2):
                if self._ctx.cancelled or time.monotonic() > deadline:
                    return None
        return process.stdout.readline()

    def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            return process.wait(1)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
