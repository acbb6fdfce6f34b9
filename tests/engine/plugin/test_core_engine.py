"""What an engine is, as the plugin finds it in vLLM's configuration."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.vllm_parts import EngineCore, Scheduler

from specdeck.engine.plugin.capabilities import capabilities
from specdeck.engine.plugin.control import Control
from specdeck.engine.plugin.core_engine import CoreEngine
from specdeck.engine.plugin.engine import Build
from specdeck.engine.plugin.fingerprint import Identity

pytest.importorskip("vllm")


def build(**config: Any) -> Build:
    """The build of an engine core with `config` beside the usual."""
    given = {"method": "eagle3", "num_speculative_tokens": 5} | config.pop("speculative", {})
    speculative = SimpleNamespace(**given)
    core = EngineCore(config.pop("drafters", []))
    usual = vars(core.vllm_config)
    together = vars(usual["speculative_config"]) | vars(speculative)
    core.vllm_config = SimpleNamespace(
        **usual | {"speculative_config": SimpleNamespace(**together)} | config
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


NONE = {"drafter": None, "obeys": True, "skippable": False, "captured": None}
SKIPPABLE = {"drafter": "EagleSpeculator", "obeys": True, "skippable": True, "captured": [5]}


@pytest.mark.parametrize(("drafters", "able"), [
    ([SKIPPABLE], True), ([NONE, SKIPPABLE], True), ([NONE], False),
    ([SKIPPABLE, {**SKIPPABLE, "skippable": False}], False),
])  # fmt: skip
def test_stages_without_a_drafter_keep_nobody_from_leaving_it_out(
    drafters: list[dict[str, Any]], able: bool
) -> None:
    assert build(drafters=drafters).can_skip_drafter is able


def test_the_reach_of_full_graphs_goes_by_what_was_captured() -> None:
    mode = SimpleNamespace(has_full_cudagraphs=lambda: True, separate_routine=lambda: True)
    compilation = SimpleNamespace(cudagraph_mode=mode, cudagraph_capture_sizes=[6, 12, 24])
    without = build(compilation_config=compilation)
    assert [reach.requests for reach in without.graph_reach] == [0, 0, 0, 0, 0, 4]
    tiers = {"num_speculative_tokens_per_batch_size": [[1, 1, 0], [2, 8, 5]]}
    with_tiers = build(compilation_config=compilation, speculative=tiers)
    assert [reach.requests for reach in with_tiers.graph_reach] == [6, 0, 0, 0, 0, 4]
    assert build(compilation_config=SimpleNamespace(cudagraph_mode=None)).graph_reach == ()


def test_the_drafters_rows_are_vllms_word_or_the_most_of_any() -> None:
    assert build(speculative={"max_num_new_slots_for_drafting": 0}).draft_slots == 0
    assert build().draft_slots == 1
    core = EngineCore()
    del core.vllm_config.speculative_config.max_num_new_slots_for_drafting
    assert CoreEngine(core).build.draft_slots == 5


def test_how_it_is_known_goes_by_version_device_runner_and_method() -> None:
    on_a_cpu = {"device_config": SimpleNamespace(device_type="cpu")}
    tried = build(speculative={"method": "draft_model"}, **on_a_cpu)
    assert {one.how for one in capabilities(replace(tried, vllm="0.32.0"))} == {"run here"}
    for other in (
        replace(tried, vllm="0.33.0"),
        replace(tried, vllm="0.32.0", device="cuda"),
        replace(tried, vllm="0.32.0", runner="V2"),
        replace(tried, vllm="0.32.0", method="eagle3"),
    ):
        assert {one.how for one in capabilities(other)} == {"read in source"}


class SpeechlessScheduler(Scheduler):
    """Of an engine without speculation: a token for each request in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.num_spec_tokens = 0
        self.running = [1, 2]

    def schedule(self) -> Any:
        return SimpleNamespace(
            num_scheduled_tokens={"a": 1, "b": 1}, total_num_scheduled_tokens=2,
            num_spec_tokens_to_schedule=0, scheduled_spec_decode_tokens={},
            scheduled_new_reqs=[], finished_req_ids=set(),
        )  # fmt: skip

    def update_from_output(self, scheduler_output: Any, runner_output: Any) -> Any:
        tokens = [SimpleNamespace(request_id=name, new_token_ids=[7]) for name in ("a", "b")]
        return {0: SimpleNamespace(outputs=tokens)}


def test_an_engine_without_speculation_tells_its_steps() -> None:
    """`sweep --hard` measures such an engine by them."""
    core = EngineCore([NONE])
    core.scheduler = SpeechlessScheduler()
    core.vllm_config.speculative_config = None
    engine = CoreEngine(core)
    control = Control(
        engine, Identity({}), instance="plain", orchestration={}, clock=lambda: 0.0,
        wall=lambda: 0.0,
    )  # fmt: skip
    for _ in range(3):
        core.scheduler.update_from_output(core.scheduler.schedule(), None)
    steps = control.answer("steps", 0)["steps"]
    assert [(step.step, step.k, step.requests, step.committed) for step in steps] == [
        (1, 0, 2, 2), (2, 0, 2, 2), (3, 0, 2, 2),
    ]  # fmt: skip
    assert all(step.seconds is not None for step in steps[1:])
    state = control.state()
    assert (state.k_max, state.method, state.mode) == (0, None, "target-only")
