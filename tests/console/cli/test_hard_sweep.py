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
from specdeck.console.cli.run import start_reference_engine
from specdeck.engine.config.loader import load as load_config
from specdeck.engine.errors import ConfigError, Conflict, Place, Unsupported, UsageError
from specdeck.engine.launch.registry import Record
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


async def test_a_config_that_was_changed_since_the_start_is_no_reference(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("model: /nowhere/a\n")
    record = Record(
        name="demo", url="http://e:1", pid=1, born=1, boot=None, started=1.0, log="", token_file="",
        config=str(path), arguments=load_config(path).arguments_digest,
    )  # fmt: skip
    path.write_text("# the same engine\nport: 9000\nmodel: /nowhere/a\n")
    with pytest.raises(ConfigError, match="/nowhere/a does not exist"):
        await start_reference_engine(Access("http://e:1", record)).__aenter__()
    path.write_text("model: /nowhere/b\n")
    with pytest.raises(Unsupported, match=r"a.yaml says otherwise than when demo was started"):
        await start_reference_engine(Access("http://e:1", record)).__aenter__()
    older = replace(record, arguments=None)
    with pytest.raises(ConfigError, match="/nowhere/b does not exist"):
        await start_reference_engine(Access("http://e:1", older)).__aenter__()
