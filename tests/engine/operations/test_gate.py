"""The gate's measurement: a check, then blocks, in turn with a second engine where there is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import httpx
import pytest
from tests.engine.divergence.conftest import Bench, bench
from tests.support.completion_engine import CompletionEngine

from specdeck.engine.divergence.upgrade import Gate, Limits, compare_with_baseline
from specdeck.engine.errors import UsageError
from specdeck.engine.operations.check import ArmPair, CheckOptions, CheckResult
from specdeck.engine.operations.gate import (
    BlockDone,
    FactsMissing,
    GateEvent,
    Measurement,
    measure_engine,
    refuse_other_work,
    refuse_same_engine,
)
from specdeck.engine.protocol.messages import PREFIX, EngineState

__all__ = ["bench"]
PAGES = [
    f"vllm:spec_decode_num_drafts_total {10 * n}\n"
    f"vllm:spec_decode_num_draft_tokens_total {50 * n}\n"
    f"vllm:spec_decode_num_accepted_tokens_total {20 * n}\n"
    f"vllm:generation_tokens_total {30 * n}\n"
    for n in range(1, 400)
]


@dataclass
class Ordered(CompletionEngine):
    """Notes whose turn it is."""

    order: list[str] = field(default_factory=list)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/completions":
            self.order.append(self.url)
        return await super().__call__(request)


def seconds() -> Callable[[], float]:
    """A clock that is a second later at each look."""
    ticks = count()
    return lambda: float(next(ticks))


async def measure(
    pair: ArmPair, bench: Bench, prompts: int, second: ArmPair | None = None
) -> list[GateEvent]:
    work = measure_engine(
        pair, bench.many(prompts), bench.store, second=second, rounds=1, clock=seconds()
    )
    return [event async for event in work]


def measured(events: list[GateEvent]) -> Measurement:
    last = events[-1]
    assert isinstance(last, Measurement)
    return last


async def test_an_engine_is_checked_and_then_measured_in_blocks(bench: Bench) -> None:
    engine = bench.engine(pages=list(PAGES))
    async with bench.lab(engine, max_tokens=8) as pair:
        events = await measure(pair, bench, 10)
    assert sum(isinstance(event, CheckResult) for event in events) == 1
    assert [event.done for event in events if isinstance(event, BlockDone)] == [1, 2, 3]
    found = measured(events).baseline
    assert [block.tokens for block in found.blocks] == [32, 32, 16]
    assert [block.seconds for block in found.blocks] == [1.0, 1.0, 1.0]
    assert {(block.drafts, block.drafted, block.accepted) for block in found.blocks} == {
        (10.0, 50.0, 20.0)
    }
    assert [block.generated for block in found.blocks] == [30.0] * 3
    assert [block.own_drafted for block in found.blocks] == [96, 96, 48]
    assert len(found.answers) == 10
    assert found.check.verdict in ("pass", "inconclusive")
    assert found.workload.prompts == 10
    assert measured(events).paired is None


async def test_the_same_engine_again_passes(bench: Bench) -> None:
    found = []
    for _ in range(2):
        engine = bench.engine(pages=list(PAGES), tells_names=True)
        async with bench.lab(engine, max_tokens=8, fresh=True, threshold=0.5) as pair:
            found.append(measured(await measure(pair, bench, 12)).baseline)
    gate = compare_with_baseline(found[0], found[1], Limits())
    assert gate.word == "pass", gate.reason
    assert gate.changed == ()


@dataclass
class Silent(CompletionEngine):
    """Its facts stall once it was measured, and none of the rest does."""

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == f"{PREFIX}/facts" and self.is_measured:
            return httpx.Response(503, text="starting")
        return await super().__call__(request)

    is_measured: bool = False


async def test_what_was_measured_is_kept_where_the_facts_cannot_be_read(bench: Bench) -> None:
    engine = Silent(pages=list(PAGES), tells_names=True)
    async with bench.lab(engine, max_tokens=8) as pair:
        work = measure_engine(pair, bench.many(4), bench.store, rounds=1, clock=seconds())
        events = []
        async for event in work:
            events.append(event)
            if isinstance(event, BlockDone):
                engine.is_measured = True
    (missing,) = (event for event in events if isinstance(event, FactsMissing))
    assert missing.reason
    found = measured(events).baseline
    assert found.fingerprint is None
    assert len(found.blocks) == 1


async def test_a_second_engine_takes_turns(bench: Bench) -> None:
    order: list[str] = []
    old = Ordered(url="http://old", order=order)
    new = Ordered(url="http://new", order=order, pages=list(PAGES))
    options = CheckOptions(max_tokens=8, streams=4, retry_s=5.0)
    alone = old.connect()
    second = ArmPair(alone, alone, options)
    async with bench.lab(new, max_tokens=8) as pair, second:
        both = measured(await measure(pair, bench, 8, second))
    assert both.paired is not None
    assert len(both.paired) == len(both.baseline.blocks) == 2
    assert order[-16:] == ["http://old"] * 4 + ["http://new"] * 8 + ["http://old"] * 4


@pytest.mark.parametrize("plugin", [True, False])
async def test_an_engine_is_not_measured_in_turn_with_itself(bench: Bench, plugin: bool) -> None:
    began = "process_start_time_seconds 1000.0\nvllm:prompt_tokens_total 5.0\n"
    one, other = (
        CompletionEngine(url=url, plugin=plugin, pages=[began + PAGES[0]])
        for url in ("http://new", "http://proxy")
    )
    one.state = other.state  # type: ignore[method-assign]
    (new, proxy), options = (one.connect(), other.connect()), CheckOptions(max_tokens=8)
    async with ArmPair(new, new, options) as pair, ArmPair(proxy, proxy, options) as second:
        with pytest.raises(UsageError, match="http://proxy is another address of it"):
            await refuse_same_engine(pair, second)


async def test_other_work_is_refused(bench: Bench) -> None:
    async with bench.lab(bench.engine(pages=list(PAGES)), max_tokens=8) as pair:
        found = measured(await measure(pair, bench, 4)).baseline
        refuse_other_work(found, bench.many(4), pair)
        with pytest.raises(UsageError, match="other prompts"):
            refuse_other_work(found, bench.many(5), pair)
    async with bench.lab(bench.engine(), max_tokens=9) as pair:
        with pytest.raises(UsageError, match="8 tokens and 4 streams"):
            refuse_other_work(found, bench.many(4), pair)


@dataclass
class Turncoat(CompletionEngine):
    """Another engine takes its place, or it refuses, while it is measured."""

    instance: str = "old"
    refuses_every: int = 0
    """Of its answers the share that it refuses is one of so many; 0: none."""
    turned: dict[str, Any] = field(default_factory=dict)
    """Of its state, what is another."""
    empties_every: int = 0
    """The same of those that it leaves without a token."""
    seen: int = 0
    generated: int = 0
    """Tokens, as its page counts them."""
    others: int = 0
    """Tokens that somebody else is given between two looks at its page."""
    drafted_for_others: int = 0
    """The same of tokens that are drafted."""
    drafted: int = 0
    """For others."""
    prompt: int = 0
    """Tokens of prompts, as its page counts them."""
    prompt_of_others: int = 0
    """The same of what somebody else asks between two looks."""

    def state(self) -> EngineState:
        started = 1.0 if self.instance == "old" else 2.0
        said = replace(super().state(), instance=self.instance, started=started, **self.turned)
        return replace(said, fingerprint="sd1:p1") if self.instance == "other" else said

    def _answer(self, body: dict[str, Any]) -> httpx.Response:
        self.seen += 1
        if self.refuses_every and self.seen % self.refuses_every == 0:
            return httpx.Response(400, json={"error": {"message": "no such adapter"}})
        if self.empties_every and self.seen % self.empties_every == 0:
            body = {**body, "max_tokens": 0}
        self.generated += body["max_tokens"]
        if isinstance(body.get("prompt"), str):
            self.prompt += len(self._ids(body["prompt"]))
        return super()._answer(body)

    def _get(self, path: str) -> httpx.Response:
        found = super()._get(path)
        if path != "/metrics":
            return found
        self.generated += self.others
        self.drafted += self.drafted_for_others
        counters = [
            line for line in found.text.splitlines() if "generation" not in line
            and "draft_tokens" not in line
        ]  # fmt: skip
        self.prompt += self.prompt_of_others
        counters.append(f"vllm:generation_tokens_total {self.generated}")
        counters.append(f"vllm:prompt_tokens_total {self.prompt}")
        looks = len(PAGES) - len(self.pages)
        counters.append(f"vllm:spec_decode_num_draft_tokens_total {50 * looks + self.drafted}")
        return httpx.Response(200, text="\n".join(counters) + "\n")


async def doubt(
    bench: Bench,
    turn: Callable[[Turncoat], None],
    whose: str,
    back: Callable[[Turncoat], None] | None = None,
) -> tuple[Measurement, Gate]:
    """What is measured where the engine `whose` does `turn` after a block, and the gate; it goes
    `back` after the block that follows."""
    new, old = (
        Turncoat(url=f"http://{name}", pages=list(PAGES), tells_names=True, pause=0.001)
        for name in ("new", "old")
    )
    engine, alone = new, old.connect()
    options = CheckOptions(max_tokens=8, streams=4, retry_s=5.0)
    async with (
        bench.lab(engine, max_tokens=8, threshold=0.5, fresh=True) as pair,
        ArmPair(alone, alone, options) as second,
    ):
        work = measure_engine(
            pair, bench.many(12), bench.store, second=second, rounds=1, clock=seconds()
        )
        events: list[GateEvent] = []
        async for event in work:
            events.append(event)
            if isinstance(event, BlockDone) and event.done == 1:
                turn(new if whose == "new" else old)
            if isinstance(event, BlockDone) and event.done == 2 and back is not None:
                back(new if whose == "new" else old)
    found = measured(events)
    same = found.baseline
    return found, compare_with_baseline(same, same, Limits(), doubts=found.doubts)


def replace_engine(engine: Turncoat) -> None:
    engine.instance = "other"


def restart_engine(engine: Turncoat) -> None:
    engine.instance = "again"


def refuse_half(engine: Turncoat) -> None:
    engine.refuses_every = 2


def open_breaker(engine: Turncoat) -> None:
    engine.turned = {"breaker": "open", "k": 0}


def turn_back(engine: Turncoat) -> None:
    engine.turned = {}


def set_k(engine: Turncoat) -> None:
    engine.turned = {"k": 2, "k_set": 2, "version": engine.state().version + 1}


def set_k_to_and_fro(engine: Turncoat) -> None:
    engine.turned = {"version": engine.state().version + 2}


def stop_drafting(engine: Turncoat) -> None:
    engine.turned = {"mode": "target-only", "k": 0, "version": engine.state().version + 1}


def move_k_by_policy(engine: Turncoat) -> None:
    engine.turned = {"k": 1}


def empty_half(engine: Turncoat) -> None:
    engine.empties_every = 2


def empty_few(engine: Turncoat) -> None:
    engine.empties_every = 20


def serve_others(engine: Turncoat) -> None:
    engine.others = 40


def draft_for_others(engine: Turncoat) -> None:
    engine.drafted_for_others = 100


def compute_prompts_of_others(engine: Turncoat) -> None:
    engine.prompt_of_others = 60


def hold_request_of_others(engine: Turncoat) -> None:
    engine.turned = {"waiting": 1}


def serve_others_a_little(engine: Turncoat) -> None:
    engine.others, engine.drafted_for_others, engine.prompt_of_others = 2, 20, 1


def refuse_few(engine: Turncoat) -> None:
    engine.refuses_every = 20


@pytest.mark.parametrize("whose", ["new", "old"])
@pytest.mark.parametrize(
    ("turn", "kind"),
    [
        (replace_engine, "replaced"), (restart_engine, "replaced"),
        (refuse_half, "refused"), (empty_half, "empty"), (open_breaker, "changed"),
        (set_k, "changed"), (set_k_to_and_fro, "changed"), (stop_drafting, "changed"),
        (serve_others, "shared"), (draft_for_others, "shared"),
        (compute_prompts_of_others, "shared"), (hold_request_of_others, "shared"),
    ],
)  # fmt: skip
async def test_an_engine_that_turns_while_it_is_measured_passes_no_gate(
    bench: Bench, turn: Callable[[Turncoat], None], kind: str, whose: str
) -> None:
    found, gate = await doubt(bench, turn, whose)
    assert [(one.kind, one.engine) for one in found.doubts] == [(kind, f"http://{whose}")]
    assert gate.word == "inconclusive"
    assert found.doubts[0].line in gate.reason


@pytest.mark.parametrize("whose", ["new", "old"])
async def test_a_breaker_that_is_closed_again_in_the_end_passes_no_gate(
    bench: Bench, whose: str
) -> None:
    found, gate = await doubt(bench, open_breaker, whose, back=turn_back)
    assert [(one.kind, one.engine) for one in found.doubts] == [("changed", f"http://{whose}")]
    assert gate.word == "inconclusive"
    assert "breaker closed → open" in found.doubts[0].line


@pytest.mark.parametrize("turn", [refuse_few, empty_few, move_k_by_policy, serve_others_a_little])
async def test_a_few_missing_answers_and_a_k_that_the_policy_moves_are_no_doubt(
    bench: Bench, turn: Callable[[Turncoat], None]
) -> None:
    found, gate = await doubt(bench, turn, "new")
    assert found.doubts == ()
    assert all(line.name != "measurement" for line in gate.lines)
