"""Dummy steps on an engine core: what the workers are told, and that nothing stays."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.vllm_parts import EngineCore

from specdeck.engine.plugin.core_engine import CoreEngine
from specdeck.engine.plugin.dummy_steps import DummySteps
from specdeck.engine.plugin.null_block import keep, restore

pytest.importorskip("vllm")


class Workers:
    """An executor that remembers what it is told, and takes 10 ms a step."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[Any] = []
        self.on_step: Any = lambda: None
        self.broken = False

    def clock(self) -> float:
        return self.now

    def execute_model(self, output: Any) -> Any:
        self.told.append(output)
        self.now += 0.010 if output.total_num_scheduled_tokens else 0.001
        if self.broken and output.scheduled_spec_decode_tokens:
            raise RuntimeError("a worker failed")
        self.on_step()
        return None

    def sample_tokens(self, grammar: Any) -> Any:
        self.told.append("sample")

    def take_draft_token_ids(self) -> Any:
        self.told.append("drafts")

    def collective_rpc(self, method: str, timeout: Any = None, args: Any = ()) -> list[Any]:
        assert method == "specdeck_worker"
        self.told.append(args)
        return []

    @property
    def outputs(self) -> list[Any]:
        return [one for one in self.told if hasattr(one, "num_scheduled_tokens")]


def make() -> tuple[DummySteps, Workers, Any]:
    """Dummy steps on a core that nobody asks for anything."""
    core: Any = EngineCore()
    core.model_executor = workers = Workers()
    core.input_queue = queue.Queue()
    return DummySteps(core, clock=workers.clock), workers, core


def test_requests_begin_verify_and_end_on_the_null_block() -> None:
    dummies, workers, _ = make()
    found = dummies.run(3, 2, 4, budget_s=9.0)
    assert found.seconds == pytest.approx((0.010,) * 4)
    assert not found.interrupted
    first, *steps, last = workers.outputs
    ids = [one.req_id for one in first.scheduled_new_reqs]
    assert len(set(ids)) == 3
    assert {
        block for one in first.scheduled_new_reqs for group in one.block_ids for block in group
    } == {0}
    assert first.total_num_scheduled_tokens == 3
    for step in steps:
        assert step.num_scheduled_tokens == dict.fromkeys(ids, 3)
        assert step.total_num_scheduled_tokens == 9
        assert {len(drafts) for drafts in step.scheduled_spec_decode_tokens.values()} == {2}
        assert step.num_spec_tokens_to_schedule == 2
        assert step.scheduled_cached_reqs.num_output_tokens == [1] * 3
    assert last.finished_req_ids == set(ids)
    assert last.total_num_scheduled_tokens == 0
    assert (workers.told[0], workers.told[-1]) == (("keep", 0), ("restore",))


def test_without_drafts_a_step_has_one_token_of_each() -> None:
    dummies, workers, _ = make()
    dummies.run(2, 0, 1, budget_s=9.0)
    step = workers.outputs[1]
    assert step.total_num_scheduled_tokens == 2
    assert step.scheduled_spec_decode_tokens == {}


def test_the_scheduler_hears_nothing_of_them() -> None:
    dummies, _, core = make()
    core.scheduler.schedule = core.scheduler.update_from_output = None
    before = dict(vars(core.scheduler))
    dummies.run(2, 3, 4, budget_s=9.0)
    assert vars(core.scheduler) == before


def test_whoever_asks_meanwhile_waits_for_one_step() -> None:
    dummies, workers, core = make()

    def arrive() -> None:
        if len(workers.outputs) == 3:  # in the second of the steps
            core.input_queue.put("a request")

    workers.on_step = arrive
    found = dummies.run(2, 3, 9, budget_s=9.0)
    assert found.interrupted
    assert len(found.seconds) == 2
    assert workers.outputs[-1].finished_req_ids
    assert workers.told[-1] == ("restore",)


def test_one_that_came_before_lets_no_step_be_timed() -> None:
    dummies, workers, core = make()
    core.input_queue.put("a request")
    assert dummies.run(2, 3, 9, budget_s=9.0) == ((), True)
    assert workers.told[-1] == ("restore",)


def test_no_more_is_begun_than_fits() -> None:
    dummies, _, _ = make()
    assert len(dummies.run(2, 3, 16, budget_s=0.025).seconds) == 2


def test_a_failure_leaves_no_request_behind() -> None:
    dummies, workers, _ = make()
    workers.broken = True
    with pytest.raises(RuntimeError, match="a worker failed"):
        dummies.run(2, 3, 4, budget_s=9.0)
    assert workers.outputs[-1].finished_req_ids
    assert workers.told[-1] == ("restore",)


@pytest.mark.parametrize(("longest", "context"), [(1024, 128), (64, 50), (8, 1)])
def test_the_context_fits_the_model(longest: int, context: int) -> None:
    dummies, workers, core = make()
    core.vllm_config.model_config.max_model_len = longest
    dummies.run(1, 5, 1, budget_s=9.0)
    assert len(workers.outputs[0].scheduled_new_reqs[0].prompt_token_ids) == context


def test_what_a_worker_wrote_is_put_back() -> None:
    torch = pytest.importorskip("torch")
    caches = [torch.arange(24.0).reshape(4, 6), torch.arange(16.0).reshape(2, 4, 2)]
    before = [cache.clone() for cache in caches]
    worker: Any = SimpleNamespace(
        model_runner=SimpleNamespace(
            kv_caches=caches,
            kv_cache_config=SimpleNamespace(num_blocks=4),
            drafter=SimpleNamespace(num_speculative_tokens=8),
        )
    )
    state = torch.get_rng_state()
    keep(worker, 0)
    caches[0][0] = -1.0
    caches[1][:, 0] = -1.0
    torch.rand(3)
    worker.model_runner.drafter.num_speculative_tokens = 2
    restore(worker)
    assert all(torch.equal(*pair) for pair in zip(caches, before, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert worker.model_runner.drafter.num_speculative_tokens == 8
    caches[0][0] = -1.0
    restore(worker)  # once
    assert caches[0][0, 0] == -1.0


@pytest.mark.parametrize(
    ("counts", "finished", "idle"),
    [((0, 0), set(), True), ((1, 0), set(), False), ((0, 1), set(), False), ((0, 0), {"r"}, False)],
)
def test_an_engine_is_idle_once_the_workers_know_of_every_end(
    counts: tuple[int, int], finished: set[str], idle: bool
) -> None:
    core = EngineCore()
    core.scheduler.get_request_counts = lambda: counts
    core.scheduler.finished_req_ids = finished
    assert CoreEngine(core).is_idle() == idle


def test_an_engine_core_makes_them_as_it_is_asked() -> None:
    core: Any = EngineCore()
    made = CoreEngine(core).make_dummy_steps(2, 3, 4)
    assert len(made.seconds) == 4
    assert not made.interrupted
