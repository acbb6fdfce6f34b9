"""A check from the engines' addresses to its outcome, once, repeatedly, or of distributions.

    ArmsReady ─▶ (CheckProgress | Found)* ─▶ CheckResult       run_check
    ArmsReady ─▶ DrawProgress* ─▶ SampledResult           run_sampled_check

Whoever asks prints or shows the events. A check that is cut short goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from specdeck.engine.client.retry import RETRY_S, Retry, WaitingForEngine
from specdeck.engine.client.secret import Secret
from specdeck.engine.divergence.arms import (
    Arm,
    Name,
    describe_hard,
    describe_soft,
    has_drafted,
    is_replaced,
    refuse_itself,
)
from specdeck.engine.divergence.canary import Canary
from specdeck.engine.divergence.conclusion import (
    Conclusion,
    Judge,
    conclude_check,
    conclude_night,
    is_sound,
)
from specdeck.engine.divergence.history import (
    History,
    PastCheck,
    SampledHistory,
    comparable_checks,
    comparable_runs,
    compare_with_history,
    compare_with_sampled_history,
    sampled_run,
)
from specdeck.engine.divergence.outcome import Outcome, build_outcome, read_cases
from specdeck.engine.divergence.pacing import Pacer
from specdeck.engine.divergence.prompts import PromptSet
from specdeck.engine.divergence.requests import Asker, RequestSettings, http_client
from specdeck.engine.divergence.resume import find_or_begin_run
from specdeck.engine.divergence.runner import CheckProgress, CheckRunner, Found
from specdeck.engine.divergence.sampled import (
    Distributions,
    DrawProgress,
    Sampling,
    compare_distributions,
    doubt_arms,
)
from specdeck.engine.divergence.totals import Totals
from specdeck.engine.divergence.verdict import Verdict
from specdeck.engine.errors import (
    EngineError,
    NoReply,
    SpecdeckError,
    Stalled,
    Unsupported,
    UsageError,
)
from specdeck.engine.metrics.page import read_page
from specdeck.engine.operations.assignments import format_undo
from specdeck.engine.protocol.codec import WrongType
from specdeck.engine.protocol.messages import AppliedChange, Change, EngineState
from specdeck.engine.store.checks import SAMPLED, Checks, Run
from specdeck.engine.store.database import StoreHeld

if TYPE_CHECKING:
    import httpx

    from specdeck.engine.client.engine_client import EngineClient


HELD_S = 15.0
"""For which what came of a check is tried to be stored while another process has the store."""
_HELD_PAUSE_S = 0.2
_COUNTERS_S = 10.0
"""How long counters are waited for: a gateway may have none for good."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What an operator asks of a check."""

    reference: str | None = None
    """The other engine; None compares with the same one, each request pinned to k = 0."""
    prompts: int = 200
    replays: int = 20
    """Of a single prompt."""
    max_tokens: int = 128
    """In one answer."""
    ignore_eos: bool = False
    threshold: float = 0.015
    """The share of differing prompts that is still good."""
    streams: int = 8
    """Requests at once on each engine."""
    gentle: bool = False
    private: bool = False
    fresh: bool = False
    """Begins anew even where a run was cut short."""
    new_baseline: bool = False
    """The canary forgets the nights before this one."""
    judge: Judge = "verdict"
    """Whose word the check's conclusion is."""
    strict: bool = False
    """A canary that has seen too few nights is no good one."""
    calls: int = 5
    """In a session, for the risk that adds up."""
    model: str | None = None
    """Where an engine serves several."""
    retry_s: float = RETRY_S
    """Seconds to wait for an engine that is away."""

    @property
    def settings(self) -> RequestSettings:
        """What is the same for every request."""
        return RequestSettings(max_tokens=self.max_tokens, ignore_eos=self.ignore_eos)


@dataclass(frozen=True, slots=True)
class CheckedEngine:
    """Where one arm answers, and the key that it requires."""

    client: EngineClient
    api_key: Secret | None = None
    transport: httpx.AsyncBaseTransport | None = None


@dataclass(frozen=True, slots=True)
class ArmsReady:
    """Both arms answer, and the run is begun or found."""

    arms: tuple[Arm, Arm]
    resumed: int = 0
    """Prompts that an earlier attempt had done."""


