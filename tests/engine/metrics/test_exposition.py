"""Where a Prometheus can read the gauges, and where it cannot."""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
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


def test_gauges_are_served_on_the_loopback_only() -> None:
    port = find_free("127.0.0.1")
    Exposition().serve(port)
    assert answers("127.0.0.1", port)
    assert not answers(ELSEWHERE, port)


def test_another_address_is_served_when_it_is_asked_for() -> None:
    port = find_free("127.0.0.1")
    Exposition().serve(port, "0.0.0.0")
    assert answers(ELSEWHERE, port)


def test_silent_connections_take_no_more_than_a_few_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scrape_server._Handler, "timeout", 0.5)
    port, gauges, before = find_free("127.0.0.1"), Exposition(), threading.active_count()
    gauges.serve(port)
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


def test_a_port_that_is_taken_is_wrong_usage() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(UsageError, match="cannot bind port"),
    ):
        Exposition().serve(taken.getsockname()[1])


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
