"""Runs a check: both arms kept busy, each against itself too, nothing counted twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from specdeck.engine.divergence.answers import Answer
from specdeck.engine.divergence.calibration import LEAST, Calibration
from specdeck.engine.divergence.compare import (
    Divergence,
    PromptAnswers,
    Recheck,
    find_divergence,
    find_stream_divergences,
)
from specdeck.engine.divergence.outcome import Totals
from specdeck.engine.divergence.pacing import Pacer
from specdeck.engine.divergence.privacy import describe_answers, describe_refusal
from specdeck.engine.divergence.prompts import Prompt, PromptSet
from specdeck.engine.divergence.requests import PROBE, Asker, Refused
from specdeck.engine.divergence.resume import unasked_prompts
from specdeck.engine.errors import EngineError, Unsupported
from specdeck.engine.store.checks import Checks, Compared, Run

RECHECKS = 200
"""The most in one run: an engine in which everything differs needs no more to be believed."""
DISOBEYED = "the engine drafts for requests that are pinned to k = 0"
UPDATE = "update specdeck in the engine's environment"


async def recheck_divergence(
    found: Divergence, prompt: Prompt, *, serving: Answer, reference: Asker
) -> Divergence:
    """`found` with the target's own view; a reference's margin that is but a bound gives way."""
    seen = await ask_target(found, prompt, serving=serving, reference=reference)
    if seen is not None and seen.gap is not None and found.bounded:
        found = replace(found, margin_reference=seen.gap)
    return replace(found, recheck=seen)


async def ask_target(
    found: Divergence, prompt: Prompt, *, serving: Answer, reference: Asker
) -> Recheck | None:
    """What the target thinks of the serving arm's tokens up to `found`; None where it won't say."""
    if serving.prompt_ids is None or found.serving_token is None:
        return None
    said = serving.token_ids[: found.index + 1]
    thoughts = await reference.score_tokens((*serving.prompt_ids, *said))
    if isinstance(thoughts, Refused) or len(thoughts) < len(said):
        return None
    return weigh_preference(
        found, said, thoughts[-len(said) :], constrained=_is_constrained(prompt)
    )


def weigh_preference(
    found: Divergence,
    said: Sequence[int],
    thoughts: Sequence[Mapping[str, Any] | None],
    *,
    constrained: bool = False,
) -> Recheck | None:
    """Gap and rank of the divergent token, and the worst gap before it.

    Under a grammar the target's argmax may be forbidden, so the token that the
    reference chose is what its preference is measured against; None where the target
    does not list it, as what it would prefer among the allowed ones is not known then.
    """
    at = thoughts[found.index]
    own = None if at is None else at.get(str(found.serving_token))
    if at is None or own is None:
        return None
    rank = None if own.get("rank") is None else int(own["rank"])
    if constrained:
        chosen = at.get(str(found.reference_token))
        if chosen is None:
            return None
        return Recheck(float(chosen["logprob"]) - float(own["logprob"]), rank, worst=None)
    gaps = [_gap(thought, token) for thought, token in zip(thoughts, said, strict=True)]
    worst = max((gap for gap in gaps if gap is not None), default=None)
    return Recheck(gaps[found.index], rank, worst)


def _gap(thought: Mapping[str, Any] | None, token: int) -> float | None:
    own = None if thought is None else thought.get(str(token))
    if thought is None or own is None:
        return None
    return max(float(one["logprob"]) for one in thought.values()) - float(own["logprob"])


def _is_constrained(prompt: Prompt) -> bool:
    choice = prompt.body.get("tool_choice")
    return "response_format" in prompt.body or choice == "required" or isinstance(choice, dict)


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


@dataclass(frozen=True, slots=True)
class Found:
    """A pair that differs, as soon as it is known."""

    compared: Compared
    divergence: Divergence


async def judge_answers(
    prompt: Prompt,
    serving: tuple[Answer, Answer],
    reference: tuple[Answer, Answer],
    *,
    askers: tuple[Asker, Asker],
    ruler: Calibration,
    recheck: Callable[[Divergence], Awaitable[Divergence]],
) -> PromptAnswers:
    """Where the whole and the streamed answers of both arms part, one prompt or many.

    `recheck` has the target look at a divergence that is no near tie by the `ruler` so far.
    Raises Unsupported where the arms cannot be compared, or a pin is not obeyed.
    """
    ours, theirs = serving[0], reference[0]
    _refuse_other_tokens(prompt, ours, theirs, askers)
    if askers[1].arm.pin == 0 and any(answer.drafted for answer in reference):
        raise Unsupported(DISOBEYED, remedy=UPDATE)
    cross = find_divergence(ours, theirs)
    # By the least threshold: what noise has added to it by now may yet be taken off.
    if cross is not None and not (ruler.sound and cross.tied(LEAST * ruler.resolution())):
        cross = await recheck(cross)
    mine, yours = find_stream_divergences((serving[1], ours), (reference[1], theirs))
    return PromptAnswers(prompt, serving, reference, cross, mine, yours)


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
        self.totals = Totals.from_json(run.totals)
        self.resumed = self.totals.prompts + self.totals.refused
        """Prompts that an earlier attempt had done."""
        self._store = store
        self._streams = streams
        self._pace = pace
        self._clock = clock
        self._rechecks = 0
        one = asyncio.Semaphore(streams)
        same = serving.arm.url == reference.arm.url
        # Two arms of one engine share its streams; two engines are busy on their own.
        self._gates = {"serving": one, "reference": one if same else asyncio.Semaphore(streams)}

    async def events(self) -> AsyncGenerator[CheckProgress | Found, None]:
        """Asks everything that was not asked before, and tells of it as it comes."""
        await self._same_tokenizer()
        began, before = self._clock(), self.totals.seconds
        yield self._progress(began)
        todo = unasked_prompts(self.prompts, self._store, self.run)
        answered: asyncio.Queue[_Result] = asyncio.Queue(self._streams)
        ahead = self._streams + 1  # a request always waits for a stream that comes free
        workers = [asyncio.create_task(self._work(todo, answered)) for _ in range(ahead)]
        try:
            working = len(workers)
            while working:
                result = await answered.get()
                if isinstance(result, BaseException):
                    raise result
                if result is None:
                    working -= 1
                    continue
                self.totals.seconds = before + self._clock() - began
                for found in self._take(result):
                    yield found
                yield self._progress(began)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self, todo: Iterator[Prompt], answered: asyncio.Queue[_Result]) -> None:
        """Answers prompts until there is none left; None, or what went wrong, is the last."""
        try:
            for prompt in todo:
                await answered.put(await self._answer(prompt))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await answered.put(error)
            raise
        await answered.put(None)

    async def _answer(self, prompt: Prompt) -> PromptAnswers | tuple[Prompt, Refused]:
        asked = [(self.reference, False), (self.serving, False), (self.serving, True),
                 (self.reference, True)]  # fmt: skip
        answers = await asyncio.gather(*(self._one(a, prompt, stream=s) for a, s in asked))
        refused = next((a for a in answers if isinstance(a, Refused)), None)
        if refused is not None:
            return prompt, refused
        r1, s1, s2, r2 = (a for a in answers if isinstance(a, Answer))
        return await judge_answers(
            prompt,
            (s1, s2),
            (r1, r2),
            askers=(self.serving, self.reference),
            ruler=self.totals.calibration,
            recheck=lambda found: self._recheck(prompt, found, s1),
        )

    async def _recheck(self, prompt: Prompt, found: Divergence, serving: Answer) -> Divergence:
        """`found` with the target's own view of it, as long as a run asks for few of them."""
        if self._rechecks >= RECHECKS:
            return found
        self._rechecks += 1
        async with self._gates["reference"]:
            return await recheck_divergence(
                found, prompt, serving=serving, reference=self.reference
            )

    async def _one(self, asker: Asker, prompt: Prompt, *, stream: bool) -> Answer | Refused:
        turn = self._pace.turn(self._clock) if self._pace else nullcontext()
        async with self._gates[asker.arm.name], turn:
            return await asker.answer(prompt, stream=stream)

    def _take(self, result: PromptAnswers | tuple[Prompt, Refused]) -> Iterator[Found]:
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

    def _progress(self, began: float) -> CheckProgress:
        done = self.totals.prompts + self.totals.refused
        seconds, fresh = self._clock() - began, done - self.resumed
        rate = fresh / seconds if fresh and seconds > 0 else None
        left = (self.prompts.count - done) / rate if rate else None
        return CheckProgress(
            done, self.prompts.count, self.totals.mismatches, self.totals.refused, rate, left
        )


_Result = PromptAnswers | tuple[Prompt, Refused] | BaseException | None