@dataclass(frozen=True, slots=True)
class Trip:
    """What became of a breaker that was to be opened."""

    breaker: str | None
    """As the engine has it by now; None where it could not be opened."""
    undo: str | None
    """The command that resets it; None where it is known not to be open."""
    error: SpecdeckError | None = None
    """Why it is not open, or why that is not known."""

    def as_json(self) -> dict[str, Any]:
        """The value of `tripped` in `check --json`."""
        error = None if self.error is None else self.error.line()
        return {"breaker": self.breaker, "undo": self.undo, "error": error}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A finished check among the earlier ones; its run is kept and not resumed."""

    outcome: Outcome
    run: int
    """Its number in the store."""
    history: History
    earlier: tuple[PastCheck, ...] = ()
    """With the same prompts and settings, whatever draft or k."""
    canary: Canary = field(default_factory=Canary)
    """This check as one night of many."""
    judge: Judge = "verdict"
    """Whose word its conclusion is."""
    strict: bool = False
    """Whether a canary has to have seen enough nights for a good one."""
    trip: Trip | None = None
    unstored: SpecdeckError | None = None
    """Why the store does not have it; None where it has."""
    past_error: SpecdeckError | None = None
    """Why the checks before it are not known; None where they are."""

    @property
    def verdict(self) -> Verdict:
        """What the check says."""
        return self.outcome.verdict

    @property
    def is_sound(self) -> bool:
        """Whether it is a night like any other: no defect, and speculation was tried."""
        return is_sound(self.verdict)

    @property
    def conclusion(self) -> Conclusion:
        """What it comes to, by its verdict or as a night of the canary."""
        if self.judge == "verdict":
            return conclude_check(self.verdict)
        return conclude_night(
            self.verdict, self.canary, strict=self.strict, past_error=self.past_error
        )

    def as_json(self) -> dict[str, Any]:
        """The document of `check --json`."""
        return {
            **self.outcome.as_json(),
            "history": asdict(self.history),
            "earlier": [asdict(check) for check in self.earlier],
            "canary": self.canary.as_json(counts=False),
            "conclusion": self.conclusion.as_json(),
            "tripped": None if self.trip is None else self.trip.as_json(),
        }


@dataclass(frozen=True, slots=True)
class SampledResult:
    """A finished check of distributions among the earlier ones."""

    found: Distributions
    history: SampledHistory
    trip: Trip | None = None
    unstored: SpecdeckError | None = None
    """Why the store does not have it; None where it has."""

    @property
    def verdict(self) -> Verdict:
        """What the check says."""
        return self.found.verdict

    def as_json(self) -> dict[str, Any]:
        """The document of `check --sampled --json`."""
        return {
            **self.found.as_json(),
            "history": asdict(self.history),
            "tripped": None if self.trip is None else self.trip.as_json(),
        }


@dataclass(frozen=True, slots=True)
class NotDone:
    """One of several checks that could not be done; the next may be."""

    error: SpecdeckError


CheckEvent = ArmsReady | CheckProgress | Found | CheckResult
SampledEvent = ArmsReady | DrawProgress | SampledResult


class ArmPair:
    """The two arms of a check, ready to be asked; an async context manager."""

    def __init__(
        self,
        serving: CheckedEngine,
        reference: CheckedEngine | None,
        options: CheckOptions,
        *,
        wall: Callable[[], float] = time.time,
        on_notice: Callable[[WaitingForEngine], None] = lambda waiting: None,
    ) -> None:
        """`on_notice` hears of an engine that is waited for; `wall` tells Unix time in seconds."""
        self.options = options
        self.wall = wall
        self._retry = Retry(options.retry_s, on_notice=on_notice)
        self._engines = serving, reference
        self._stack = AsyncExitStack()
        self.arms: tuple[Arm, Arm]
        self.askers: tuple[Asker, Asker]
        """Serving and reference; their `pieces` are the streams of a split screen."""

    async def __aenter__(self) -> Self:
        serving, reference = self._engines
        if reference is None:
            self.arms = await describe_soft(serving.client, self.options.model, self._retry)
        else:
            clients = serving.client, reference.client
            self.arms = await describe_hard(*clients, self.options.model, self._retry)
            if reference is not serving:  # as where one is measured alone
                await refuse_itself(*clients)
        ours = self._http(serving)
        theirs = ours if reference is None else self._http(reference)
        one, other = self.arms
        self.askers = self._asker(ours, one), self._asker(theirs, other)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    @property
    def serving(self) -> EngineClient:
        """The client of the engine that serves."""
        return self._engines[0].client

    @property
    def streams(self) -> int:
        """Requests at once on each engine."""
        return 1 if self.options.gentle else self.options.streams

    def pacer(self) -> Pacer | None:
        """What a gentle check paces its requests by; None for any other.

        The requests get a low priority too where the engine schedules by it.

        A priority decides who waits and who is preempted. It does not keep a request out of
        the batch that production's tokens come from, so it is no substitute for a pace.
        """
        if not self.options.gentle:
            return None
        # vLLM answers a request with a priority either way: only its config tells.
        policies = [(arm.facts.details or {}).get("config.scheduler.policy") for arm in self.arms]
        if all(policy == "priority" for policy in policies):
            for asker in self.askers:
                asker.settings = replace(asker.settings, priority=1)
        return Pacer(self._engines[0].client)

    async def fetch_drafted(self) -> float | None:
        """Tokens that the serving engine has drafted for anybody; None where it does not say."""
        return await self._fetch_drafted(self._engines[0])

    async def fetch_state(self) -> EngineState | None:
        """The serving engine's; None without the plugin. Raises EngineError where it stays away."""
        try:
            return await self._retry.answer(self.serving.state)
        except Unsupported:
            return None

    async def note_counts(self, totals: Totals) -> None:
        """Takes in what the engines have drafted for anybody by now, and the serving one's word."""
        for sums, engine in zip((totals.serving, totals.reference), self._engines, strict=True):
            # The counters of a soft reference are those of serving.
            is_due = sums.count is not None and sums.requests > sums.counted_answers
            if engine is not None and (is_due or not sums.requests):
                sums.note_count(await self._fetch_drafted(engine))
        sums = totals.serving
        if self.gives_word and sums.requests > sums.looked_answers:
            sums.note_word(is_idle=await self.fetch_word())

    async def resume_counts(self, totals: Totals) -> None:
        """Takes in that an earlier attempt has left, and what came since its last look is unseen.

        A reference that drafts for anybody is none, whenever it does: its count goes on.
        """
        sums, engine = totals.serving, self._engines[0]
        if engine is not None and sums.count is not None:
            sums.resume_count(await self._fetch_drafted(engine))
        if self.gives_word:
            sums.resume_word()

    @property
    def gives_word(self) -> bool:
        """Whether the serving engine says of itself whether it drafts: one with the plugin does."""
        return self.arms[0].facts.mode is not None

    async def fetch_word(self) -> bool | None:
        """Whether the serving engine says at this moment that it drafts nothing; None where it
        cannot be asked."""
        return await self._fetch_word(self.arms[0], self._engines[0])

    async def has_drafting_reference(self, by_counters: bool | None) -> bool | None:
        """Whether another engine as the reference drafts, by its counters or its word; None where
        that is not known, or not any more.

        What it drafts for others it drafts for a check as well.
        """
        reference, arm = self._engines[1], self.arms[1]
        if reference is None:
            return False
        if arm.speculates or by_counters is not None:
            return arm.speculates or by_counters
        return False if arm.is_idle and await self._fetch_word(arm, reference) else None

    async def fetch_drafted_by_reference(self) -> float | None:
        """Tokens that another engine as the reference has drafted for anybody; None where there is
        none, or it does not say."""
        reference = self._engines[1]
        return None if reference is None else await self._fetch_drafted(reference)

    async def has_turned_idle(self) -> bool:
        """Whether the serving engine says that it drafts nothing, and did not in the beginning."""
        return not self.arms[0].is_idle and bool(await self.fetch_word())

    async def _fetch_word(self, arm: Arm, engine: CheckedEngine) -> bool | None:
        try:
            state = await self._retry.answer(engine.client.state)
        except EngineError:
            return None
        return arm.in_state(state).is_idle

    async def _fetch_drafted(self, engine: CheckedEngine) -> float | None:
        """Its counter of drafted tokens; None where it has none, or stays away."""
        until = self._retry.clock() + min(_COUNTERS_S, self._retry.seconds)
        try:
            page = await self._retry.answer(engine.client.page, until=until)
            seen = await read_page(page, t=0.0, at=0.0)
        except EngineError:  # none, or one that is not vLLM's
            return None
        # An engine without a drafter has no counter of drafts, only those of everything else.
        return 0.0 if seen.drafted is None and seen.generated is not None else seen.drafted

    async def find_replaced(self, *, if_away: bool = True) -> tuple[Name, ...]:
        """The arms whose engines are others than in the beginning, and `if_away` those that may
        be, as they do not say."""
        serving, reference = self._engines
        clients = serving.client, (reference or serving).client
        found: list[Name] = []
        for arm, client in zip(self.arms, clients, strict=True):
            try:
                if await self._retry.answer(partial(is_replaced, arm, client)):
                    found.append(arm.name)
            except EngineError:
                found += [arm.name] if if_away else []
        return tuple(found)

    def _http(self, engine: CheckedEngine) -> httpx.AsyncClient:
        http = http_client(
            engine.client.url,
            streams=2 * self.streams,
            api_key=engine.api_key,
            transport=engine.transport,
            check_port=engine.client.check_port,
        )
        self._stack.push_async_callback(http.aclose)
        return http

    def _asker(self, http: httpx.AsyncClient, arm: Arm) -> Asker:
        return Asker(http, arm, self.options.settings, retry=self._retry)


