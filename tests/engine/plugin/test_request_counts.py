"""What is told of a scheduler's requests, over a stand-in that counts drafts as vLLM does."""

from __future__ import annotations

import gc
import json
import logging
import weakref
from time import time
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from specdeck.engine.plugin.cohorts import read_cohorts
from specdeck.engine.plugin.request_counts import RequestCounts
from specdeck.engine.protocol.cohorts import Cohort, Cohorts
from specdeck.engine.protocol.requests import MOST_FINISHED, MOST_WAITING, RequestLine

K = 3


class Scheduler:
    """As much of vLLM's scheduler as it takes, with vLLM's own counters beside it."""

    def __init__(self) -> None:
        self.requests: dict[str, Any] = {}
        self.running: list[Any] = []
        self.drafts = 0
        self.drafted = [0] * K
        self.accepted = [0] * K
        self.freed: list[str] = []

    def add_request(self, request: Any) -> None:
        self.requests.setdefault(request.request_id, request)

    def make_spec_decoding_stats(
        self,
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: Any,
        request_id: str,
    ) -> Any:
        if not num_draft_tokens:
            return None
        if num_invalid_spec_tokens:
            num_draft_tokens -= num_invalid_spec_tokens.get(request_id, 0)
        self.drafts += 1
        for position in range(num_draft_tokens):
            self.drafted[position] += 1
        for position in range(num_accepted_tokens):
            self.accepted[position] += 1
        return "stats"

    def _free_request(self, request: Any, delay_free_blocks: bool = False) -> str:
        self.freed.append(request.request_id)
        del self.requests[request.request_id]
        return "freed"

    def draft(self, name: str, drafted: int, accepted: int, invalid: int = 0) -> Any:
        """As `update_from_output` calls it."""
        return self.make_spec_decoding_stats(
            None,
            num_draft_tokens=drafted,
            num_accepted_tokens=accepted,
            num_invalid_spec_tokens={name: invalid} if invalid else None,
            request_id=name,
        )


STRUCTURES = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")


def request(name: str, **told: Any) -> Any:
    """A request as vLLM has it; unless told, greedy, of 20 tokens, of which 16 were cached."""
    structure = told.pop("structure", None)
    outputs = {each: "x" if each == structure else None for each in STRUCTURES}
    params = {
        "temperature": told.pop("temperature", 0.0),
        "extra_args": told.pop("extra_args", None),
        "structured_outputs": SimpleNamespace(**outputs) if structure else None,
        "allowed_token_ids": None, "logit_bias": None, "bad_words": None,
        "frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0,
        **told.pop("params", {}),
    }  # fmt: skip
    lora = told.pop("adapter", None)
    reason = SimpleNamespace(name=told.pop("reason", "STOP"))
    usual = {
        "request_id": name,
        "sampling_params": SimpleNamespace(**params),
        "lora_request": None if lora is None else SimpleNamespace(lora_name=lora),
        "num_prompt_tokens": 20,
        "num_output_tokens": 5,
        "num_preemptions": 0,
        "arrival_time": 1.0,
        "prefill_stats": SimpleNamespace(num_prompt_tokens=20, num_cached_tokens=16),
        "get_finished_reason": lambda: reason,
    }
    return SimpleNamespace(**usual | told)


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


@pytest.fixture
def counts(scheduler: Scheduler) -> RequestCounts:
    return RequestCounts(scheduler, K)


def told(counts: RequestCounts) -> Cohorts:
    return read_cohorts(
        {"k_max": K, "instance": "one", "t": 1.0, "cells": counts.cells.cells(),
         "folded": counts.cells.list_folded(), "unfinished": counts.sum_unfinished(), "drafts": 0,
         "drafted_per_position": (0,) * K, "accepted_per_position": (0,) * K}
    )  # fmt: skip


def finish(scheduler: Scheduler, one: Any) -> None:
    """As vLLM ends a request; it lets go of what was cached at the first token."""
    assert scheduler._free_request(one, delay_free_blocks=False) == "freed"


class Sent(SimpleNamespace):
    """What a client asked with; it can be referred to weakly."""


def test_nothing_of_what_a_client_sent_is_held_once_a_request_has_ended(
    scheduler: Scheduler, counts: RequestCounts
) -> None:
    one = request("r", structure="json", extra_args={"specdeck_k": 2, "x": "y" * 1000})
    one.sampling_params = Sent(**vars(one.sampling_params))
    scheduler.add_request(one)
    scheduler.draft("r", 2, 1)
    sent = weakref.ref(one.sampling_params)
    finish(scheduler, one)
    del one
    gc.collect()
    assert sent() is None
    (line,) = counts.list_finished()
    assert (line["k"], line["structured"]) == (2, "json")


