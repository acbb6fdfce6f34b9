from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

from specdeck.engine.errors import Unreachable
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.recording import reading_as_json
from specdeck.engine.metrics.sample import Histogram, Sample
from specdeck.engine.metrics.window import Window
from specdeck.engine.protocol.messages import EngineState, RankState

KEYS = [
    "t",
    "engine",
    "up",
    "model",
    "method",
    "k_max",
    "k",
    "mode",
    "policy",
    "breaker",
    "tokens_per_second",
    "acceptance_rate",
    "mean_acceptance_length",
    "draft_tokens_per_draft",
    "acceptance_per_position",
    "output_from_drafts",
    "running",
    "waiting",
    "kv_cache_usage",
    "ttft_ms",
    "itl_ms",
    "preemptions_per_second",
    "fingerprint",
    "system_fingerprint",
    "restarted",
]

SAMPLE = Sample(
    t=1000.0,
    at=1.0,
    model="demo",
    accepted_per_position=(0.0,) * 5,
    running=4.0,
    waiting=0.0,
    kv_cache_usage=0.123456,
)
WINDOW = Window(
    seconds=1.0,
    generated=512.345,
    drafts=100.0,
    drafted=300.0,
    accepted=186.0,
    accepted_per_position=(81.0, 62.0, 43.0, 0.0, 0.0),
    drafted_per_position=(100.0, 100.0, 100.0, 0.0, 0.0),
    preemptions=0.0,
    ttft=Histogram((0.01, 0.02, math.inf), (0.0, 10.0, 10.0)),
)


def test_a_reading_has_exactly_the_keys_of_the_contract(
    state: Callable[..., EngineState],
) -> None:
    line = reading_as_json(Reading(1000.0, "http://engine", SAMPLE, WINDOW, state(k=3)))
    assert list(line) == KEYS
    assert line["k"] == 3
    assert line["k_max"] == 5
    assert line["tokens_per_second"] == 512.35
    assert line["acceptance_rate"] == 0.62
    assert line["mean_acceptance_length"] == 2.86
    assert line["acceptance_per_position"] == [0.81, 0.62, 0.43]
    assert line["running"] == 4
    assert line["ttft_ms"] == {"p50": 15.0, "p95": 19.5}
    assert line["itl_ms"] == {"p50": None, "p95": None}
    assert line["fingerprint"] == "sd1:0f3a"


def test_an_engine_that_is_down_has_the_same_keys_and_no_figures() -> None:
    line = reading_as_json(Reading(1000.0, "http://engine", error=Unreachable("gone")))
    assert list(line) == KEYS
    known = {key: value for key, value in line.items() if value is not None}
    nothing = {"p50": None, "p95": None}
    assert known == {
        "t": 1000.0,
        "engine": "http://engine",
        "up": False,
        "ttft_ms": nothing,
        "itl_ms": nothing,
        "restarted": False,
    }


def test_without_the_plugin_k_max_is_the_pages_and_k_is_unknown() -> None:
    line = reading_as_json(Reading(1000.0, "http://engine", SAMPLE, WINDOW))
    assert (line["k_max"], line["k"], line["mode"], line["method"]) == (5, None, None, None)
    assert line["model"] == "demo"


def test_target_only_is_k_zero(state: Callable[..., EngineState]) -> None:
    line = reading_as_json(Reading(1.0, "u", SAMPLE, None, state(k=0, k_set=5, mode="target-only")))
    assert (line["k"], line["mode"]) == (0, "target-only")
    assert line["acceptance_per_position"] is None


def test_what_is_no_number_is_null() -> None:
    sample = Sample(t=1.0, at=1.0, running=math.nan, kv_cache_usage=math.inf)
    line = reading_as_json(Reading(1.0, "u", sample, Window(seconds=1.0, generated=math.nan)))
    json.dumps(line, allow_nan=False)
    assert (line["running"], line["kv_cache_usage"], line["tokens_per_second"]) == (None,) * 3


def test_each_of_several_data_parallel_ranks_has_a_part_of_its_own(
    state: Callable[..., EngineState],
) -> None:
    rank = RankState(
        rank=0, version=3, k=3, mode="speculate", fallback="warm", policy="fixed",
        breaker="closed", step=9, drafts=40, drafted_per_position=(40,) * 5,
        accepted_per_position=(9,) * 5, running=2, waiting=1,
    )  # fmt: skip
    found = replace(state(k=3), ranks=(rank, replace(rank, rank=1, k=0, drafts=2)))
    line = reading_as_json(Reading(1000.0, "http://engine", SAMPLE, WINDOW, found))
    assert list(line) == [*KEYS, "ranks"]
    own = {"mode": "speculate", "breaker": "closed", "running": 2, "waiting": 1}
    assert line["ranks"] == [
        {"rank": 0, "k": 3, "drafts": 40, **own},
        {"rank": 1, "k": 0, "drafts": 2, **own},
    ]
    assert EngineState.from_json(json.loads(json.dumps(found.as_json()))) == found