async def run_check(
    pair: ArmPair, prompts: PromptSet, store: Checks, *, held_s: float = HELD_S
) -> AsyncGenerator[CheckEvent, None]:
    """Compares both arms over `prompts`: goes on with the run that was cut short, or begins one.

    A store that cannot be written to any more costs the check nothing but its place in there, which
    is waited for up to `held_s` seconds where another process has it.

    Raises SpecdeckError when an engine stays away or cannot do it, and Unsupported when every
    prompt is refused.
    """
    runner = begin_run(pair, prompts, store)
    yield ArmsReady(pair.arms, runner.resumed)
    serving, reference = runner.totals.serving, runner.totals.reference
    if runner.resumed:
        await pair.resume_counts(runner.totals)
    await pair.note_counts(runner.totals)
    try:
        async with aclosing(runner.events()) as events:
            async for event in events:
                # Before whoever follows may let go: what nobody looked at then counts for nothing.
                if isinstance(event, CheckProgress) and event.figures is not None:
                    await pair.note_counts(runner.totals)
                    if event.done > runner.resumed:
                        runner.totals.note_replaced(await pair.find_replaced(if_away=False))
                    with suppress(SpecdeckError), store.impatient():
                        store.note(runner.run.id, runner.totals.as_json())
                yield event
    finally:
        with suppress(SpecdeckError), store.impatient():
            store.write_waiting()
    runner.totals.note_replaced(await pair.find_replaced())
    serving.turned_idle |= await pair.has_turned_idle()
    known = reference.count is not None and not reference.lost
    drafts = await pair.has_drafting_reference(reference.speculates if known else None)
    reference.speculates |= drafts is True
    reference.counted = drafts is not None
    outcome, canary = judge_run(pair, runner, store)
    t, summary = pair.wall(), {**outcome.as_json(), "canary": canary.as_json()}
    unstored = await _store_when_free(
        store, lambda: store.finish(runner.run.id, t, summary), held_s
    )
    if unstored is not None:
        with suppress(SpecdeckError):
            store.give_up(runner.run.id)
    now = replace(runner.run, finished=t, summary=json.loads(json.dumps(summary)))
    runs = (now, *store.history(pair.arms[0].url, like=now))
    history, earlier = compare_with_history(runs), comparable_checks(runs)
    yield CheckResult(
        outcome, runner.run.id, history, earlier, canary,
        judge=pair.options.judge, strict=pair.options.strict, unstored=unstored,
    )  # fmt: skip


