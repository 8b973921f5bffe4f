"""Logs and artifacts of tasks. The latest log lines are rows; older ones are in compressed chunks."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from ..core.task import Artifact, LogLine
from ..errors import ArtifactNotFound
from .sql import rows
from .sql.transaction import SqlBase, Transaction, read, read_snapshot

#: Lines are packed into a chunk when a report crosses a multiple of this number,
_CHUNK_LINES = 512
#: or has this much text.
_LARGE_REPORT = 32 << 10
#: The most text of a chunk: enough to compress well, and quick to decompress for a single line.
_CHUNK_BYTES = 128 << 10
_CHUNKS_AT_ONCE = 8
_ANY_NUMBER = 2**31
#: Level 4 is a tenth smaller than level 1 for half as much time again; level 9 takes three times as long.
_COMPRESSION = 4

_quoted = json.JSONEncoder(ensure_ascii=False).encode


class OutputStore(Protocol):
    def logs(self, task_id: str, after: int = 0, limit: int = 200) -> list[LogLine]: ...

    def last_log_seq(self, task_id: str) -> int:
        """Return the number of the last log line; 0 if there is none."""
        ...

    def artifacts(self, task_id: str) -> list[Artifact]: ...

    def artifact(self, artifact_id: str) -> Artifact:
        """Raises ArtifactNotFound."""
        ...


class SqlOutputs(SqlBase):
    @read_snapshot
    def logs(self, tx: Transaction, task_id: str, after: int = 0, limit: int = 200) -> list[LogLine]:
        lines = list(islice(_packed(tx, task_id, after), limit))
        plain = tx.all("plain_logs", task_id=task_id, after=after, limit=limit - len(lines))
        return lines + rows.log_lines(plain)

    @read
    def last_log_seq(self, tx: Transaction, task_id: str) -> int:
        row = tx.one("last_plain_log", task_id=task_id) or tx.one("last_packed_log", task_id=task_id)
        return 0 if row is None else int(row["last_seq"])

    @read
    def artifacts(self, tx: Transaction, task_id: str) -> list[Artifact]:
        return [rows.record(Artifact, row) for row in tx.all("artifacts", task_id=task_id)]

    @read
    def artifact(self, tx: Transaction, artifact_id: str) -> Artifact:
        row = tx.one("artifact", artifact_id=artifact_id)
        if row is None:
            raise ArtifactNotFound(artifact_id=artifact_id)
        return rows.record(Artifact, row)


def append(tx: Transaction, task_id: str, lines: Sequence[LogLine]) -> None:
    """Append log lines. Lines that were reported before are ignored."""
    packed = tx.one("last_packed_log", task_id=task_id)
    new = lines if packed is None else [line for line in lines if line.seq > packed["last_seq"]]
    if not new:
        return
    if _fill_a_chunk(new):
        plain = rows.log_lines(tx.all("plain_logs", task_id=task_id, after=0, limit=_ANY_NUMBER))
        known = plain[-1].seq if plain else 0
        _pack(tx, task_id, [*plain, *(line for line in new if line.seq > known)])
    else:
        parameters = [
            {
                "task_id": task_id,
                "seq": line.seq,
                "ts": line.ts,
                "stream": line.stream,
                "level": line.level,
                "line": line.message,
            }
            for line in new
        ]
        tx.many("insert_log", parameters)


def _fill_a_chunk(lines: Sequence[LogLine]) -> bool:
    crossed = lines[-1].seq // _CHUNK_LINES > (lines[0].seq - 1) // _CHUNK_LINES
    return crossed or sum(len(line.message) for line in lines) >= _LARGE_REPORT


def _packed(tx: Transaction, task_id: str, after: int) -> Iterator[LogLine]:
    while chunks := tx.all("log_chunks", task_id=task_id, after=after, limit=_CHUNKS_AT_ONCE):
        for chunk in chunks:
            text = zlib.decompress(bytes(chunk["data"])).replace(b"\n", b",")
            yield from (LogLine(*line) for line in json.loads(b"[%b]" % text) if line[0] > after)
        after = chunks[-1]["last_seq"]


def pack(tx: Transaction, task_id: str, limit: int) -> int:
    """Pack the oldest plain lines. Return their number."""
    plain = rows.log_lines(tx.all("plain_logs", task_id=task_id, after=0, limit=limit))
    if plain:
        _pack(tx, task_id, plain)
    return len(plain)


def _pack(tx: Transaction, task_id: str, lines: Sequence[LogLine]) -> None:
    """Put lines into chunks, and delete their rows."""
    for first_seq, last_seq, text in _chunks(lines):
        data = zlib.compress(text, _COMPRESSION)
        tx.run("insert_log_chunk", task_id=task_id, first_seq=first_seq, last_seq=last_seq, data=data)
    tx.run("delete_logs_up_to", task_id=task_id, seq=lines[-1].seq)


def _chunks(lines: Iterable[LogLine]) -> Iterator[tuple[int, int, bytes]]:
    """Yield the first and last number of each chunk, and its lines as JSON lines."""
    texts: list[bytes] = []
    first, last, size = 0, 0, 0
    for line in lines:
        words = f"{_quoted(line.stream)},{_quoted(line.level)},{_quoted(line.message)}"
        text = f"[{line.seq},{line.ts},{words}]".encode()
        if texts and size + len(text) > _CHUNK_BYTES:
            yield first, last, b"\n".join(texts)
            texts, size = [], 0
        first = first if texts else line.seq
        last, size = line.seq, size + len(text) + 1
        texts.append(text)
    if texts:
        yield first, last, b"\n".join(texts)
