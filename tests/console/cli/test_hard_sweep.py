"""`specdeck sweep --hard` before it begins: what it refuses, and that nothing was done by then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from specdeck.console.cli import hard_sweep
from specdeck.console.cli.engines import Access
from specdeck.console.cli.hard_sweep import OwnLoad, sweep_hard
from specdeck.engine.errors import ConfigError, Conflict, Place, UsageError
from specdeck.engine.operations.sweep import SweepRequest
from specdeck.engine.protocol.messages import Capability

if TYPE_CHECKING:
    from tests.console.conftest import Kit

    from specdeck.engine.protocol.messages import EngineState

OURS = Access("http://e:1")
OWN = OwnLoad("predictable", 4)
ABLE = (Capability("live_k", True), Capability("target_only", True))


class Client:
    """Tells a state; anything else would be a change, or a look at steps."""

    url = "http://e:1"

    def __init__(self, state: EngineState) -> None:
        self._state = state

    async def state(self) -> EngineState:
        return self._state

    async def close(self) -> None: ...


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Access]:
    """The engines beside which a second one was to be started: there is no memory for it."""
    asked: list[Access] = []

    @asynccontextmanager
    async def start(ours: Access) -> AsyncIterator[Access]:
        asked.append(ours)
        if asked:
            place = Place(Path("demo.yaml"))
            raise ConfigError("memory: 9 GB of 4 GB that are free", place=place)
        yield ours

    monkeypatch.setattr(hard_sweep, "start_reference_engine", start)
    return asked


def serve(monkeypatch: pytest.MonkeyPatch, state: EngineState, **found: Any) -> None:
    """Has the engine tell this state."""
    told = replace(state, **{"capabilities": ABLE, "running": 0, "waiting": 0, **found})
    monkeypatch.setattr(Access, "client", lambda _: Client(told))


async def test_without_memory_for_a_second_engine_nothing_is_changed(
    kit: type[Kit],
    started: list[Access],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serve(monkeypatch, kit.state)
    with pytest.raises(ConfigError, match="9 GB of 4 GB"):
        await sweep_hard(OURS, None, SweepRequest("ann"), OWN, as_json=False)
    assert started == [OURS]
    assert "--reference URL compares with an engine elsewhere" in capsys.readouterr().err


async def test_an_engine_with_traffic_is_refused_before_another_is_started(
    kit: type[Kit], started: list[Access], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, kit.state, running=2)
    with pytest.raises(Conflict, match="2 requests are in http://e:1"):
        await sweep_hard(OURS, None, SweepRequest("ann"), OWN, as_json=False)
    assert started == []


async def test_an_engine_that_cannot_skip_a_round_has_no_soft_zero(
    kit: type[Kit], started: list[Access], monkeypatch: pytest.MonkeyPatch
) -> None:
    cannot = (Capability("live_k", True), Capability("target_only", False, "it drafts always"))
    serve(monkeypatch, kit.state, capabilities=cannot)
    with pytest.raises(UsageError, match="it drafts always"):
        await sweep_hard(OURS, None, SweepRequest("ann"), OWN, as_json=False)
    assert started == []
