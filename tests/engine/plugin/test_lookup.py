"""The list that vLLM's scheduler looks k up in, and when it has none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.plugin.capabilities import capabilities
from specdeck.engine.plugin.core_engine import CoreEngine
from specdeck.engine.plugin.lookup import Lookup
from specdeck.engine.policy.table import BUCKETS, bucket, everywhere

SEATS = 8


class Scheduler:
    """As much of vLLM's scheduler as taking hold and pinning touch."""

    def __init__(self, lookup: list[int] | None = None) -> None:
        self.dynamic_sd_lookup = lookup
        self.num_spec_tokens = 5
        self.requests: dict[str, Any] = {}
        self.running: list[Any] = []
        self.finished_req_ids: set[str] = set()

    def schedule(self) -> Any:
        """Looks k up as vLLM does, for whatever has come; what ended is told."""
        if self.dynamic_sd_lookup is not None and self.requests:
            _ = self.dynamic_sd_lookup[len(self.requests)]
        finished, self.finished_req_ids = self.finished_req_ids, set()
        return SimpleNamespace(scheduled_new_reqs=[], finished_req_ids=finished)

    def update_from_output(self) -> None:
        """Not called here."""

    def make_spec_decoding_stats(self) -> None:
        """Not called here."""

    def update_draft_token_ids(self) -> None:
        """Not called here."""

    def add_request(self, request: Any) -> None:
        """Takes a request in."""
        self.requests[request.request_id] = request

    def finish(self, name: str) -> None:
        """Ends a request."""
        self.requests.pop(name)
        self.finished_req_ids.add(name)
        self.schedule()


def held(
    scheduler: Scheduler,
    tiers: list[list[int]] | None = None,
    *,
    method: str | None = "draft_model",
) -> CoreEngine:
    """The engine core around `scheduler`, as the plugin holds it; no `method` drafts nothing."""
    spec = SimpleNamespace(
        method=method, num_speculative_tokens=5, num_speculative_tokens_per_batch_size=tiers
    )
    config = SimpleNamespace(
        speculative_config=spec if method else None,
        model_config=SimpleNamespace(served_model_name="demo", is_moe=False),
        parallel_config=SimpleNamespace(data_parallel_size=1),
        scheduler_config=SimpleNamespace(max_num_seqs=SEATS),
        use_v2_model_runner=False,
    )
    worker = {"drafter": "DraftModelProposer", "obeys": True, "skippable": True}
    executor = SimpleNamespace(collective_rpc=lambda *_, **__: [worker])
    core = SimpleNamespace(scheduler=scheduler, vllm_config=config, model_executor=executor)
    return CoreEngine(core)


def pinned(name: str) -> Any:
    """A request with a k of its own."""
    return SimpleNamespace(
        request_id=name, sampling_params=SimpleNamespace(extra_args={"specdeck_k": 0})
    )


def test_an_engine_that_drafts_k_max_has_no_list_as_without_the_plugin() -> None:
    scheduler = Scheduler()
    engine = held(scheduler)
    engine.set_k(5)
    # Only without one does vLLM pad one-token admissions to the shape of a full graph.
    assert scheduler.dynamic_sd_lookup is None
    assert engine.scheduled_k() == 5
    assert list(engine.schedule()) == [5] * (SEATS + 1)


@pytest.mark.parametrize("lookup", [None, [0, 0, 1, 2, 3, 4, 5, 5, 5]], ids=["none", "tiers"])
def test_another_k_has_a_list_and_k_max_none_again(lookup: list[int] | None) -> None:
    scheduler = Scheduler(lookup)
    engine = held(scheduler)
    for k in (3, 0, 4):
        engine.set_k(k)
        assert scheduler.dynamic_sd_lookup == [k] * (SEATS + 1)
        assert engine.scheduled_k() == k
    engine.set_k(5)
    assert scheduler.dynamic_sd_lookup is None


def test_a_policys_table_is_a_list() -> None:
    scheduler = Scheduler()
    engine = held(scheduler)
    engine.set_table([4, *everywhere(5).table[1:]])
    assert scheduler.dynamic_sd_lookup is not None
    assert set(scheduler.dynamic_sd_lookup) == {5, 4}


def test_the_configured_schedule_comes_back_after_k_max() -> None:
    tiers, configured = [[1, 4, 5], [5, 8, 2]], [0, 5, 5, 5, 5, 2, 2, 2, 2]
    scheduler = Scheduler(list(configured))
    engine = held(scheduler, tiers)
    assert scheduler.dynamic_sd_lookup == configured
    engine.set_k(5)
    engine.restore_schedule()
    assert scheduler.dynamic_sd_lookup == configured


def test_a_pinned_request_is_given_no_rows_of_vllms_making() -> None:
    scheduler = Scheduler()
    engine = held(scheduler)
    engine.set_k(5)
    scheduler.add_request(pinned("a"))
    scheduler.add_request(pinned("b"))
    assert scheduler.dynamic_sd_lookup == [5] * (SEATS + 1)
    scheduler.finish("a")
    assert scheduler.dynamic_sd_lookup is not None
    scheduler.finish("b")
    assert scheduler.dynamic_sd_lookup is None


@pytest.mark.parametrize("method", [None, "medusa", "custom_class"])
@pytest.mark.parametrize("lookup", [None, [0, 0, 1, 2, 3, 4, 5, 5, 5]], ids=["none", "tiers"])
def test_a_pinned_request_does_not_end_an_engine_whose_k_nobody_tells(
    method: str | None, lookup: list[int] | None
) -> None:
    # Any client can send one: an empty list ended the engine core, and with it every request.
    scheduler = Scheduler(None if lookup is None else list(lookup))
    engine = held(scheduler, method=method)
    assert not capabilities(engine.build)[0].available
    scheduler.add_request(pinned("a"))
    scheduler.schedule()
    assert scheduler.dynamic_sd_lookup == lookup
    scheduler.finish("a")
    assert scheduler.dynamic_sd_lookup == lookup


def test_pins_leave_another_k_alone() -> None:
    scheduler = Scheduler()
    engine = held(scheduler)
    engine.set_k(2)
    scheduler.add_request(pinned("a"))
    scheduler.finish("a")
    assert scheduler.dynamic_sd_lookup == [2] * (SEATS + 1)


TABLES = st.lists(st.integers(0, 2), min_size=BUCKETS, max_size=BUCKETS)


@given(st.sampled_from([2, 9, 257, 2100]), st.lists(TABLES | st.none(), max_size=6))
def test_every_batch_size_has_the_k_of_its_bucket_whatever_was_written_before(
    size: int, tables: list[list[int] | None]
) -> None:
    configured = [7] * size
    entries = list(configured)
    lookup = Lookup(entries)
    for table in tables:
        if table is None:
            lookup.restore(configured)
            assert entries == configured
        else:
            lookup.write(table)
            assert entries == [table[bucket(requests)] for requests in range(size)]
    assert lookup.entries is entries  # vLLM's own list, not another one


def test_only_the_buckets_that_moved_are_written() -> None:
    class Counted(list[int]):
        writes = 0

        def __setitem__(self, at: Any, value: Any) -> None:
            self.writes += 1
            super().__setitem__(at, value)

    entries = Counted([5] * 1025)
    lookup = Lookup(entries)
    lookup.write([3, *everywhere(5).table[1:]])
    entries.writes = 0
    lookup.write([3, 4, *everywhere(5).table[2:]])
    assert entries.writes == 1
    assert (entries[1], entries[2], entries[3]) == (3, 4, 5)
