"""Where a Prometheus can read the gauges, and where it cannot."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import Gauge
from tests.support.fingerprints import Fingerprints

from specdeck.engine.divergence.report import CheckGauges
from specdeck.engine.errors import UsageError
from specdeck.engine.fingerprint.compare import compare
from specdeck.engine.fingerprint.export import Gauges
from specdeck.engine.launch.ports import find_free
from specdeck.engine.metrics import scrape_server
from specdeck.engine.metrics.exposition import Exposition
from specdeck.engine.metrics.scrape_server import MOST_CONNECTIONS

ELSEWHERE = "127.0.0.2"
"""Another address of this machine, as other machines use one."""


def answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


async def test_gauges_are_served_on_the_loopback_only() -> None:
    port = find_free("127.0.0.1")
    await Exposition().serve(port)
    assert answers("127.0.0.1", port)
    assert not answers(ELSEWHERE, port)


async def test_another_address_is_served_when_it_is_asked_for() -> None:
    port = find_free("127.0.0.1")
    await Exposition().serve(port, "0.0.0.0")
    assert answers(ELSEWHERE, port)


def test_silent_connections_take_no_more_than_a_few_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scrape_server._Handler, "timeout", 0.5)
    port, gauges, before = find_free("127.0.0.1"), Exposition(), threading.active_count()
    asyncio.run(gauges.serve(port))
    silent = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(40)]
    for one in silent[MOST_CONNECTIONS:]:
        assert one.recv(1) == b""  # closed, as the places are taken
    assert threading.active_count() <= before + 1 + MOST_CONNECTIONS
    for one in silent[:MOST_CONNECTIONS]:
        assert one.recv(1) == b""  # given up
    page = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)
    assert page.status_code == 200
    for one in silent:
        one.close()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> int:
    """The port of some gauges, whose requests and answers may take half a second."""
    monkeypatch.setattr(scrape_server._Handler, "timeout", 0.5)
    return serve_gauges(3)


def serve_gauges(count: int) -> int:
    port, page = find_free("127.0.0.1"), Exposition()
    gauge = Gauge("specdeck_size", "A kilobyte each.", ["name"], registry=page.registry)
    for number in range(count):
        gauge.labels(f"{number:01000}").set(number)
    asyncio.run(page.serve(port))
    return port


def ask(port: int, request: bytes) -> bytes:
    """What is answered to those bytes, up to the end of the connection."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        while piece := client.recv(1 << 16):
            found += piece
    return found


UNREADABLE = (
    "application/openmetrics-text; version=zzz",
    "application/openmetrics-text;version=1.0.zzz",
    'application/openmetrics-text; version="1.0.0"',
    "application/openmetrics-text;version=1..0",
    "application/openmetrics-text;version=" + "9" * 5_000,
    "application/openmetrics-text;version=1\xb2",
    "application/openmetrics-text;version=1.0.0.\r\n X-Other: 1",
    "text/plain;version=zzz, application/openmetrics-text;version=.",
    ";;;=,,,",
    "\xff\x00",
)


