"""Whose socket listens on a port."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from specdeck.engine.errors import UsageError
from specdeck.engine.launch import ports, process
from specdeck.engine.launch.ports import find_free, find_held, find_listeners, listens, port_refusal

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


def test_a_stranger_beside_an_engine_counts_where_a_connection_may_reach_it(
    server: tuple[process.Leader, int],
) -> None:
    leader, port = server
    with socket.socket(socket.AF_INET6) as beside:
        beside.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        beside.bind(("::1", port))
        beside.listen()
        for address, count in (("127.0.0.1", 1), ("::1", 1), ("localhost", 2), (None, 2)):
            found = find_listeners(port, address)
            assert found is not None
            assert len(found) == count
    (mine,) = find_held(leader, find_listeners(port, "127.0.0.1") or set()) or ()
    assert mine.is_held()


def test_a_child_may_hold_the_port_of_an_engine() -> None:
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SERVER!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as popen:  # fmt: skip
        assert popen.stdout is not None
        port, leader = int(popen.stdout.readline()), process.find_leader(popen.pid)
        assert leader is not None
        assert listens(leader, port) is True
        popen.communicate()


def test_a_port_without_a_listener_tells_nothing(server: tuple[process.Leader, int]) -> None:
    leader, _ = server
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert listens(leader, bound.getsockname()[1]) is None


def test_two_that_try_a_port_at_the_same_moment_do_not_refuse_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = find_free("127.0.0.1")
    answers: list[str | None] = []

    class Probe(socket.socket):
        """Before the first one lets the port go, a second one tries it."""

        def close(self) -> None:
            if not answers:
                answers.append("asked")
                answers.append(port_refusal("127.0.0.1", port))
            super().close()

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", Probe)
        answers.append(port_refusal("127.0.0.1", port))
    assert answers == ["asked", None, None]


def test_a_port_that_somebody_has_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mine:
        refusal = port_refusal("127.0.0.1", mine.getsockname()[1])
    assert refusal is not None
    assert "address already in use" in refusal


@pytest.mark.parametrize("host", ["192.0.2.1", "fe80::1", "256.1.1.1", "a..b", "nohost.invalid"])
def test_a_host_of_which_no_port_can_be_had_is_wrong_usage(host: str) -> None:
    with pytest.raises(UsageError, match=f"{re.escape(host)} is no address of this machine"):
        find_free(host)
    assert port_refusal(host, find_free("127.0.0.1"))


class Interrupted(Exception):
    """A signal was heard."""


def test_a_name_server_that_is_silent_holds_up_no_signal_and_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = threading.Event()

    def wait(*args: object, **kwargs: object) -> object:
        answers.wait(60)
        raise OSError(1, "no answer")

    def hear(*_: object) -> None:
        raise Interrupted

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    before = signal.signal(signal.SIGALRM, hear)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Interrupted):
            port_refusal("a-host", 8000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    monkeypatch.setattr(ports, "RESOLVE_S", 0.1)
    said = port_refusal("a-host", 8000)
    answers.set()
    assert said is not None
    assert "no name server has answered" in said
