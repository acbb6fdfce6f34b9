"""One prompt, both arms side by side: every token as it comes, up to the first that differs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from specdeck.engine.divergence.answers import Answer, Call, Piece, assemble
from specdeck.engine.divergence.arms import Name
from specdeck.engine.divergence.calibration import Calibration
from specdeck.engine.divergence.compare import Divergence, common_length, find_divergence
from specdeck.engine.divergence.outcome import Case, Outcome, build_outcome
from specdeck.engine.divergence.privacy import hash_prompt
from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.divergence.recheck import recheck_divergence
from specdeck.engine.divergence.requests import Asker, Refusal
from specdeck.engine.divergence.runner import judge_answers, least_near_tie, name_violation
from specdeck.engine.divergence.totals import Totals
from specdeck.engine.errors import EngineError, SpecdeckError

NAMES: tuple[Name, Name] = ("serving", "reference")


@dataclass(frozen=True, slots=True)
class ArmText:
    """What one arm has just said."""

    arm: Name
    tokens: tuple[int, ...]
    text: str
    """A call of a tool reads `name(arguments)`, however it came."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The arms differ; known at the token, before either answer has ended."""

    divergence: Divergence
    texts: Texts
    """Spelt by the reference arm, whose tokenizer is the serving arm's."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What tokens read as; None where the engine does not tell."""

    common: str | None
    """The tokens before the first that differs."""
    tokens: dict[int, str] = field(default_factory=dict)
    """The candidates of both arms."""


@dataclass(frozen=True, slots=True)
class RaceVerdict:
    """Both arms were heard to the end and asked once more, whole: this is what came of it."""

    outcome: Outcome
    """A check of one prompt."""
    case: Case | None
    """None when the answers are the same."""
    tokens: int
    """That both arms have in common."""
    seconds: dict[Name, float]
    """Of the streamed answers."""


RaceEvent = ArmText | FirstDifference | RaceVerdict


async def race(
    askers: tuple[Asker, Asker],
    prompt: Prompt,
    ruler: Calibration,
    *,
    threshold: float,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[RaceEvent, None]:
    """Asks the serving and the reference arm at once; `ruler` learns from their margins.

    `threshold` is the share of differing prompts that is still good, as for a check of many.
    Ends with RaceVerdict. Raises EngineError when an arm refuses, breaks off or stays away.
    """
    heard = {name: ArmStream() for name in NAMES}
    queue: asyncio.Queue[_News] = asyncio.Queue()
    began, parted = clock(), False
    listeners = [
        asyncio.create_task(_listen(asker, prompt, name, queue))
        for name, asker in zip(NAMES, askers, strict=True)
    ]
    try:
        while not all(each.ended for each in heard.values()):
            name, news = await queue.get()
            if isinstance(news, SpecdeckError):
                raise news
            arm = heard[name]
            text = arm.end(clock() - began) if news is None else arm.take(news)
            if parted:
                continue
            tokens = () if news is None else news.token_ids
            if text or tokens:
                yield ArmText(name, tokens, text)
            found = _first(heard["serving"], heard["reference"])
            if found is not None:
                parted = True
                yield FirstDifference(found, await _texts(askers[1], heard["reference"], found))
    finally:
        for listener in listeners:
            listener.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)
    streamed = heard["serving"].answer(), heard["reference"].answer()
    yield await _judge(askers, prompt, ruler, streamed, threshold)


_News = tuple[Name, Piece | SpecdeckError | None]


@dataclass(slots=True)
class ArmStream:
    """What one arm has said so far; None as news is its end."""

    pieces: list[Piece] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    calling: int | None = None
    """The number of the call whose arguments are being told."""
    ended: bool = False
    seconds: float = 0.0

    def take(self, piece: Piece) -> str:
        """Takes in a piece; what there is to read in it."""
        self.pieces.append(piece)
        self.tokens += piece.token_ids
        said = piece.reasoning + piece.text
        text = self._close_call() + said if said else ""
        return text + "".join(self._read_call(number, call) for number, call in piece.calls)

    def end(self, seconds: float) -> str:
        """The arm has said all; what is left to read of it."""
        self.ended, self.seconds = True, seconds
        return self._close_call()

    def _read_call(self, number: int, call: Call) -> str:
        """Part of a call: its name comes once, its arguments in as many parts as they like."""
        head = ""
        if number != self.calling:
            between = "; " if self.calling is not None else ""
            head = f"{self._close_call()}{between}{call.name}("
            self.calling = number
        return head + call.arguments

    def _close_call(self) -> str:
        open_, self.calling = self.calling is not None, None
        return ")" if open_ else ""

    def answer(self) -> Answer:
        return assemble(self.pieces, self.seconds)