@pytest.mark.parametrize("accept", UNREADABLE, ids=lambda one: one[:50])
def test_a_format_that_cannot_be_read_is_answered_with_the_plain_text(
    accept: str, served: int, capfd: pytest.CaptureFixture[str]
) -> None:
    request = f"GET /metrics?name[]=specdeck_size HTTP/1.1\r\nAccept: {accept}\r\n\r\n"
    head, _, page = ask(served, request.encode("latin-1")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 ")
    assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    assert page.startswith(b"# HELP specdeck_size")
    assert capfd.readouterr() == ("", "")


def test_a_prometheus_is_answered_in_the_format_that_it_prefers(served: int) -> None:
    accept = (
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
        "application/openmetrics-text;version=0.0.1;q=0.5,"
        "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
    )
    head, _, page = ask(
        served, f"GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n".encode()
    ).partition(b"\r\n\r\n")
    assert b"Content-Type: application/openmetrics-text" in head
    assert page.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /metrics\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: -9\r\n\r\nbody",
        b"HEAD /metrics HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"\xff\xfe /\xb2 HTTP/1.1\r\n\r\n",
        b"GET /metrics?name[]=%ff&name[]=\xff\xfe&" + b"a=b&" * 3_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.\xb2\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X-Many: 1\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nContent-Type: a;b*0*=utf-8''%E2;b*x=\xff\r\nAccept\r\n: \x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nAccept: ",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"",
    ],
    ids=lambda one: repr(one[:30]),
)
def test_no_client_writes_on_stderr(
    request_bytes: bytes, served: int, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = ask(served, request_bytes)
    assert not answer.startswith(b"HTTP/1.0 500")
    assert capfd.readouterr() == ("", "")


def test_whoever_drips_a_request_is_given_up(served: int) -> None:
    with ExitStack() as stack:
        dripping = [stack.enter_context(socket.socket()) for _ in range(MOST_CONNECTIONS)]
        for one in dripping:
            one.connect(("127.0.0.1", served))
            one.settimeout(0.05)
        started = time.monotonic()
        while dripping and time.monotonic() < started + 10.0:
            dripping = [one for one in dripping if drip(one)]
        assert not dripping
        assert time.monotonic() - started >= 0.4
        assert is_served(served)


def drip(client: socket.socket) -> bool:
    """Sends one more byte; False once the server has ended the connection."""
    try:
        client.send(b"G")
        return client.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_whoever_takes_an_answer_drop_by_drop_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scrape_server._Handler, "timeout", 0.5)
    port = serve_gauges(8_000)  # more than a connection holds
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.socket()) for _ in range(MOST_CONNECTIONS)]
        for one in slow:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", port))
            one.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        ended = time.monotonic() + 20.0
        while not (is_free := is_served(port)) and time.monotonic() < ended:
            for one in slow:
                with suppress(ConnectionError):
                    one.recv(1)
        assert is_free
    assert capfd.readouterr() == ("", "")


def is_served(port: int) -> bool:
    """Whether there is a place for one more."""
    try:
        return ask(port, b"OPTIONS / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 200")
    except OSError:  # also "not connected" where it was reset by then
        return False


async def test_a_port_that_is_taken_is_wrong_usage() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(UsageError, match="cannot bind port"),
    ):
        await Exposition().serve(taken.getsockname()[1])


def test_what_an_engine_says_of_itself_is_written_whatever_it_is(tmp_path: Path) -> None:
    """Half of a surrogate pair ended `verify`, and the thread that answers a Prometheus."""
    seen = Fingerprints().seen()
    lied = replace(seen, build="b\ud800", path='p"\n}' + "x" * 10_000)
    gauges = Gauges("http://engine\udcff")
    gauges.show(compare(seen, lied), 1.0)
    gauges.write(tmp_path / "drift.prom")
    page = (tmp_path / "drift.prom").read_text()
    assert 'engine="http://engine\ufffd"' in page
    assert 'build="b\ufffd"' in page
    assert max(map(len, page.splitlines())) < 1_500
    checks = CheckGauges("http://engine\udcff")
    checks.mark_failed()
    checks.write(tmp_path / "check.prom")
    assert "\ufffd" in (tmp_path / "check.prom").read_text()


@pytest.mark.parametrize("name", ["pipe", "null"])
def test_no_page_takes_the_place_of_a_device_or_a_pipe(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    before = (tmp_path / name).lstat()
    with pytest.raises(UsageError, match="not a regular file"):
        CheckGauges("http://engine").write(tmp_path / name)
    assert os.path.samestat((tmp_path / name).lstat(), before)


@pytest.mark.parametrize("address", ["a..b", "..", "a" * 64, "\udcff", "no host"])
async def test_what_is_no_address_is_wrong_usage(address: str) -> None:
    with pytest.raises(UsageError, match="cannot bind port"):
        await Exposition().serve(find_free("127.0.0.1"), address)


async def test_a_name_server_that_is_silent_holds_up_no_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answers = threading.Event(), threading.Event()

    def wait(*args: object, **kwargs: object) -> list[Any]:
        asked.set()
        answers.wait(20)
        raise OSError(1, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    serving = asyncio.create_task(Exposition().serve(9, "a-host"))
    assert await asyncio.to_thread(asked.wait, 10)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(serving, 5)
    answers.set()
