"""A task's log in the store: its latest lines as rows, all before them in compressed chunks."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ..task import LogLine
from . import rows
from .transaction import Transaction

#: Each line with such a number takes all before it along into a chunk,
_CHUNK_LINES = 512
#: and so does a report with so much text.
_LARGE_REPORT = 32 << 10
#: So much text has a chunk at most: enough to compress well, and little enough to be read for one line of it.
_CHUNK_BYTES = 128 << 10
_CHUNKS_AT_ONCE = 8
_ANY_NUMBER = 2**31
#: A tenth smaller than by the quickest, for half as much work again; the best would take three times that.
_COMPRESSION = 4

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def append(tx: Transaction, task_id: str, lines: Sequence[LogLine]) -> None:
    """Keep lines that follow those that are kept; what is reported a second time is passed over."""
    packed = tx.one("last_packed_log", task_id=task_id)
    new = lines if packed is None else [line for line in lines if line.seq > packed["last_seq"]]
    if not new:
        return
    if _fill_a_chunk(new):
        plain = rows.log_lines(tx.all("plain_logs", task_id=task_id, after=0, limit=_ANY_NUMBER))
        known = plain[-1].seq if plain else 0
        _pack(tx, task_id, [*plain, *(line for line in new if line.seq > known)])
    else:
        tx.many("insert_log", [rows.log_parameters(task_id, line) for line in new])


def _fill_a_chunk(lines: Sequence[LogLine]) -> bool:
    crossed = lines[-1].seq // _CHUNK_LINES > (lines[0].seq - 1) // _CHUNK_LINES
    return crossed or sum(len(line.message) for line in lines) >= _LARGE_REPORT


def read(tx: Transaction, task_id: str, after: int, limit: int) -> list[LogLine]:
    lines = list(islice(_packed(tx, task_id, after), limit))
    plain = tx.all("plain_logs", task_id=task_id, after=after, limit=limit - len(lines))
    return lines + rows.log_lines(plain)


def last_seq(tx: Transaction, task_id: str) -> int:
    row = tx.one("last_plain_log", task_id=task_id) or tx.one("last_packed_log", task_id=task_id)
    return 0 if row is None else int(row["last_seq"])


def _packed(tx: Transaction, task_id: str, after: int) -> Iterator[LogLine]:
    while chunks := tx.all("log_chunks", task_id=task_id, after=after, limit=_CHUNKS_AT_ONCE):
        for chunk in chunks:
            text = zlib.decompress(bytes(chunk["data"])).replace(b"\n", b",")
            yield from (LogLine(*line) for line in json.loads(b"[%b]" % text) if line[0] > after)
        after = chunks[-1]["last_seq"]


def pack(tx: Transaction, task_id: str, limit: int) -> int:
    """Pack the oldest of the lines that are rows; how many it were."""
    plain = rows.log_lines(tx.all("plain_logs", task_id=task_id, after=0, limit=limit))
    if plain:
        _pack(tx, task_id, plain)
    return len(plain)


def _pack(tx: Transaction, task_id: str, lines: Sequence[LogLine]) -> None:
    """Put lines into chunks; those that were rows are none any more."""
    for first_seq, last_seq, text in _chunks(lines):
        data = zlib.compress(text, _COMPRESSION)
        tx.run("insert_log_chunk", task_id=task_id, first_seq=first_seq, last_seq=last_seq, data=data)
    tx.run("delete_logs_up_to", task_id=task_id, seq=lines[-1].seq)


def _chunks(lines: Iterable[LogLine]) -> Iterator[tuple[int, int, bytes]]:
    """The first and the last number of each chunk, and its lines as JSON, with newlines between them."""
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
