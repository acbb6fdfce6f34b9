"""Runs a check: both arms kept busy, each against itself too, nothing counted twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TypeVar
from uuid import uuid4

from specdeck.engine.divergence.answers import Answer
from specdeck.engine.divergence.arms import Arm
from specdeck.engine.divergence.calibration import LEAST, Calibration
from specdeck.engine.divergence.compare import (
    Divergence,
    PromptAnswers,
    find_divergence,
    find_retold_stream,
    find_stream_divergences,
)
from specdeck.engine.divergence.floors import Flip, group_answers, is_noisy, more_asks
from specdeck.engine.divergence.outcome import read_cases
from specdeck.engine.divergence.pacing import Pacer
from specdeck.engine.divergence.privacy import describe_answers, describe_refusal
from specdeck.engine.divergence.prompts import Prompt, PromptSet
from specdeck.engine.divergence.recheck import look_at_answer, recheck_divergence
from specdeck.engine.divergence.requests import PROBE, Asker, Refusal, has_logprobs
from specdeck.engine.divergence.resume import unasked_prompts
from specdeck.engine.divergence.running import RunningFigures, sum_up
from specdeck.engine.divergence.structured import judge_validity
from specdeck.engine.divergence.totals import Totals
from specdeck.engine.errors import EngineError, Unsupported
from specdeck.engine.protocol.codec import WrongType
from specdeck.engine.store.checks import Checks, Compared, Run, unreadable
from specdeck.engine.text import format_count

RECHECKS = 1000
"""Differences that are looked at in one run, at most."""
CONFIRMED = 100
"""And as many of them that are no tie: an engine that is wrong needs no more to be believed."""
BLOCK = 4
"""Prompts of a block, for each stream: what is asked of one arm before the other has its turn."""
ASKS = 5
"""What every prompt is asked at least: both arms twice, and a look at the reference's answer."""
LOOKS = 4
"""At the reference's first answer, where anything differs."""
ALONE = 16
"""Every so many prompts the reference is asked with nothing else in the engine."""
DISOBEYED = "the engine drafts for requests that are pinned to k = 0"
UPDATE = "update specdeck in the engine's environment"


@dataclass(frozen=True, slots=True)
class CheckProgress:
    """How far a run is."""

    done: int
    of: int
    mismatches: int
    refused: int
    per_second: float | None
    """Prompts, in this attempt; None before the first."""
    seconds_left: float | None
    """None before there are answers to tell by, and where only what nobody could count is left."""
    figures: RunningFigures | None = None
    """What was found so far; None in the middle of a block, whose answers are compared at once."""
    answers: int = 0
    """Answers of either arm that came in this attempt: they move while `done` waits for a block."""
    answers_of: int = 0
    """How many it will be, as far as that can be told: where answers differ more are asked for."""
    step: str | None = None
    """What comes after the answers of a block that were counted on: `rechecking 3 answers`."""


@dataclass(frozen=True, slots=True)
class Found:
    """A pair that differs, as soon as it is known."""

    compared: Compared
    divergence: Divergence


async def judge_answers(
    prompt: Prompt,
    serving: tuple[Answer, ...],
    reference: tuple[Answer, ...],
    *,
    askers: tuple[Asker, Asker],
    ruler: Calibration,
    recheck: Callable[[Divergence, Answer], Awaitable[Divergence]],
    looks: tuple[Flip, ...] = (),
    alone: Answer | None = None,
) -> PromptAnswers:
    """Where the whole and the streamed answers of both arms part, one prompt or many.

    `recheck` has the target look at a divergence that is no near tie by the `ruler` so far, and
    at the answer that it is in: of the arms, and of the reference with itself, in the same way.
    What breaks the prompt's rules is not named yet, as that may take seconds: `name_violation`.
    Raises Unsupported where the arms cannot be compared, or a pin is not obeyed.
    """
    ours, theirs = serving[0], reference[0]
    _refuse_other_tokens(prompt, ours, theirs, askers)
    refuse_disobeyed(askers[1].arm, *reference)

    async def look(found: Divergence | None, answer: Answer) -> Divergence | None:
        if found is None or found.stream_only:
            return found
        # By the least threshold: what noise has added to it by now may yet be taken off.
        tied = ruler.sound and found.tied(least_near_tie(ruler))
        return found if tied else await recheck(found, answer)

    cross = await look(find_divergence(ours, theirs, in_parts=False), ours)
    mine, yours = find_stream_divergences((serving[1], ours), (reference[1], theirs))
    streamed = find_divergence(serving[1], reference[1])
    if streamed is None or streamed.stream_only:
        # Text is weighed by how each arm leaves itself, unless that tells nothing of the streams.
        weighed = mine is not None and mine.streamed_alone
        streamed = None if weighed else find_retold_stream(serving[1], reference)
    elif _is_same(serving, reference, cross):
        streamed = cross
    streamed = await look(streamed, serving[1]) if streamed is not cross else streamed
    yours = await look(yours, reference[1])
    return PromptAnswers(prompt, serving, reference, cross, streamed, mine, yours, looks, alone)


