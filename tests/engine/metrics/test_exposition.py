"""Where a Prometheus can read the gauges, and where it cannot."""

from __future__ import annotations

import socket

import pytest

from specdeck.engine.errors import UsageError
from specdeck.engine.launch.ports import find_free
from specdeck.engine.metrics.exposition import Exposition

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


def test_a_port_that_is_taken_is_wrong_usage() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(UsageError, match="cannot bind port"),
    ):
        Exposition().serve(taken.getsockname()[1])
