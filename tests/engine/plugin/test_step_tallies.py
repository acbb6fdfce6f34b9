"""Drafts of whole steps, held against the same drafts counted one by one."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.drafting_scheduler import DraftingScheduler, make_request

from specdeck.engine.plugin.cohorts import read_cohorts
from specdeck.engine.plugin.request_counts import RequestCounts
from specdeck.engine.protocol.cohorts import Cohorts

K = 4


@dataclass
class Stats:
    """What vLLM sums a step up in."""

    num_spec_tokens: int
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens_per_pos: list[int] = field(default_factory=lambda: [0] * K)
    num_draft_tokens_per_pos: list[int] = field(default_factory=lambda: [0] * K)

    def observe_draft(self, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        self.num_drafts += 1
        self.num_draft_tokens += num_draft_tokens
        for position in range(num_draft_tokens):
            self.num_draft_tokens_per_pos[position] += 1
        for position in range(num_accepted_tokens):
            self.num_accepted_tokens_per_pos[position] += 1


class Engine:
    """A scheduler under load, whose drafts are counted by request beside it as well."""

    def __init__(self, seed: int, *, seats: int) -> None:
        self.random, self.seats, self.made = Random(seed), seats, 0
        self.scheduler = DraftingScheduler(K, Stats)
        self.counts = RequestCounts(self.scheduler, K)
        self.drafts, self.drafted, self.accepted = 0, [0] * K, [0] * K
        self.by_request: dict[str, list[int]] = {}

    def fill(self, most: int | None = None) -> None:
        """Takes requests until all seats are taken."""
        while len(self.scheduler.running) < self.seats:
            self.made += 1
            left = None if most is None else self.random.randrange(1, most)
            self.scheduler.add_request(make_request(self.made, left=left))

    def step(self, *, ragged: bool = False, invalid: bool = False, abort: bool = False) -> None:
        scheduler, random = self.scheduler, self.random
        output = scheduler.schedule()
        drafts = output.scheduled_spec_decode_tokens
        if ragged:
            for name in list(drafts):
                drafts[name] = drafts[name][: random.randrange(K + 1)]
        if invalid and drafts:
            output.num_invalid_spec_tokens = {next(iter(drafts)): 1}
        if abort and scheduler.running:
            scheduler.free(random.choice(scheduler.running))
        bad = output.num_invalid_spec_tokens or {}
        accepted = [
            random.randrange(K + 1 - bad.get(name, 0)) for name in output.num_scheduled_tokens
        ]
        for name, number in zip(output.num_scheduled_tokens, accepted, strict=True):
            if name in scheduler.requests and drafts.get(name):
                own = self.by_request.setdefault(name, [0, 0, 0])
                own[0] += 1
                own[1] += len(drafts[name]) - bad.get(name, 0)
                own[2] += min(number, len(drafts[name]))
        for each in scheduler.finish_step(output, accepted).values():
            stats = each.scheduler_stats.spec_decoding_stats
            if stats is not None:
                self.drafts += stats.num_drafts
                for sums, more in (
                    (self.drafted, stats.num_draft_tokens_per_pos),
                    (self.accepted, stats.num_accepted_tokens_per_pos),
                ):
                    sums[:] = [a + b for a, b in zip(sums, more, strict=True)]

    def told(self) -> Cohorts:
        return read_cohorts(
            {"k_max": K, "instance": "one", "t": 1.0, "cells": self.counts.cells.cells(),
             "folded": self.counts.cells.list_folded(), "unfinished": self.counts.sum_unfinished(),
             "drafts": 0, "drafted_per_position": (0,) * K, "accepted_per_position": (0,) * K}
        )  # fmt: skip

    def assert_sums(self) -> None:
        """What is told of requests comes to what vLLM counted, to the last draft."""
        found = self.told()
        both = [found.sum_finished(), found.unfinished]
        assert sum(each.drafts for each in both) == self.drafts
        for by, sums in (("drafted", self.drafted), ("accepted", self.accepted)):
            parts = [getattr(each, f"{by}_per_position") for each in both]
            assert [sum(at) for at in zip(*parts, strict=True)] == sums

    def assert_requests(self) -> None:
        """Each request under way has its own drafts."""
        for request, line in zip(self.scheduler.running, self.counts.active(), strict=False):
            own = self.by_request.get(request.request_id, [0, 0, 0])
            assert [line["drafts"], line["drafted"], line["accepted"]] == own


@pytest.mark.parametrize("seed", range(4))
def test_sums_and_requests_are_vllms_whatever_comes(seed: int) -> None:
    engine = Engine(seed, seats=40)
    for number in range(400):
        engine.fill(60)
        if number % 3 == 0:
            k = engine.random.randrange(K + 1)
            engine.scheduler.dynamic_sd_lookup = [k] * 2049
        kind = engine.random.random()
        engine.step(ragged=kind < 0.02, invalid=0.02 < kind < 0.06, abort=0.06 < kind < 0.2)
        if number % 7 == 0:
            engine.assert_sums()
            engine.assert_requests()
    engine.assert_sums()
    assert not engine.counts.failed


def test_a_large_batch_is_not_counted_draft_by_draft() -> None:
    engine = Engine(1, seats=64)
    engine.fill()
    for _ in range(3):
        engine.step()
    tallying = engine.scheduler.make_spec_decoding_stats
    calls = []

    def count(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs["request_id"])
        return tallying(*args, **kwargs)

    engine.counts._one_by_one = count
    engine.scheduler.make_spec_decoding_stats = count  # type: ignore[method-assign]
    for _ in range(50):
        engine.step()
    assert calls == []
    engine.assert_sums()
    engine.assert_requests()


def test_a_request_that_ends_has_the_drafts_of_its_last_step() -> None:
    engine = Engine(2, seats=30)
    engine.fill(12)
    while engine.scheduler.running:
        engine.step()
    found = engine.told()
    assert found.unfinished.drafts == 0
    assert found.sum_finished().requests == 30
    lines = {line["number"]: line["drafts"] for line in engine.counts.list_finished()}
    drafts = [own[0] for own in engine.by_request.values()]
    assert sorted(number for number in lines.values() if number) == sorted(drafts)


def test_drafts_that_vllm_leaves_out_for_reasons_of_its_own_are_in_no_sum() -> None:
    """Such as those of a request that was preempted meanwhile: whose they were is not known."""
    engine = Engine(3, seats=32)
    engine.fill()
    engine.step()
    engine.step()
    left_out = engine.scheduler.running[5].request_id
    output = engine.scheduler.schedule()
    del output.num_scheduled_tokens[left_out]
    accepted = [2] * len(engine.scheduler.running)
    sampled = [[1] * 3 for _ in accepted]
    ids = [request.request_id for request in engine.scheduler.running]
    result = SimpleNamespace(req_ids=ids, sampled_token_ids=sampled)
    for each in engine.scheduler.update_from_output(output, result).values():
        stats = each.scheduler_stats.spec_decoding_stats
        assert stats.num_drafts == 31
        engine.drafts += stats.num_drafts
        for position in range(K):
            engine.drafted[position] += stats.num_draft_tokens_per_pos[position]
            engine.accepted[position] += stats.num_accepted_tokens_per_pos[position]
    engine.assert_sums()
    (strange,) = engine.told().cells
    assert (strange.cohort.prompt, strange.counts.requests, strange.counts.drafts) == (
        "other", 0, 31,
    )  # fmt: skip
    for _ in range(100):
        engine.step()
    engine.assert_sums()


def test_an_engine_that_sums_nothing_up_is_counted_draft_by_draft() -> None:
    engine = Engine(4, seats=32)
    engine.scheduler.log_stats = False
    engine.fill()
    for _ in range(4):
        output = engine.scheduler.schedule()
        engine.scheduler.finish_step(output, [1] * 32)
    assert engine.told().unfinished.drafts == 3 * 32


def test_a_failure_while_a_step_is_read_ends_the_counting_and_not_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("vllm.specdeck"), "disabled", True)
    engine = Engine(5, seats=32)
    engine.fill()
    for _ in range(3):
        engine.step()

    def fail(*_: Any) -> bool:
        raise RuntimeError("ours")

    monkeypatch.setattr(engine.counts._steps, "begin", fail)
    engine.step()
    assert engine.counts.failed
    assert engine.drafts == 3 * 32