def refuse_disobeyed(arm: Arm, *answers: Answer) -> None:
    """Raises Unsupported where `answers` of an arm without drafts had some."""
    if arm.pin == 0 and any(answer.drafted for answer in answers):
        raise Unsupported(DISOBEYED, remedy=UPDATE)


def name_violation(answers: PromptAnswers) -> PromptAnswers:
    """`answers` with what breaks the prompt's rules in the serving arm alone, by its divergence."""
    validity = judge_validity(answers.prompt, answers.serving, answers.reference)
    answers = replace(answers, validity=validity)
    if validity is None or (broken := validity.broken) is None:
        return answers
    if (cross := answers.cross) is not None:
        return replace(answers, cross=replace(cross, violation=broken))
    if (streamed := answers.streamed) is not None:
        return replace(answers, streamed=replace(streamed, violation=broken))
    twice = answers.serving_twice
    return (
        answers
        if twice is None
        else replace(answers, serving_twice=replace(twice, violation=broken))
    )


def _is_same(
    serving: tuple[Answer, ...], reference: tuple[Answer, ...], cross: Divergence | None
) -> bool:
    """Whether each arm repeated itself, so that both pairs of answers are one case."""
    return cross is not None and all(
        arm[0].token_ids == arm[1].token_ids for arm in (serving, reference)
    )


def least_near_tie(ruler: Calibration) -> float:
    """The least margin that `ruler` may take for a tie at the end."""
    return LEAST * ruler.resolution()


def _refuse_other_tokens(
    prompt: Prompt, ours: Answer, theirs: Answer, askers: tuple[Asker, Asker]
) -> None:
    known = ours.prompt_ids is not None and theirs.prompt_ids is not None
    if known and ours.prompt_ids != theirs.prompt_ids:
        raise _tokenizers_differ(f"prompt {prompt.number}", askers)


def _tokenizers_differ(what: str, askers: tuple[Asker, Asker]) -> EngineError:
    serving, reference = askers
    return Unsupported(
        f"the arms cannot be compared: {what} becomes other tokens at"
        f" {reference.arm.url} than at {serving.arm.url}",
        remedy="give both the same model, tokenizer and chat template",
    )


_T = TypeVar("_T")
_Result = PromptAnswers | tuple[Prompt, Refusal]
_Step = Callable[["BlockPrompt"], Awaitable[None]]