async def _store_when_free(
    store: Checks, write: Callable[[], None], held_s: float
) -> SpecdeckError | None:
    """Why something could not be written; None where it was. It never holds up the event loop."""
    ends = time.monotonic() + held_s
    while True:
        try:
            with store.impatient():
                write()
        except StoreHeld as error:
            if time.monotonic() > ends:
                return error
        except SpecdeckError as error:
            return error
        else:
            return None
        await asyncio.sleep(_HELD_PAUSE_S)


async def run_sampled_check(
    pair: ArmPair,
    prompts: PromptSet,
    sampling: Sampling,
    store: Checks,
    *,
    held_s: float = HELD_S,
) -> AsyncGenerator[SampledEvent, None]:
    """Compares the distributions of both arms at temperature > 0; begins anew each time."""
    before = await pair.fetch_drafted_by_reference()
    yield ArmsReady(pair.arms)
    async with aclosing(
        compare_distributions(
            pair.askers,
            prompts,
            sampling,
            pace=pair.pacer(),
            fetch_drafted=pair.fetch_drafted,
            fetch_word=pair.fetch_word if pair.gives_word else None,
            private=pair.options.private,
        )
    ) as events:
        async for event in events:
            if isinstance(event, Distributions):
                replaced = await pair.find_replaced()
                now = None if before is None else await pair.fetch_drafted_by_reference()
                drafted = None if before is None or now is None else has_drafted(before, now)
                event = doubt_arms(
                    event,
                    replaced=replaced,
                    reference_drafts=await pair.has_drafting_reference(drafted),
                    turned_idle=await pair.has_turned_idle(),
                )
                run = sampled_run(event, prompts, pair.wall())
                earlier = store.history(run.url, kind=SAMPLED, like=run)
                unstored = await _store_when_free(store, partial(store.keep, run), held_s)
                history = compare_with_sampled_history((run, *earlier))
                yield SampledResult(event, history, unstored=unstored)
            else:
                yield event


