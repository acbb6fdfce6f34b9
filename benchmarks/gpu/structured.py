"""Part 9: answers that must keep to a schema, under flips and pins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks.gpu.outputs import Output, compare, compare_all
from benchmarks.gpu.parts import MAIN
from benchmarks.gpu.report import Report
from benchmarks.gpu.task import Task
from benchmarks.gpu.traffic import Traffic, flip, make_prompts, open_traffic, stream_beside

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["function", "class", "module", "constant"]},
        "public": {"type": "boolean"},
        "names": {
            "type": "array",
            "items": {"enum": ["alpha", "beta", "gamma", "delta", "epsilon"]},
            "minItems": 3,
            "maxItems": 3,
        },
        "level": {"enum": [1, 2, 3, 5, 8, 13]},
    },
    "required": ["kind", "public", "names", "level"],
    "additionalProperties": False,
}
"""Finite, so that any model comes to an end of it."""

REQUEST: dict[str, Any] = {
    "ignore_eos": False,
    "structured_outputs": {"json": SCHEMA},
}
MOST = 160
"""Tokens of the longest answer, and some."""


async def run(task: Task, report: Report) -> None:
    """Streams of structured answers, every other one pinned, while k is flipped."""
    streams, flips = (4, 10) if task.small else (32, 100)
    prompts = make_prompts(streams, seed=31)
    async with open_traffic(task.engines[MAIN]) as traffic:
        await traffic.put(mode="target-only")
        wanted = await _ask_all(traffic, prompts)
        again = compare_all(wanted, await _ask_all(traffic, prompts))
        await traffic.put(mode="speculate")
        requests = [
            partial(traffic.complete, prompt, MOST, **REQUEST, **_pin(number, task.setup.k_max))
            for number, prompt in enumerate(prompts)
        ]
        _, flight = await stream_beside(flip(traffic, flips, task.setup.k_max), requests)
    differ = compare(wanted, flight.outputs)
    outputs = [*wanted, *(output for _, output in flight.outputs)]
    broken = [output.text for output in outputs if not fits(output.text)]
    rows = [
        ["streams, flips", f"{streams}, {flips}"],
        ["answers", str(len(flight.outputs))],
        ["differ from target-only's", differ.as_cell()],
        ["target-only from itself", again.as_cell()],
    ]
    report.put_table("structured", ["", ""], rows)
    flight.check(report)
    report.check("every answer keeps to the schema", not broken, repr(broken[:2]) if broken else "")


async def _ask_all(traffic: Traffic, prompts: Sequence[Sequence[int]]) -> list[Output]:
    works = (traffic.complete(prompt, MOST, **REQUEST) for prompt in prompts)
    return list(await asyncio.gather(*works))


def _pin(number: int, k_max: int) -> dict[str, Any]:
    """Every other stream has a k of its own."""
    return {"vllm_xargs": {"specdeck_k": number // 2 % (k_max + 1)}} if number % 2 else {}


def fits(text: str) -> bool:
    """Whether an answer is what the schema allows.

    >>> fits('{"kind":"class","public":true,"names":["beta","beta","alpha"],"level":8}')
    True
    >>> fits('{"kind":"class"}'), fits('{"kind":"cla'), fits("[]")
    (False, False, False)
    """
    try:
        found = json.loads(text)
    except ValueError:
        return False
    properties = SCHEMA["properties"]
    if not isinstance(found, dict) or set(found) != set(properties):
        return False
    names = found["names"]
    return (
        found["kind"] in properties["kind"]["enum"]
        and isinstance(found["public"], bool)
        and found["level"] in properties["level"]["enum"]
        and isinstance(names, list)
        and len(names) == 3
        and set(names) <= set(properties["names"]["items"]["enum"])
    )