def test_a_finished_request_is_told_by_its_kind(
    scheduler: Scheduler, counts: RequestCounts
) -> None:
    one = request("r", temperature=0.7, structure="regex", adapter="sql", reason="LENGTH",
                  extra_args={"specdeck_k": 2}, num_preemptions=2)  # fmt: skip
    scheduler.add_request(one)
    one.prefill_stats = None  # taken with the first token
    assert scheduler.draft("r", 3, 2) == "stats"
    finish(scheduler, one)
    (cell,) = told(counts).cells
    assert cell.cohort == Cohort(
        "16-63", "75-100%", "4-15", "sql", "regex", "sampled", "yes", "length"
    )
    assert (cell.counts.prompt_tokens, cell.counts.output_tokens) == (20, 5)
    assert (cell.counts.preemptions, cell.counts.drafts) == (2, 1)
    assert scheduler.freed == ["r"]


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({}, "none"),
        ({"allowed_token_ids": [1, 2], "frequency_penalty": 0.5}, "allowed_tokens"),
        ({"logit_bias": {7: -100.0}}, "logit_bias"),
        ({"bad_words": ["no"]}, "bad_words"),
        ({"bad_words": []}, "none"),
        ({"frequency_penalty": 0.1}, "penalties"),
        ({"presence_penalty": -0.1}, "penalties"),
        ({"repetition_penalty": 1.05}, "penalties"),
    ],
)
def test_what_a_draft_does_not_know_of_the_output_is_told(
    scheduler: Scheduler, counts: RequestCounts, params: dict[str, Any], word: str
) -> None:
    one, structured = request("r", params=params), request("s", params=params, structure="json")
    for each in (one, structured):
        scheduler.add_request(each)
        finish(scheduler, each)
    assert {cell.cohort.structured for cell in told(counts).cells} == {word, "json"}


def test_sums_are_vllms_own_at_every_moment(scheduler: Scheduler, counts: RequestCounts) -> None:
    names = [f"r{number}" for number in range(6)]
    held = {name: request(name, num_prompt_tokens=4**n) for n, name in enumerate(names)}
    for one in held.values():
        scheduler.add_request(one)
    moves = [("r0", 3, 3, 0), ("r1", 2, 0, 0), ("r0", 1, 1, 0), ("r2", 3, 0, 3), ("r3", 3, 1, 1)]
    for name, drafted, accepted, invalid in moves * 3:
        scheduler.draft(name, drafted, accepted, invalid)
        found = told(counts)
        everything = [found.sum_finished(), found.unfinished]
        assert sum(each.drafts for each in everything) == scheduler.drafts
        for by, sums in (("drafted", scheduler.drafted), ("accepted", scheduler.accepted)):
            parts = [getattr(each, f"{by}_per_position") for each in everything]
            assert [sum(at) for at in zip(*parts, strict=True)] == sums
        if name in scheduler.requests and scheduler.drafts > 8:
            finish(scheduler, held[name])
            scheduler.add_request(held[name])  # the next one under that name
    for name in names:
        finish(scheduler, held[name])
    assert told(counts).unfinished.drafts == 0
    assert told(counts).sum_finished().drafts == scheduler.drafts
    assert not counts._tallies
    assert not counts._held


def test_one_that_was_aborted_before_it_ran_counts_as_a_request(
    scheduler: Scheduler, counts: RequestCounts
) -> None:
    never = SimpleNamespace(num_prompt_tokens=0, num_cached_tokens=0)
    one = request("r", reason="ABORT", num_output_tokens=0, prefill_stats=never)
    scheduler.add_request(one)
    finish(scheduler, one)
    (cell,) = told(counts).cells
    assert (cell.cohort.finish, cell.cohort.cached, cell.cohort.output) == ("abort", "other", "0")
    assert (cell.counts.requests, cell.counts.drafts) == (1, 0)


