"""`Content-Length` framing, through pipes."""

import codecs
import io
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import anyio
from hypothesis import given
from hypothesis import strategies as st

from backburner.mcp.framing import ENCODING, FramedReader, FramedWriter
from tests import warm
from tests.deployment import Deployment
from tests.integration.source_documents.pipe import APP


def framed(body: bytes, header: bytes = b"Content-Length: %d\r\n\r\n") -> bytes:
    return header % len(body) + body


def read_all(data: bytes | BinaryIO, **options: Any) -> list[str]:
    source = io.BytesIO(data) if isinstance(data, bytes) else data
    reader = FramedReader(source, **options)
    reader.has_headers = True
    messages = []
    while (message := reader.read()) is not None:
        messages.append(message)
    return messages


@contextmanager
def pipe_with(chunks: list[bytes]) -> Iterator[BinaryIO]:
    """A pipe into which somebody writes piece by piece."""
    source, sink = os.pipe()

    def write() -> None:
        with os.fdopen(sink, "wb", buffering=0) as out:
            for chunk in chunks:
                out.write(chunk)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with os.fdopen(source, "rb") as reader:
            yield reader
    finally:
        thread.join()


_messages = st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=30), max_size=3), max_size=4)


@given(_messages, st.integers(1, 40))
def test_what_is_written_is_read_again_however_it_is_split(messages: list[Any], size: int) -> None:
    texts = [json.dumps(message, ensure_ascii=False) for message in messages]
    sink = io.BytesIO()

    async def write() -> None:
        writer = FramedWriter(sink, lambda: True)
        for text in texts:
            await writer.write(text + "\n")
            await writer.flush()

    anyio.run(write)
    data = sink.getvalue()
    with pipe_with([data[start : start + size] for start in range(0, len(data), size)]) as source:
        assert read_all(source) == texts


@given(_messages, st.integers(1, 40))
def test_a_client_reads_what_a_server_writes_however_it_is_split(messages: list[Any], size: int) -> None:
    texts = [json.dumps(message, ensure_ascii=False, indent=1) for message in messages]
    data = b"".join(framed(text.encode()) for text in texts)
    decoder = codecs.getincrementaldecoder(ENCODING)()
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    lines = "".join(decoder.decode(chunk) for chunk in chunks).split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == messages


def test_a_server_reads_what_a_client_writes() -> None:
    text = '{"text":"交互待办 😀"}'
    assert read_all((text + "\n").encode(ENCODING) * 2) == [text, text]


def test_what_is_no_message_costs_a_client_one_line() -> None:
    data = b"Starting up\n\n" + framed(b'{"id":1}') + b"\n" + framed(b"{}", b"content-length:%d\n\n")
    assert data.decode(ENCODING).splitlines() == ["Starting up", '{"id":1}', "{}"]


def test_the_length_counts_bytes_and_not_characters() -> None:
    sink = io.BytesIO()
    anyio.run(FramedWriter(sink, lambda: True).write, '{"text":"交互待办 😀"}\n')
    header, _, body = sink.getvalue().partition(b"\r\n\r\n")
    assert header == b"Content-Length: %d" % len(body)
    assert read_all(sink.getvalue()) == ['{"text":"交互待办 😀"}']


def test_headers_are_read_as_people_write_them() -> None:
    assert read_all(framed(b"{}", b"content-length:%d\n\n")) == ["{}"]
    assert read_all(framed(b"{}", b"Content-Type: application/json\r\nCONTENT-LENGTH:  %d \r\n\r\n")) == [
        "{}"
    ]
    assert read_all(b"\r\n\r\n" + framed(b"{}") + b"\r\n" + framed(b"[]")) == ["{}", "[]"]


def test_a_bad_header_costs_one_message_and_not_the_stream() -> None:
    for bad in (
        b"Content-Length: many\r\n\r\n",
        b"Content-Length: -5\r\n\r\n",
        b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"No header at all\r\n\r\n",
        b"Content-Length: \xff\r\n\r\n",
        b"x" * 20_000 + b"\r\n\r\n",
    ):
        first, second = read_all(bad + framed(b'{"id":1}'))
        assert "Content-Length" in first
        assert second == '{"id":1}'


def test_a_bad_header_with_a_body_is_passed_over_up_to_the_next_header() -> None:
    broken = b'Content-Length: x\r\n\r\n{"lost": true}'
    messages = read_all(broken + b"\r\n" + framed(b'{"id":1}'))
    assert messages[-1] == '{"id":1}'


def test_a_message_over_the_limit_is_passed_over() -> None:
    refused, kept = read_all(framed(b"x" * 200_000) + framed(b"{}"), most_bytes=1000)
    assert "200000 bytes" in refused
    assert kept == "{}"


def test_a_huge_message_is_read_whole() -> None:
    text = json.dumps({"data": "é" * 3_000_000}, ensure_ascii=False)
    with pipe_with([framed(text.encode())]) as source:
        assert read_all(source) == [text]


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert read_all(framed(b'"\xff"')) == ['"\ufffd"']


def test_a_stream_that_ends_in_the_middle_of_a_message_is_over() -> None:
    whole = framed(b'{"id":1}')
    for end in range(1, len(whole)):
        assert read_all(whole[:end]) == []


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    read_all(data)


def test_a_server_answers_in_the_framing_of_its_client(deployment: Deployment) -> None:
    """A host that gets no answer to lines in time tries headers in the same pipe."""
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "trying", "version": "1"},
        },
    }
    first, second = (json.dumps({**hello, "id": number}).encode() for number in (1, 2))
    with subprocess.Popen(
        [warm.BACKBURNER, "serve", str(APP)],
        env=deployment.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\r\n" + first + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.stdin.write(framed(second, b"content-type: application/json\r\nContent-Length: %d\r\n\r\n"))
        process.stdin.flush()
        name, length = process.stdout.readline().split()
        assert (name, process.stdout.readline()) == (b"Content-Length:", b"\r\n")
        answer = process.stdout.read(int(length))
        assert json.loads(answer)["id"] == 2
