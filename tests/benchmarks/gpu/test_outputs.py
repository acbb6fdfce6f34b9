"""Outputs of a GPU run held against each other, without an engine."""

import asyncio
import json

import pytest
from benchmarks.gpu.outputs import Flight, Output, compare, with_margins
from benchmarks.gpu.report import Report
from benchmarks.gpu.structured import fits
from benchmarks.gpu.tiers_cost import read_costs
from benchmarks.gpu.traffic import MOST_FAILED, Refusal, stream_beside

WANTED = [Output((5, 6, 7), (0.5, 0.02, 2.0)), Output((1, 2, 3), (1.0, 1.0, 1.0))]
ANSWER = {"kind": "class", "public": True, "names": ["beta", "beta", "alpha"], "level": 8}


def test_each_output_is_held_against_its_own_prompt() -> None:
    differ = compare(WANTED, [(0, WANTED[0]), (1, WANTED[1]), (1, WANTED[0])])
    assert (differ.outputs, differ.differ) == (3, 1)


def test_the_margin_is_that_of_the_first_token_that_differs() -> None:
    differ = compare(WANTED, [(0, Output((5, 9, 9)))])
    assert differ.margins == (0.02,)
    assert differ.as_cell() == "1 of 1 (margin up to 0.020; 0 above 0.125)"


def test_an_output_that_ends_early_differs_without_a_margin() -> None:
    differ = compare(WANTED, [(0, Output((5, 6)))])
    assert differ.margins == (None,)
    assert differ.as_cell() == "1 of 1"


def test_margins_of_another_answer_hold_up_to_where_it_leaves() -> None:
    told = Output((5, 9, 9), (0.5, 0.02, 3.0))
    assert with_margins(Output((5, 6, 7)), told).margins == (0.5, 0.02)


def test_a_placeholder_that_is_handed_out_does_not_pass() -> None:
    report = Report()
    Flight([(0, Output((1, -1, 2)))], []).check(report)
    assert [(check.sentence, check.holds) for check in report.checks] == [
        ("no request failed", True),
        ("no token id below 0", False),
    ]


async def test_streams_go_on_until_the_work_is_done() -> None:
    answered = asyncio.Event()

    async def answer() -> Output:
        await asyncio.sleep(0)
        answered.set()
        return WANTED[0]

    async def work() -> str:
        await answered.wait()
        return "done"

    found, flight = await stream_beside(work(), [answer, answer])
    assert found == "done"
    assert {number for number, _ in flight.outputs} == {0, 1}
    assert flight.failed == []


async def test_streams_give_up_on_an_engine_that_refuses_everything() -> None:
    asked = 0
    enough = asyncio.Event()

    async def refuse() -> Output:
        nonlocal asked
        asked += 1
        if asked == MOST_FAILED:
            enough.set()
        raise Refusal("503: gone")

    async def work() -> None:
        await enough.wait()

    _, flight = await stream_beside(work(), [refuse])
    assert flight.failed == ["503: gone"] * MOST_FAILED


@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({}, True),
        ({"level": 4}, False),
        ({"names": ["alpha"]}, False),
        ({"public": "true"}, False),
        ({"more": 1}, False),
    ],
)
def test_an_answer_is_held_against_its_schema(change: dict[str, object], good: bool) -> None:
    assert fits(json.dumps(ANSWER | change)) is good
    assert not fits(json.dumps(ANSWER | change)[:-1])


def test_the_cost_of_graphs_is_read_where_vllm_writes_it() -> None:
    log = (
        "INFO [gpu/model_runner.py:1128] Graph capturing finished in 7 secs, took 0.53 GiB\n"
        "INFO [core.py:386] init engine (profile, create kv cache, warmup model) took "
        "31.20 s (compilation: 4.20 s — language_model: 4.20 s, encoder: 0.00 s)\n"
    )
    assert read_costs(log) == ["4.20", "7", "0.53"]
    assert read_costs("nothing") == ["–", "–", "–"]