@dataclass(slots=True)
class BlockPrompt:
    """One prompt of a block, and what was answered to it so far."""

    prompt: Prompt
    streamed_first: bool = False
    """Whether an arm is asked for the streamed answer before the whole one."""
    serving: list[Answer] = field(default_factory=list)
    reference: list[Answer] = field(default_factory=list)
    looks: list[Flip] = field(default_factory=list)
    alone: Answer | None = None
    more: int = 0
    """How often each arm is asked again."""
    more_serving: list[Answer | Refusal] = field(default_factory=list)
    more_reference: list[Answer | Refusal] = field(default_factory=list)
    refused: Refusal | None = None

    def hear(self, arm: list[Answer], answer: Answer | Refusal, *, stream: bool) -> None:
        """Takes in an answer of an `arm`; the prompt counts for nothing where it is refused."""
        if isinstance(answer, Refusal):
            self.refused = answer
        else:
            arm.insert(len(arm) if stream else 0, answer)  # the whole one stands first

    def more_pairs(self) -> tuple[list[Answer], list[Answer]]:
        """What was answered besides, as often by the one arm as by the other."""
        pairs = [
            (ours, theirs)
            for ours, theirs in zip(self.more_serving, self.more_reference, strict=True)
            if isinstance(ours, Answer) and isinstance(theirs, Answer)
        ]
        return [ours for ours, _ in pairs], [theirs for _, theirs in pairs]

    @property
    def tokens(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """What both arms said, the reference first."""
        reference, serving = (
            [answer.token_ids for answer in arm] for arm in (self.reference, self.serving)
        )
        return reference, serving

    @property
    def pattern(self) -> str:
        """Which answers are the same so far."""
        return group_answers(*self.tokens, self.looks)


async def _take_first(prompts: AsyncIterator[Prompt], most: int) -> list[Prompt]:
    """The next `most` prompts; the others are left."""
    found: list[Prompt] = []
    async for prompt in prompts:
        found.append(prompt)
        if len(found) == most:
            break
    return found


async def _all(work: Sequence[Awaitable[_T]]) -> list[_T]:
    """What all of it gives; the first error ends the rest."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class CheckRunner:
    """One run; iterate `events` to its end, or close it and go on another time."""

    def __init__(
        self,
        serving: Asker,
        reference: Asker,
        prompts: PromptSet,
        *,
        store: Checks,
        run: Run,
        streams: int = 8,
        private: bool = False,
        pace: Pacer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.serving = serving
        self.reference = reference
        self.prompts = prompts
        self.run = run
        self.private = private
        self.totals = _read_totals(run)
        self.resumed = self.totals.prompts + self.totals.refused
        """Prompts that an earlier attempt had done."""
        self._store = store
        self._streams = streams
        self._pace = pace
        self._clock = clock
        self._asked = self.resumed
        self._answers = self._answers_before = self._least_of_block = 0
        self._step: str | None = None
        self._looked_again = self._rechecked = 0
        self._heard = asyncio.Event()
        self._more = self.totals.more_asks
        self._random = Random(run.id)
        self._streamed_first = False
        self._salt = uuid4().hex  # of no earlier check: a cache would hold its prompts
        self._rechecks = 0
        self._confirmed = 0
        # Two arms of one engine take turns; two engines are busy on their own.
        self._same_engine = serving.arm.url == reference.arm.url
        self._gates = {name: asyncio.Semaphore(streams) for name in ("serving", "reference")}

    async def events(self) -> AsyncGenerator[CheckProgress | Found, None]:
        """Asks everything that was not asked before, and tells of it as it comes."""
        await self._same_tokenizer()
        began, before = self._clock(), self.totals.seconds
        yield self._progress(began, self._sum_up())
        async with aclosing(unasked_prompts(self.prompts, self._store, self.run)) as todo:
            while block := await _take_first(todo, BLOCK * self._streams):
                answered = asyncio.ensure_future(self._answer_block(block))
                try:
                    while not answered.done():
                        if await self._wait_for_answer(answered):
                            yield self._progress(began)
                finally:
                    answered.cancel()  # without effect where it is done
                    await asyncio.gather(answered, return_exceptions=True)
                self._least_of_block = 0  # it had as many as it had
                self._step = None
                for result in answered.result():
                    self.totals.seconds = before + self._clock() - began
                    for found in self._take(result):
                        yield found
                    yield self._progress(began)
                yield self._progress(began, self._sum_up())

    async def _wait_for_answer(self, answered: asyncio.Future[list[_Result]]) -> bool:
        """Waits for the next answer, and says whether that is what came before the block's end."""
        self._heard.clear()
        heard = asyncio.ensure_future(self._heard.wait())
        try:
            await asyncio.wait((answered, heard), return_when=asyncio.FIRST_COMPLETED)
        finally:
            heard.cancel()
        return not answered.done()

    async def _answer_block(self, block: list[Prompt]) -> list[_Result]:
        """The answers to some prompts; no request of one arm shares a batch with the other's.

        In the order reference, serving, serving, reference, so that what changes with time
        changes for both alike. The first answer of an arm is to a prompt that it has not read, the
        second may come of its prefix cache: blocks begin with the whole and with the streamed ones
        in turn, so that either are both. In a batch all are of one kind, as a step takes the ways
        of whatever one of its requests asks for.
        """
        asked = [BlockPrompt(prompt, streamed_first=self._streamed_first) for prompt in block]
        self._streamed_first = not self._streamed_first
        self._asked += len(block)
        self._answers_before, self._least_of_block = self._answers, ASKS * len(block)
        self._looked_again = self._rechecked = 0
        theirs, ours = (
            [partial(self._ask, asker, again=again) for again in (False, True)]
            for asker in (self.reference, self.serving)
        )
        if self._same_engine:
            await self._take_turns(asked, theirs[0], *ours, theirs[1], self._look)
        else:
            reference = self._take_turns(asked, *theirs, self._look)
            await _all([reference, self._take_turns(asked, *ours)])
        await self._take_turns(asked, self._look_more)
        for more in range(1, 1 + max((one.more for one in asked), default=0)):
            again = [one for one in asked if one.more >= more]
            self._begin_step(f"asking {format_count(len(again), 'prompt')} again")
            if self._same_engine:
                await self._take_turns(again, self._ask_reference_more, self._ask_serving_more)
            else:
                reference = self._take_turns(again, self._ask_reference_more)
                await _all([reference, self._take_turns(again, self._ask_serving_more)])
        if self._streams > 1:
            for one in asked:
                if one.prompt.number % ALONE == 0 and one.refused is None:
                    self._begin_step(f"asking prompt {one.prompt.number} alone")
                    answer = await self._one(self.reference, one.prompt, stream=False)
                    one.alone = answer if isinstance(answer, Answer) else None
        found: list[_Result] = []
        self._begin_step(f"comparing {format_count(len(asked), 'prompt')}")
        for result in await _all([self._judge(one) for one in asked]):
            await asyncio.sleep(0)  # between prompts a signal or a key is heard
            found.append(name_violation(result) if isinstance(result, PromptAnswers) else result)
        return found

    def _begin_step(self, step: str) -> None:
        """Tells what comes now: its first answer may take a while."""
        self._step = step
        self._heard.set()

    async def _take_turns(self, asked: Sequence[BlockPrompt], *turns: _Step) -> None:
        """Takes every prompt through one turn after the other, as many at once as streams.

        Each turn goes through them in an order of its own. What an answer owes to the others in
        its batch would else be the same in all answers of an arm, and another in the other arm.
        """

        async def follow(one: BlockPrompt, turn: _Step) -> None:
            if one.refused is None:
                await turn(one)

        for turn in turns:
            order = self._random.sample(asked, len(asked))
            await _all([follow(one, turn) for one in order])

    async def _ask(self, asker: Asker, one: BlockPrompt, *, again: bool) -> None:
        """Asks an arm for the one kind of answer, and `again` for the other."""
        stream = one.streamed_first != again
        answer = await self._one(asker, one.prompt, stream=stream)
        one.hear(one.serving if asker is self.serving else one.reference, answer, stream=stream)

    async def _look_more(self, one: BlockPrompt) -> None:
        """More often where anything differs so far; how often it is asked is known before that."""
        if not is_noisy(one.pattern):
            return
        if is_noisy(group_answers(*one.tokens)):
            one.more = more_asks(self._more, self._asked)
            self._more += 2 * one.more
        self._looked_again += 1
        self._begin_step(f"looking again at {format_count(self._looked_again, 'prompt')}")
        for _ in range(LOOKS - 1):
            await self._look(one)

    async def _ask_reference_more(self, one: BlockPrompt) -> None:
        one.more_reference.append(await self._one(self.reference, one.prompt, stream=False))

    async def _ask_serving_more(self, one: BlockPrompt) -> None:
        one.more_serving.append(await self._one(self.serving, one.prompt, stream=False))

    async def _look(self, one: BlockPrompt) -> None:
        """Has the target think its first answer over."""
        async with self._turn(self.reference):
            seen = await look_at_answer(one.reference[0], one.prompt, self.reference)
        if seen is not None:
            flip, distances = seen
            one.looks.append(flip)
            self.totals.calibration.see_noise(distances)

    async def _judge(self, one: BlockPrompt) -> PromptAnswers | tuple[Prompt, Refusal]:
        if one.refused is not None:
            return one.prompt, one.refused
        serving, reference = one.more_pairs()
        return await judge_answers(
            one.prompt,
            (*one.serving, *serving),
            (*one.reference, *reference),
            askers=(self.serving, self.reference),
            ruler=self.totals.calibration,
            recheck=lambda found, answer: self._recheck(one.prompt, found, answer),
            looks=tuple(one.looks),
            alone=one.alone,
        )

    async def _recheck(self, prompt: Prompt, found: Divergence, answer: Answer) -> Divergence:
        """`found` with the target's own view of it, as long as a run asks for few of them."""
        if self._rechecks >= RECHECKS or self._confirmed >= CONFIRMED:
            return found
        self._rechecks += 1
        self._rechecked += 1
        self._begin_step(f"rechecking {format_count(self._rechecked, 'answer')}")
        near_tie = least_near_tie(self.totals.calibration)
        async with self._turn(self.reference):
            seen = await recheck_divergence(
                found, prompt, serving=answer, reference=self.reference, near_tie=near_tie
            )
        gap = None if seen.recheck is None else seen.recheck.gap
        self._confirmed += gap is not None and gap > self.totals.calibration.near_tie()
        return seen

    @asynccontextmanager
    async def _turn(self, asker: Asker) -> AsyncIterator[None]:
        turn = self._pace.turn(self._clock) if self._pace else nullcontext()
        async with self._gates[asker.arm.name], turn:
            yield
        self._answers += 1
        self._heard.set()

    async def _one(self, asker: Asker, prompt: Prompt, *, stream: bool) -> Answer | Refusal:
        """What an arm answers.

        What an arm has read is cached for that arm alone, or one would answer out of the other's
        cache.
        """
        logprobs = has_logprobs(asker.arm.name, streamed=stream)
        salt = f"{self._salt}-{asker.arm.name}"
        async with self._turn(asker):
            return await asker.answer(prompt, stream=stream, logprobs=logprobs, cache_salt=salt)

    def _take(self, result: PromptAnswers | tuple[Prompt, Refusal]) -> Iterator[Found]:
        """Counts the answers to one prompt and writes them down, in one transaction."""
        if not isinstance(result, PromptAnswers):
            prompt, refused = result
            self.totals.refused += 1
            row = describe_refusal(prompt, refused, private=self.private)
            self._store.add(self.run.id, [row], self.totals.as_json())
            return
        self.totals.take(result)
        rows = describe_answers(result, private=self.private)
        self._store.add(self.run.id, rows, self.totals.as_json())
        for row, d in zip(rows, result.pairs.values(), strict=True):
            if d is not None:
                yield Found(row, d)

    async def _same_tokenizer(self) -> None:
        if self.serving.arm.url == self.reference.arm.url:
            return
        ours, theirs = await asyncio.gather(
            self.serving.tokenize(PROBE), self.reference.tokenize(PROBE)
        )
        if ours is not None and theirs is not None and ours != theirs:
            raise _tokenizers_differ("a probe text", (self.serving, self.reference))

    def _sum_up(self) -> RunningFigures:
        arms = self.serving.arm, self.reference.arm
        return sum_up(self.totals, arms, partial(read_cases, self._store, self.run.id))

    def _progress(self, began: float, figures: RunningFigures | None = None) -> CheckProgress:
        done = self.totals.prompts + self.totals.refused
        seconds, fresh = self._clock() - began, done - self.resumed
        rate = fresh / seconds if fresh and seconds > 0 else None
        of_block = max(self._least_of_block, self._answers - self._answers_before)
        of = self._answers_before + of_block + ASKS * (self.prompts.count - self._asked)
        # Sooner they tell of one moment alone: as many as there are streams come at once.
        told = self._answers >= self._streams and seconds > 0
        told = told and (of > self._answers or done == self.prompts.count)
        left = (of - self._answers) * seconds / self._answers if told else None
        return CheckProgress(
            done, self.prompts.count, self.totals.mismatches, self.totals.refused, rate, left,
            figures, self._answers, of, self._step,
        )  # fmt: skip


def _read_totals(run: Run) -> Totals:
    try:
        return Totals.from_json(run.totals)
    except WrongType as error:
        raise unreadable(error, remedy="--fresh starts over") from error
