"""`serve`: what it says at its start, and how it ends."""

from __future__ import annotations

import contextlib
import socket

import pytest

from backburner.cli.command import Exit
from tests.integration.cli.conftest import COMMAND, Lab
from tests.services import free_port


@pytest.mark.slow
def test_the_address_that_a_client_needs_is_printed(lab: Lab) -> None:
    port, everywhere = free_port(), free_port()
    for address, wanted, settings in (
        (f"127.0.0.1:{port}", f"MCP is at http://127.0.0.1:{port}/mcp\n", {}),
        (
            f"0.0.0.0:{everywhere}",
            f"MCP is at http://127.0.0.1:{everywhere}/mcp or http://{socket.gethostname()}:{everywhere}/mcp\n",
            {},
        ),
        (
            f"127.0.0.1:{port}",
            "MCP is at https://lab.example/tasks/mcp\n",
            {"BACKBURNER_HTTP__PUBLIC_URL": "https://lab.example/tasks/"},
        ),
    ):
        words = ["serve", "--http", address, "--allow-anonymous"]
        with contextlib.closing(lab.terminal(*words, **settings)) as terminal:
            assert wanted in terminal.wait_for("MCP is at .*\n")
            assert terminal.interrupt() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "framing"),
    [
        (["serve"], "newline"),
        (["serve"], "lsp"),
        (["bridge", "--", *COMMAND, "serve", "lab.py"], "newline"),
    ],
    ids=["newline", "lsp", "bridge"],
)
def test_one_ctrl_c_ends_a_server_over_stdio(lab: Lab, words: list[str], framing: str) -> None:
    """The target comes from the environment; the server has answered, so it is in the middle of its work."""
    hello = (
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        '"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}'
    )
    framed = f"Content-Length: {len(hello)}\n\n{hello}\n" if framing == "lsp" else f"{hello}\n"
    with contextlib.closing(lab.terminal(*words)) as terminal:
        terminal.type(framed)
        terminal.wait_for("serverInfo")
        assert terminal.interrupt() == 130
    assert "Traceback" not in terminal.seen


@pytest.mark.slow
def test_a_server_without_a_target_says_how_to_name_one(lab: Lab) -> None:
    done = lab.run("serve", BACKBURNER_TARGET="")
    assert done.returncode == 2
    assert "BACKBURNER_TARGET" in done.stderr


@pytest.mark.parametrize(
    "words", [("call", "--detach", "add", "a=1"), ("serve", "lab.py", "--http", "127.0.0.1:0")]
)
def test_a_store_that_cannot_be_made_is_told_in_one_line(lab: Lab, words: tuple[str, ...]) -> None:
    done = lab.run(*words, "--store", "sqlite:////proc/nope/lab.db")
    assert done.returncode == Exit.TROUBLE
    (line,) = done.stderr.splitlines()
    assert "/proc/nope" in line


def test_a_port_in_use_is_told_in_one_line_with_advice(lab: Lab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = lab.run("serve", "lab.py", "--http", address)
    assert done.returncode == Exit.USAGE
    (line,) = done.stderr.splitlines()
    assert f"another program listens on {address}; end it, or choose another port" in line
