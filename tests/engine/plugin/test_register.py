"""Specdeck's own tiers, by which no scheduler may go, and what becomes of an operator's."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from specdeck.engine.plugin.register import register
from specdeck.engine.plugin.secret_values import format_values, list_values
from specdeck.engine.plugin.start_time import find_start
from specdeck.engine.protocol.messages import MASK_VARIABLE

TIERS = [0, 0, 1, 2, 3, 4, 5, 5, 5]


class Scheduler:
    """As vLLM's: it looks k up in the configured tiers."""

    def __init__(self, tiers: list[int] | None) -> None:
        self.dynamic_sd_lookup = tiers


class EngineCore:
    """Nothing of it is called."""


class WorkerBase:
    """Nothing of it is called."""


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for vLLM's modules, as the plugin imports them."""
    parts = {
        "vllm.v1.core.sched.scheduler": type("Scheduler", (Scheduler,), {}),
        "vllm.v1.engine.core": EngineCore,
        "vllm.v1.worker.worker_base": WorkerBase,
    }
    monkeypatch.setenv("_SPECDECK_BEGAN", "")  # what registering writes is taken back
    for name, part in parts.items():
        module = ModuleType(name)
        setattr(module, part.__name__, part)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def schedulers(vllm: None) -> tuple[type[Scheduler], type[Scheduler]]:
    """vLLM's two, once the plugin is registered: twice, as it may be."""
    register()
    register()
    plain: type[Scheduler] = sys.modules["vllm.v1.core.sched.scheduler"].Scheduler
    return plain, type("AsyncScheduler", (plain,), {})


def test_registering_notes_when_the_engine_began_to_start(vllm: None) -> None:
    assert find_start() is None
    register()
    assert find_start() is not None


def test_no_scheduler_goes_by_specdecks_own_tiers(
    schedulers: tuple[type[Scheduler], type[Scheduler]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDECK_TIERS", "1")
    for scheduler in schedulers:
        assert scheduler(list(TIERS)).dynamic_sd_lookup is None
        assert scheduler(None).dynamic_sd_lookup is None


def test_an_operators_schedule_is_left_alone(
    schedulers: tuple[type[Scheduler], type[Scheduler]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPECDECK_TIERS", raising=False)
    for scheduler in schedulers:
        assert scheduler(list(TIERS)).dynamic_sd_lookup == TIERS


def test_the_tiers_go_even_where_the_rest_of_the_plugin_fails(
    vllm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDECK_TIERS", "1")
    monkeypatch.delattr(sys.modules["vllm.v1.engine.core"], "EngineCore")
    register()
    scheduler = sys.modules["vllm.v1.core.sched.scheduler"].Scheduler
    assert scheduler(list(TIERS)).dynamic_sd_lookup is None


def test_the_servers_credentials_are_known_when_their_file_is_gone(
    vllm: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An API server deletes it before the core's facts are read, and after the core's start."""
    file = tmp_path / "arguments"
    file.write_text(format_values(["s3cr3t-pw"]))
    monkeypatch.setenv(MASK_VARIABLE, str(file))
    monkeypatch.setattr("specdeck.engine.plugin.register.mask_logs", lambda: None)
    register()
    file.unlink()
    assert list_values() == ("s3cr3t-pw",)