def test_a_request_that_cannot_be_told_is_counted_as_other_and_said_once(
    scheduler: Scheduler, counts: RequestCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    logger = logging.getLogger("vllm.specdeck")
    monkeypatch.setattr(logger, "exception", said.append)
    for name in "ab":
        one = request(name)
        one.sampling_params = None
        scheduler.add_request(one)
        scheduler.draft(name, 3, 1)
        finish(scheduler, one)
    (cell,) = told(counts).cells
    assert set(vars_of(cell.cohort)) == {"other"}
    assert cell.counts.drafts == scheduler.drafts == 2
    assert len(said) == 1
    assert not counts.failed


def vars_of(cohort: Cohort) -> list[str]:
    return [getattr(cohort, name) for name in Cohort.__dataclass_fields__]


def test_a_word_of_vllms_that_is_not_known_is_other(
    scheduler: Scheduler, counts: RequestCounts
) -> None:
    one = request("r", reason="TELEPORTED")
    scheduler.add_request(one)
    finish(scheduler, one)
    assert told(counts).cells[0].cohort.finish == "other"


def test_a_failure_of_ours_ends_the_counting_and_not_the_engine(
    scheduler: Scheduler, counts: RequestCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("vllm.specdeck"), "disabled", True)
    one = request("r")
    scheduler.add_request(one)
    scheduler.draft("r", 3, 1)
    del one.num_prompt_tokens
    finish(scheduler, one)
    assert counts.failed
    assert scheduler.draft("s", 3, 1) == "stats"
    assert not counts._tallies


def test_a_draft_beyond_any_k_ends_the_counting_and_not_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("vllm.specdeck"), "disabled", True)
    scheduler = Scheduler()
    counts = RequestCounts(scheduler, 1)
    scheduler.add_request(request("r"))
    assert scheduler.draft("r", K, K) == "stats"
    assert counts.failed


def test_a_vllm_without_the_names_is_left_alone_and_says_which() -> None:
    class Bare:
        requests: ClassVar[dict[str, Any]] = {}
        running: ClassVar[list[Any]] = []
        add_request = Scheduler.add_request
        make_spec_decoding_stats = Scheduler.make_spec_decoding_stats

    bare = Bare()
    counts = RequestCounts(bare, K)
    assert not counts.available
    assert [gap.missing for gap in counts.gaps] == [("Scheduler._free_request",)]
    assert vars(bare) == {}


def status(name: str) -> Any:
    return SimpleNamespace(name=name)


def test_what_runs_is_told_with_its_own_drafts_and_k_and_without_its_name(
    scheduler: Scheduler, counts: RequestCounts
) -> None:
    running = request("cmpl-secret", extra_args={"specdeck_k": 2}, arrival_time=time() - 5.0,
                      status=status("RUNNING"), is_finished=lambda: False)  # fmt: skip
    waiting = request("chat-secret", adapter="sql", arrival_time=time(), status=status("WAITING"),
                      is_finished=lambda: False)  # fmt: skip
    for one in (running, waiting):
        one.get_finished_reason = lambda: None
        scheduler.add_request(one)
    scheduler.running = [running]
    scheduler.draft("cmpl-secret", 2, 1)
    first, second = counts.active()
    assert (first["number"], first["state"], first["k"]) == (1, "running", 2)
    assert (first["drafts"], first["drafted"], first["accepted"]) == (1, 2, 1)
    assert 5.0 <= first["age_s"] < 60.0
    assert (second["number"], second["state"], second["k"]) == (2, "waiting", None)
    assert "secret" not in json.dumps(counts.active())
    found = RequestLine(**first)
    assert (found.acceptance, found.cached) == (0.5, "75-100%")


def test_looking_at_an_adapter_is_not_seeing_it_again(
    scheduler: Scheduler, counts: RequestCounts
) -> None:
    one = request("r", adapter="sql", arrival_time=time(), status=status("RUNNING"),
                  is_finished=lambda: False)  # fmt: skip
    one.get_finished_reason = lambda: None
    scheduler.add_request(one)
    scheduler.running = [one]
    for _ in range(3):
        assert counts.active()[0]["adapter"] == "other"  # none has finished
    assert counts.cells.name_adapter("sql") == "sql"
    assert counts.active()[0]["adapter"] == "sql"


def test_those_that_wait_are_told_as_far_as_there_is_room(
    scheduler: Scheduler, counts: RequestCounts
) -> None:
    for number in range(3_000):
        one = request(f"r{number}", arrival_time=time(), status=status("WAITING"),
                      is_finished=lambda: False)  # fmt: skip
        one.get_finished_reason = lambda: None
        scheduler.add_request(one)
    assert [line["number"] for line in counts.active()] == list(range(1, MOST_WAITING + 1))


def test_the_newest_finished_ones_are_kept_with_why_they_ended(
    scheduler: Scheduler, counts: RequestCounts
) -> None:
    for number in range(MOST_FINISHED + 10):
        one = request(f"r{number}", reason="LENGTH", arrival_time=time() - 2.0)
        scheduler.add_request(one)
        scheduler.draft(f"r{number}", 3, 1)
        finish(scheduler, one)
    lines = counts.list_finished()
    assert [line["number"] for line in lines[:2]] == [MOST_FINISHED + 10, MOST_FINISHED + 9]
    assert len(lines) == MOST_FINISHED
    assert {line["state"] for line in lines} == {"length"}
    assert {(line["drafted"], line["accepted"]) for line in lines} == {(3, 1)}
    assert all(2.0 <= line["age_s"] < 60.0 for line in lines)
    assert all(line["ended"] for line in lines)
