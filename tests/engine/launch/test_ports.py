"""Whose socket listens on a port."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from specdeck.engine.launch import process
from specdeck.engine.launch.ports import listens

SERVER = (
    "import socket, sys\n"
    "s = socket.create_server(('127.0.0.1', 0))\n"
    "print(s.getsockname()[1], flush=True)\n"
    "sys.stdin.read()"
)


@pytest.fixture
def server() -> Iterator[tuple[process.Leader, int]]:
    """A process that leads a session and listens."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as popen:
        assert popen.stdout is not None
        port = int(popen.stdout.readline())
        leader = process.find_leader(popen.pid)
        assert leader is not None
        yield leader, port
        popen.kill()


def test_a_session_listens_on_its_own_port_only(server: tuple[process.Leader, int]) -> None:
    leader, port = server
    assert listens(leader, port) is True
    with socket.create_server(("127.0.0.1", 0)) as mine:
        assert listens(leader, mine.getsockname()[1]) is False


def test_a_port_that_another_session_serves_is_not_an_engines_own(
    server: tuple[process.Leader, int],
) -> None:
    _, port = server
    other = process.Leader(os.getpid() + 10**7, 1, process.boot())
    assert listens(other, port) is False


def test_a_port_without_a_listener_tells_nothing(server: tuple[process.Leader, int]) -> None:
    leader, _ = server
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert listens(leader, bound.getsockname()[1]) is None
