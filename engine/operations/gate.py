"""The upgrade gate: an engine measured, and held against a baseline that another left.

    ArmsReady ─▶ (CheckProgress | Found)* ─▶ CheckResult ─▶ BlockDone*
        ─▶ FactsMissing? ─▶ Measurement

A check of the divergence comes first, then the prompts in blocks, for speed and acceptance. Where a
second engine is given, it is asked the same block before or after, by turns. In the end both are
looked at again: figures of an engine that was replaced under way are of two.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from specdeck.engine.client.life import Life, fetch_life, is_same_engine
from specdeck.engine.divergence.answers import Answer
from specdeck.engine.divergence.arms import fetch_counters
from specdeck.engine.divergence.baseline import (
    Baseline,
    Block,
    CheckSummary,
    Workload,
    digest_tokens,
)
from specdeck.engine.divergence.doubts import (
    Doubt,
    doubt_answers,
    doubt_blocks,
    doubt_changes,
)
from specdeck.engine.divergence.privacy import hash_prompt
from specdeck.engine.divergence.prompts import Prompt, PromptSet, source_name
from specdeck.engine.divergence.requests import Asker
from specdeck.engine.errors import EngineError, Unsupported, UsageError
from specdeck.engine.fingerprint.query import fetch_finished
from specdeck.engine.operations.check import ArmPair, CheckEvent, CheckResult, run_check
from specdeck.engine.protocol.codec import read_record
from specdeck.engine.store.checks import Checks

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.protocol.messages import EngineState

ROUNDS = 2
"""Times that all prompts are asked for their speed."""
_IDLE_TRIES, _IDLE_PAUSE_S = 3, 0.3
"""An engine is still at the step of a request that is answered, or was given up, for as long."""


@dataclass(frozen=True, slots=True)
class BlockDone:
    """How many blocks are measured."""

    done: int
    of: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """An engine's own figures, and those of the engine that was asked in turn with it."""

    baseline: Baseline
    paired: tuple[Block, ...] | None
    doubts: tuple[Doubt, ...] = ()
    """Why the figures are no evidence."""


@dataclass(frozen=True, slots=True)
class FactsMissing:
    """The engine has facts and they could not be read: what was measured is kept without them."""

    reason: str
    """For one line."""


GateEvent = CheckEvent | BlockDone | FactsMissing | Measurement