async def _listen(asker: Asker, prompt: Prompt, name: Name, queue: asyncio.Queue[_News]) -> None:
    try:
        async with aclosing(asker.live(prompt)) as pieces:
            async for piece in pieces:
                queue.put_nowait((name, piece))
    except SpecdeckError as error:
        queue.put_nowait((name, error))
    else:
        queue.put_nowait((name, None))


def _first(ours: ArmStream, theirs: ArmStream) -> Divergence | None:
    """The first difference among the tokens that are there; None while there is none."""
    at = common_length(ours.tokens, theirs.tokens)
    lengths = len(ours.tokens), len(theirs.tokens)
    # An arm that has said less than the other is behind, unless it has ended.
    behind = [arm for arm, n in zip((ours, theirs), lengths, strict=True) if n == at]
    if len(behind) == 2 or any(not arm.ended for arm in behind):
        return None
    found = find_divergence(ours.answer(), theirs.answer())
    # Parts of a call are no call yet: what differs in them is judged at the end.
    return None if found is None else replace(found, structure=())


async def _texts(asker: Asker, heard: ArmStream, found: Divergence) -> Texts:
    common = tuple(heard.tokens[: found.index])
    said = {found.serving_token, found.reference_token}
    listed = {token for token, _ in (*found.serving_top, *found.reference_top)}
    wanted = sorted(token for token in said | listed if token is not None)
    spelt, *rest = await asyncio.gather(
        asker.detokenize(common), *(asker.detokenize((*common[-1:], token)) for token in wanted)
    )
    # A token alone may lose the blank that it begins with, so it is spelt after another.
    before = await asker.detokenize(common[-1:]) if common else ""
    texts = {
        token: text[len(before) :] if before and text.startswith(before) else text
        for token, text in zip(wanted, rest, strict=True)
        if text is not None
    }
    return Texts(spelt, texts)


async def _judge(
    askers: tuple[Asker, Asker],
    prompt: Prompt,
    ruler: Calibration,
    streamed: tuple[Answer, Answer],
    threshold: float,
) -> RaceVerdict:
    """Each arm's whole answer besides, and what a check of the prompt makes of them all."""
    serving, reference = askers
    ours, theirs = [_whole(asker, await asker.answer(prompt)) for asker in askers]
    answers = await judge_answers(
        prompt,
        (ours, streamed[0]),
        (theirs, streamed[1]),
        askers=askers,
        ruler=ruler,
        recheck=lambda found, answer: recheck_divergence(
            found, prompt, serving=answer, reference=reference, near_tie=least_near_tie(ruler)
        ),
    )
    answers = name_violation(answers)
    totals = Totals(calibration=ruler, seconds=max(answer.seconds for answer in streamed))
    totals.take(answers)
    cases = {
        pair: [Case(prompt.number, hash_prompt(prompt), found)] if found else []
        for pair, found in answers.pairs.items()
    }
    outcome = build_outcome(
        totals, (serving.arm, reference.arm), cases=lambda pair: cases[pair], threshold=threshold
    )
    return RaceVerdict(
        outcome,
        next(iter(outcome.classes.listed), None),
        common_length(ours.token_ids, theirs.token_ids),
        {name: answer.seconds for name, answer in zip(NAMES, streamed, strict=True)},
    )


def _whole(asker: Asker, answer: Answer | Refusal) -> Answer:
    if isinstance(answer, Refusal):
        raise EngineError(f"{asker.arm.url} refuses the prompt: {answer.reason}")
    return answer
