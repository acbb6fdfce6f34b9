"""What an engine is, as the plugin finds it in vLLM's configuration."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.plugin.contract import Build
from specdeck.engine.plugin.core_engine import CoreEngine

pytest.importorskip("vllm")


def build(**config: Any) -> Build:
    """The build of an engine core whose scheduler has nothing, with `config` beside the usual."""
    speculative = SimpleNamespace(
        method="eagle3", num_speculative_tokens=5, **config.pop("speculative", {})
    )
    usual = {
        "speculative_config": speculative,
        "parallel_config": SimpleNamespace(data_parallel_size=1),
        "model_config": SimpleNamespace(served_model_name="demo", is_moe=False),
        "scheduler_config": SimpleNamespace(),
    }
    core = SimpleNamespace(
        scheduler=SimpleNamespace(), vllm_config=SimpleNamespace(**usual | config)
    )
    return CoreEngine(core).build


def test_a_kv_connector_is_seen_however_it_was_configured() -> None:
    assert not build().kv_connector
    assert not build(kv_transfer_config=None).kv_connector
    # kv_offloading_size comes as one too: vLLM makes it the other.
    assert build(
        kv_transfer_config=SimpleNamespace(kv_connector="OffloadingConnector")
    ).kv_connector


def test_parallel_drafting_is_seen_wherever_vllm_found_it() -> None:
    assert not build().parallel_drafting
    assert build(speculative={"parallel_drafting": True}).drafts_all_or_none