async def measure_engine(
    pair: ArmPair,
    prompts: PromptSet,
    store: Checks,
    *,
    second: ArmPair | None = None,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[GateEvent, None]:
    """Measures the serving arm of `pair`; `second` is the pair of the engine to take turns with.

    Raises SpecdeckError when an engine stays away or cannot do it.
    """
    pairs = [pair] if second is None else [pair, second]
    states = [await one.fetch_state() for one in pairs]
    checked: CheckSummary | None = None
    async with aclosing(run_check(pair, prompts, store)) as events:
        async for event in events:
            if isinstance(event, CheckResult):
                checked = read_record(CheckSummary, event.outcome.as_json())
            yield event
    streams = pair.streams
    turns = [
        _Sums(one, state, await _fetch_life(one)) for one, state in zip(pairs, states, strict=True)
    ]
    mine = turns[0]
    of = rounds * -(-prompts.count // streams)
    await _warm_up(pair, second, prompts)
    for _ in range(rounds):
        for block in _split(prompts, streams):
            for sums in turns if len(mine.blocks) % 2 else reversed(turns):
                sums.add(await _ask_block(sums.pair, block, clock))
                await sums.look()
            yield BlockDone(len(mine.blocks), of)
    options = pair.options
    workload = Workload(
        source_name(prompts.path), prompts.digest, prompts.count,
        options.max_tokens, options.ignore_eos, streams, rounds,
    )  # fmt: skip
    assert checked is not None  # a check ends so, or raises
    fingerprint: dict[str, Any] | None = None
    try:
        fingerprint = await _fetch_fingerprint(pair.serving)
    except EngineError as error:
        yield FactsMissing(error.line())
    found = Baseline(
        pair.wall(), pair.arms[0].url, workload, checked,
        tuple(mine.blocks), mine.digests, fingerprint,
    )  # fmt: skip
    doubts = [doubt for sums in turns for doubt in await _find_doubts(sums)]
    yield Measurement(found, tuple(turns[1].blocks) if turns[1:] else None, tuple(doubts))


async def _fetch_life(pair: ArmPair) -> Life | None:
    """That of the serving arm, which alone is measured; None where it does not tell it."""
    try:
        return await fetch_life(pair.serving)
    except EngineError:
        return None


async def _find_doubts(sums: _Sums) -> list[Doubt]:
    """Those of the serving arm.

    One with the fingerprint that it had is another as well: it broke down under the load, its
    figures are of caches that are cold, and what the check found is of the process before.
    """
    pair, life, url = sums.pair, sums.life, sums.pair.arms[0].url
    now = await _fetch_life(pair)
    is_restarted = life is not None and now is not None and now.is_another(life)
    found = [
        *doubt_answers(url, sums.refused, sums.empty, sums.asked),
        *doubt_blocks(url, sums.blocks),
    ]
    if is_restarted or "serving" in await pair.find_replaced():
        return [Doubt("replaced", url), *found]
    await sums.look()
    return found if sums.changed is None else [sums.changed, *found]


async def _fetch_fingerprint(client: EngineClient) -> dict[str, Any] | None:
    """None where the engine, or its plugin, has none; raises EngineError where it tells nothing."""
    try:
        return (await fetch_finished(client)).as_json()
    except Unsupported:
        return None


def refuse_other_work(baseline: Baseline, prompts: PromptSet, pair: ArmPair) -> None:
    """UsageError where the engine would be asked for other work than the baseline's was."""
    was, options = baseline.workload, pair.options
    if (was.digest, was.prompts) != (prompts.digest, prompts.count):
        raise UsageError(
            f"the baseline was measured with other prompts ({was.prompts} of {was.source})",
            remedy="give the same --prompts and --limit, or save another baseline",
        )
    asked = (options.max_tokens, options.ignore_eos, pair.streams)
    if (was.max_tokens, was.ignore_eos, was.streams) != asked:
        raise UsageError(
            f"the baseline was measured with {was.max_tokens} tokens and {was.streams} streams",
            remedy="leave --max-tokens and --streams out, or save another baseline",
        )


async def refuse_same_engine(pair: ArmPair, second: ArmPair) -> None:
    """UsageError where the engine would take turns with itself, whatever its addresses."""
    if await is_same_engine(pair.serving, second.serving):
        raise UsageError(
            f"--against is the engine itself: {second.serving.url} is another address of it",
            remedy="give the one to be replaced",
        )


def _split(prompts: PromptSet, size: int) -> Iterator[list[Prompt]]:
    every = iter(prompts)
    while block := list(islice(every, size)):
        yield block


async def _warm_up(pair: ArmPair, second: ArmPair | None, prompts: PromptSet) -> None:
    """Has every engine see all prompts: the check has filled the cache of one of them."""
    for asked in (pair, second):
        if asked is None:
            continue
        asker = asked.askers[0]
        usual, asker.settings = asker.settings, replace(asker.settings, max_tokens=1)
        try:
            for block in _split(prompts, asked.streams):
                await _answer_all(asker, block)
        finally:
            asker.settings = usual


@dataclass(frozen=True, slots=True)
class _Asked:
    """What came of a block of prompts."""

    block: Block
    digests: dict[str, str]
    """Of the answers, by the prompts'."""
    asked: int
    """Prompts."""
    answered: int
    """Of those, they that were not refused."""
    empty: int
    """Of the answers, those without a token."""


@dataclass(slots=True)
class _Sums:
    """What was measured so far of the serving arm of a pair."""

    pair: ArmPair
    state: EngineState | None
    """From before its check; None without the plugin."""
    life: Life | None
    """Which start of the engine it was, before its speed was measured."""
    blocks: list[Block] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    """Of the answers, by the prompts'."""
    asked: int = 0
    """Requests."""
    refused: int = 0
    empty: int = 0
    changed: Doubt | None = None
    """How it was first seen to serve otherwise than before its check."""

    def add(self, said: _Asked) -> None:
        """Counts a block."""
        self.blocks.append(said.block)
        self.digests |= said.digests
        self.asked += said.asked
        self.refused += said.asked - said.answered
        self.empty += said.empty

    async def look(self) -> None:
        """Notes whether its knobs stand, and its breaker: one may be back before the end.

        A breaker that opened by itself moves no version, and its probes draft in every block.
        What it still serves after a block is somebody else's, and was in the block's way.
        """
        if self.state is None:
            return
        now = await self._fetch_idle()
        if now is None:
            return
        if self.changed is None:
            self.changed = doubt_changes(self.pair.arms[0].url, self.state, now)
        if self.blocks and self.blocks[-1].left is None:
            left = now.running + now.waiting
            self.blocks[-1] = replace(self.blocks[-1], left=left)

    async def _fetch_idle(self) -> EngineState | None:
        """Its state, once nothing is running or the time for that is over."""
        for tries in range(_IDLE_TRIES + 1):
            now = await self.pair.fetch_state()
            if now is None or not now.running + now.waiting or tries == _IDLE_TRIES:
                break
            await asyncio.sleep(_IDLE_PAUSE_S)
        return now


async def _ask_block(pair: ArmPair, block: Sequence[Prompt], clock: Callable[[], float]) -> _Asked:
    before = await fetch_counters(pair.serving)
    began = clock()
    answers = await _answer_all(pair.askers[0], block)
    seconds = clock() - began
    after = await fetch_counters(pair.serving)
    rises: dict[str, float | None] = {}
    places = None
    if before is not None and after is not None:
        rises = {
            n: _rise(getattr(before, n), getattr(after, n))
            for n in ("drafts", "drafted", "accepted", "generated", "prompt")
        }
        places = _rises(before.accepted_per_position, after.accepted_per_position)
    drafted = [answer.drafted for _, answer in answers if answer.drafted is not None]
    own = sum(drafted) if len(drafted) == len(answers) else None
    lengths = [len(answer.prompt_ids) for _, answer in answers if answer.prompt_ids is not None]
    # Of one that is refused nothing is computed.
    own_prompt = sum(lengths) if len(lengths) == len(answers) else None
    tokens = sum(len(answer.token_ids) for _, answer in answers)
    digests = {hash_prompt(prompt): digest_tokens(answer.token_ids) for prompt, answer in answers}
    empty = sum(not answer.token_ids for _, answer in answers)
    measured = Block(
        tokens, seconds, rises.get("drafts"), rises.get("drafted"), rises.get("accepted"),
        rises.get("generated"), own, places, rises.get("prompt"), own_prompt,
    )  # fmt: skip
    return _Asked(measured, digests, len(block), len(answers), empty)


def _rise(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None or after < before else after - before


def _rises(
    before: Sequence[float] | None, after: Sequence[float] | None
) -> tuple[float, ...] | None:
    """Of each position; None where any is not known."""
    if not before or not after or len(before) != len(after):
        return None
    found = [_rise(*pair) for pair in zip(before, after, strict=True)]
    known = tuple(rise for rise in found if rise is not None)
    return known if len(known) == len(found) else None


async def _answer_all(asker: Asker, block: Sequence[Prompt]) -> list[tuple[Prompt, Answer]]:
    # Without log-probabilities, as clients ask: what is measured here is what they get.
    found = await asyncio.gather(*(asker.answer(prompt, logprobs=False) for prompt in block))
    return [(p, said) for p, said in zip(block, found, strict=True) if isinstance(said, Answer)]
