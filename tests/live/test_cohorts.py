"""Drafts by kind of request on a real engine: every one of vLLM's is in a cell, to the last."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from tests.support.live_engine import Driver, Prompts

from specdeck.engine.plugin.endpoint import PAGE_GAP_S
from specdeck.engine.protocol.cohorts import DIMENSIONS, CohortCounts, Cohorts

POSITIONS = "spec_decode_num_accepted_tokens_per_pos_total"
OURS = {"drafts": "drafts", "drafted": "draft_tokens", "accepted": "accepted_tokens"}


async def cohorts_of(driver: Driver) -> Cohorts:
    reply = await driver.ask("GET", "cohorts")
    assert reply.status_code == 200, reply.text
    return Cohorts.from_json(reply.json())


async def until_idle(driver: Driver) -> None:
    await driver.until(lambda state: state["running"] == state["waiting"] == 0)


def figures(counts: CohortCounts) -> Mapping[str, float]:
    return {"drafts": counts.drafts, "drafted": counts.drafted, "accepted": counts.accepted}


async def complete(
    driver: Driver, prompt: Sequence[int], tokens: int, **body: Any
) -> httpx.Response:
    usual = {"model": "demo", "prompt": list(prompt), "max_tokens": tokens, "temperature": 0}
    reply = await driver.client.post("/v1/completions", json=usual | body)
    assert reply.status_code == 200, reply.text
    return reply


async def abort(driver: Driver, prompt: Sequence[int]) -> None:
    """Begins a long answer and leaves it after a few steps: the first one has no drafts."""
    body = {"model": "demo", "prompt": list(prompt), "max_tokens": 900, "stream": True,
            "ignore_eos": True}  # fmt: skip
    async with driver.client.stream("POST", "/v1/completions", json=body) as reply:
        pieces = 0
        async for line in reply.aiter_lines():
            pieces += line.startswith("data:")
            if pieces == 4:
                return


async def mixed_traffic(driver: Driver, prompts: Prompts) -> None:
    """Every kind of request at once, while k moves and all that runs is preempted."""
    long = [*prompts[0]] * 20  # 340 tokens
    await complete(driver, long, 4)  # so that the next one finds it in the prefix cache
    work = asyncio.gather(
        complete(driver, long, 24),
        *(complete(driver, prompt, 96, ignore_eos=True) for prompt in prompts),
        *(complete(driver, p, 40, temperature=0.8, seed=n) for n, p in enumerate(prompts[:3])),
        complete(driver, prompts[1], 40, structured_outputs={"regex": "[ab]{20}"}),
        complete(driver, prompts[2], 40, vllm_xargs={"specdeck_k": 2}, ignore_eos=True),
        complete(driver, prompts[3], 40, model="demo-exact", ignore_eos=True),
        abort(driver, prompts[4]),
        abort(driver, prompts[5]),
    )
    # The streams outlast `work`, so that every change meets requests on a slow machine too.
    async with driver.streams(prompts):
        await driver.until(lambda state: state["running"] > 3)
        for change in ({"k": 2}, {"mode": "target-only", "fallback": "cold"}, {"mode": "speculate"},
                       {"k": 8}):  # fmt: skip
            await driver.put(**change)  # leaving cold preempts what runs
            found = await cohorts_of(driver)
            # At one moment, with most of the requests under way.
            done, under_way = found.sum_finished(), found.unfinished
            assert done.drafts + under_way.drafts == found.drafts
            for name in ("drafted_per_position", "accepted_per_position"):
                parts = zip(getattr(done, name), getattr(under_way, name), strict=True)
                assert tuple(map(sum, parts)) == getattr(found, name)
    await work
    await until_idle(driver)


async def test_cells_add_up_to_vllms_counters_with_aborted_and_preempted_requests_among_them(
    driver: Driver, prompts: Prompts
) -> None:
    await mixed_traffic(driver, prompts)
    counters, found = await driver.settled_counters(), await cohorts_of(driver)
    finished = found.sum_finished()
    assert counters["drafts"] > 0
    assert counters["preemptions"] > 0
    assert figures(finished) == {name: counters[name] for name in OURS}
    assert finished.preemptions == counters["preemptions"]
    assert found.unfinished.drafts == 0
    by_word = found.by_word()
    for by in DIMENSIONS:
        each = [figures(counts) for (b, _), counts in by_word.items() if b == by]
        assert {name: sum(one[name] for one in each) for name in OURS} == figures(finished)
    for pair in (("finish", "abort"), ("finish", "length"), ("temperature", "sampled"),
                 ("structured", "regex"), ("pinned", "yes"), ("prompt", "256-1023")):  # fmt: skip
        assert by_word[pair].requests > 0, pair
    cached = [word for (by, word), counts in by_word.items() if by == "cached" and counts.requests]
    assert {"0%", "75-100%"} <= set(cached)
    aborted = by_word["finish", "abort"]
    assert aborted.drafts > 0


async def test_the_metrics_page_has_the_same_by_each_dimension_and_every_position_is_vllms(
    driver: Driver, prompts: Prompts
) -> None:
    await driver.batch(prompts, tokens=48)
    await abort(driver, prompts[0])
    await until_idle(driver)
    await asyncio.sleep(PAGE_GAP_S + 0.1)  # for a page that is newer than the last request
    page = (await driver.client.get("/metrics")).text
    counters, sums = await driver.counters(), defaultdict[tuple[str, str], float](float)
    pattern = r'^specdeck:cohort_(\w+)\{by="(\w+)",cohort="([^"]*)",.*\} (\S+)$'
    for name, by, _, value in re.findall(pattern, page, re.MULTILINE):
        sums[name, by] += float(value)
    for by in DIMENSIONS:
        assert {name: sums[ours, by] for name, ours in OURS.items()} == {
            name: counters[name] for name in OURS
        }
    lines = re.findall(rf'^vllm:{POSITIONS}\{{.*position="(\d+)"\}} (\S+)$', page, re.MULTILINE)
    accepted = [float(value) for _, value in sorted(lines, key=lambda line: int(line[0]))]
    finished = (await cohorts_of(driver)).sum_finished()
    assert list(finished.accepted_per_position) == accepted