async def repeat_checks(
    check: Callable[[], AsyncGenerator[CheckEvent, None]],
    every_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncGenerator[CheckEvent | NotDone, None]:
    """The events of one `check` after another, begun every `every_s` seconds, for ever.

    One that cannot be done does not end it, but for wrong usage that the first one shows before
    anything was asked.
    """
    is_proven = False
    """Whether something was asked, or a round is over."""
    while True:
        began = clock()
        try:
            async with aclosing(check()) as events:
                async for event in events:
                    is_proven = True
                    yield event
        except SpecdeckError as error:
            if not is_proven and isinstance(error, UsageError):
                raise
            yield NotDone(error)
        is_proven = True
        await sleep(max(0.0, every_s - (clock() - began)))


async def open_breaker(
    request: Callable[[Change], Awaitable[AppliedChange]],
    *,
    url: str,
    who: str,
    reason: str,
    retry: Retry,
) -> Trip:
    """Opens the breaker of the engine at `url` after a verdict of fail, until somebody resets it.

    `request` makes the change; `reason` is the verdict's. An engine that refuses is the
    trip's error: the verdict is a fail either way.
    """
    change = Change(breaker="open", cause="divergence", reason=f"specdeck check: {reason}", who=who)
    # Not what was before: an open breaker is reset all the same.
    reset = format_undo(url, {"breaker": "closed"})
    try:
        try:
            applied = await retry.answer(lambda: request(change))
        except UsageError:  # an older plugin knows no cause: open by hand is open as well
            bare = replace(change, cause=None)
            applied = await retry.answer(lambda: request(bare))
    except SpecdeckError as error:
        return Trip(None, reset if isinstance(error, NoReply | Stalled) else None, error)
    return Trip(applied.applied.get("breaker"), reset)


def begin_run(pair: ArmPair, prompts: PromptSet, store: Checks) -> CheckRunner:
    """A run over `prompts`: the one that was cut short, or a new one."""
    run = find_or_begin_run(
        store,
        pair.arms,
        prompts,
        pair.options.settings,
        private=pair.options.private,
        fresh=pair.options.fresh,
        t=pair.wall(),
    )
    return CheckRunner(
        *pair.askers,
        prompts,
        store=store,
        run=run,
        streams=pair.streams,
        private=pair.options.private,
        pace=pair.pacer(),
    )


def _next_night(pair: ArmPair, runner: CheckRunner, store: Checks, *, tried: bool) -> Canary:
    """The canary after a run that was iterated to its end, from those before it like it.

    A night in which speculation was not `tried` says nothing of it, and does not count.
    """
    runs = [runner.run, *store.history(pair.arms[0].url, like=runner.run)]
    like = () if pair.options.new_baseline else comparable_runs(runs)
    if not tried:
        return _latest_canary(like)
    differing: Counter[str] = Counter()
    for compared in ("cross", "streamed"):
        for case in read_cases(store, runner.run.id, compared):
            differing[case.prompt_hash] += not case.divergence.stream_only
    return _latest_canary(like).next_night(+differing)


def _latest_canary(runs: Iterable[Run]) -> Canary:
    """Of the latest run; a damaged one is passed over, as what was just compared counts more."""
    for run in runs:
        if run.summary:
            with suppress(WrongType):
                return Canary.from_json(run.summary.get("canary"))
    return Canary()


def judge_run(pair: ArmPair, runner: CheckRunner, store: Checks) -> tuple[Outcome, Canary]:
    """The outcome of a run that was iterated to its end, as one night of many too.

    Raises Unsupported when every prompt was refused.
    """
    run, totals = runner.run.id, runner.totals
    if totals.refused and not totals.prompts:
        number, why = store.refusals(run)[0]
        with suppress(SpecdeckError):  # the reason counts more
            store.forget(run)  # it would be found again, and nothing asked
        raise Unsupported(
            f"every prompt was refused by an arm: prompt {number}: {why}",
            remedy="give other prompts, or see to the engine's arguments",
        )
    outcome = build_outcome(
        totals,
        pair.arms,
        cases=lambda compared: read_cases(store, run, compared),
        refused=store.refusals(run),
        threshold=pair.options.threshold,
        calls=pair.options.calls,
        copies=len(runner.prompts.copies),
    )
    canary = _next_night(pair, runner, store, tried=not outcome.verdict.untried)
    return outcome, canary
