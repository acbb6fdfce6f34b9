"""What an engine lacks of the contract becomes a reason, never an exception."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.vllm_parts import EngineCore

from specdeck.engine.plugin.capabilities import capabilities, lose
from specdeck.engine.plugin.contract import ROWS, Gap, Loss, by_loss
from specdeck.engine.plugin.control import answer_call
from specdeck.engine.plugin.core_engine import CoreEngine
from specdeck.engine.plugin.take_hold import find_client_gaps, find_core_gaps, find_gaps

pytest.importorskip("vllm")


def lost(core: Any) -> set[Loss]:
    """What `core` cannot do for the lack of something."""
    return set(by_loss(find_core_gaps(core)))


def test_a_core_that_has_everything_lacks_nothing() -> None:
    assert find_core_gaps(EngineCore()) == ()


def without(path: str) -> EngineCore:
    """A core in which the attribute at `path`, of its own or of a class, is not there."""
    core = EngineCore()
    *above, name = path.split(".")
    thing: Any = core
    for each in above:
        thing = getattr(thing, each)
    if name in vars(thing):
        delattr(thing, name)
    else:
        hidden = {k: v for k, v in vars(type(thing)).items() if k != name}
        thing.__class__ = type(type(thing).__name__, (), hidden)
    return core


@pytest.mark.parametrize(
    ("path", "loss", "capability", "said"),
    [
        ("scheduler.dynamic_sd_lookup", "live_k", "live_k", "Scheduler.dynamic_sd_lookup"),
        ("scheduler.schedule", "live_k", "live_k", "Scheduler.schedule"),
        ("scheduler.get_request_counts", "live_k", "live_k", "Scheduler.get_request_counts"),
        ("scheduler._free_request", "cohorts", "cohorts", "Scheduler._free_request"),
        ("scheduler.running", "live_k", "live_k", "Scheduler.running"),
        ("model_executor.collective_rpc", "live_k", "live_k", "Executor.collective_rpc"),
        ("scheduler", "live_k", "live_k", "EngineCore.scheduler"),
        ("vllm_config.parallel_config", "live_k", "live_k", "VllmConfig.parallel_config"),
        (
            "vllm_config.speculative_config.parallel_drafting",
            "live_k",
            "live_k",
            "SpeculativeConfig.p",
        ),
        ("reset_prefix_cache", "cold", "cold", "EngineCore.reset_prefix_cache"),
        ("scheduler.reset_prefix_cache", "cold", "cold", "Scheduler.reset_prefix_cache"),
        ("scheduler.add_request", "request_k", "request_k", "Scheduler.add_request"),
        (
            "scheduler.kv_cache_manager",
            "calibration",
            "calibration",
            "Scheduler.kv_cache_manager",
        ),
        (
            "model_executor.sample_tokens",
            "calibration",
            "calibration",
            "Executor.sample_tokens",
        ),
        ("scheduler.finished_req_ids", "request_k", "request_k", "Scheduler.finished_req_ids"),
    ],
)
def test_what_is_missing_is_a_capability_with_its_name(
    path: str, loss: Loss, capability: str, said: str
) -> None:
    core = without(path)
    assert loss in lost(core)
    state = json.loads(answer_call(core, "state", "null"))
    can = {one["name"]: one for one in state["capabilities"]}
    assert not can[capability]["available"]
    assert f"has no {said}" in can[capability]["reason"]
    assert can[capability]["remedy"]
    assert can["live_k"]["available"] == (loss != "live_k")
    assert can["policy.fixed"]["available"]


def test_cohorts_are_told_of_a_core_that_has_what_they_take_and_refused_of_another() -> None:
    found = json.loads(answer_call(EngineCore(), "cohorts", "null"))
    assert (found["cells"], found["k_max"], found["drafts"]) == ([], 5, 0)
    listed = json.loads(answer_call(EngineCore(), "requests", "null"))
    assert (listed["active"], listed["finished"], listed["k"]) == ([], [], 5)
    for command in ("cohorts", "requests"):
        refused = json.loads(answer_call(without("scheduler._free_request"), command, "null"))
        assert (refused["status"], refused["error"]["code"]) == (501, "cohorts")
        assert "has no Scheduler._free_request" in refused["error"]["message"]


def test_what_specdeck_can_do_without_takes_nothing_away() -> None:
    for path in ("scheduler.make_stats", "set_weight_version"):
        core = without(path)
        assert find_core_gaps(core)
        assert lost(core) == set()
        assert all(one["available"] for one in json.loads(answer_call(core, "state", "null"))
                   ["capabilities"])  # fmt: skip


def test_a_parameter_that_went_is_missed_unless_anything_is_taken() -> None:
    def rename(core: Any) -> None:
        core.scheduler.make_spec_decoding_stats = lambda stats, drafted, accepted: None

    def take_all(core: Any) -> None:
        core.scheduler.make_spec_decoding_stats = lambda *args, **kwargs: None

    def find(change: Callable[[Any], None]) -> tuple[Gap, ...]:
        core = EngineCore()
        change(core)
        return find_core_gaps(core)

    (gap,) = find(rename)
    assert "Scheduler.make_spec_decoding_stats(num_draft_tokens)" in gap.missing
    assert find(take_all) == ()


def test_the_facts_say_why_they_are_not_read() -> None:
    core = without("vllm_config.model_config.tokenizer")
    facts = json.loads(answer_call(core, "facts", "null"))
    assert "ModelConfig.tokenizer" in facts["partial"][0]["reason"]
    assert facts["progress"]["finished"]
    assert json.loads(answer_call(core, "state", "null"))["fingerprint"].startswith("sd1:p~")


def test_classes_are_looked_at_in_the_modules_that_are_loaded() -> None:
    class Request:
        request_id: str

        def __init__(self) -> None:
            self.sampling_params = self.spec_token_ids = None

        def num_output_tokens(self) -> int:
            return 0

    rows = [row for row in ROWS if row.name == "Request" and "plugin.request_pins" in row.users]
    modules = {"vllm.v1.request": SimpleNamespace(Request=Request)}
    (gap,) = find_gaps({}, "core", rows=rows, modules=modules)
    assert gap.missing == ("Request.is_finished",)
    (gone,) = find_gaps({}, "core", rows=rows, modules={"vllm.v1.request": SimpleNamespace()})
    assert gone.missing == ("Request",)
    assert find_gaps({}, "core", rows=rows, modules={}) == ()


def test_what_an_api_server_lacks_is_taken_from_what_the_engine_can() -> None:
    client = SimpleNamespace(vllm_config=None, engine_core=None, input_processor=None)
    assert by_loss(find_client_gaps(client)).keys() <= {"live_k", "request_k"}
    processor = SimpleNamespace(process=lambda: None)
    gaps = find_client_gaps(SimpleNamespace(**vars(client) | {"input_processor": processor}))
    assert "InputProcessor.process_inputs" in {gap.row.name for gap in gaps}
    able = [asdict(one) for one in capabilities(CoreEngine(EngineCore()).build)]
    found = {one["name"]: one for one in lose(able, gaps, "0.40.0")}
    assert not found["request_k"]["available"]
    assert "vLLM 0.40.0 has no InputProcessor.process_inputs" in found["request_k"]["reason"]
    assert found["live_k"]["available"]
    counters = Gap(next(row for row in ROWS if row.loses == "counters"), ("SchedulerStats",))
    assert lose(able, [counters], "0.40.0") == able  # that row is optional
    figures = next(row for row in ROWS if row.loses == "counters" and not row.optional)
    (*_, last) = lose(able, [Gap(figures, ("StatLoggerBase",))], "0.40.0")
    assert (last["name"], last["available"]) == ("counters", False)


def test_the_installed_vllms_classes_lack_nothing() -> None:
    code = (
        "import sys\n"
        "for name in ('torchvision', 'torchaudio', 'torchcodec'):\n"
        "    sys.modules.setdefault(name, None)\n"
        "import vllm.v1.worker.cpu_worker, vllm.v1.worker.gpu_model_runner\n"
        "import vllm.v1.engine.core, vllm.v1.core.sched.async_scheduler\n"
        "from vllm.v1.spec_decode.draft_model import DraftModelProposer\n"
        "from specdeck.engine.plugin.take_hold import find_gaps\n"
        "drafter = object.__new__(DraftModelProposer)\n"
        "drafter.num_speculative_tokens, drafter._last_draft_probs = 5, None\n"
        "for process in ('worker', 'core', 'api'):\n"
        "    print([gap.missing for gap in find_gaps({'drafter': drafter}, process)])\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert found.stdout.splitlines()[-3:] == ["[]", "[]", "[]"]
