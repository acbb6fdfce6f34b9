"""A judged trial, for whoever asks: begun, attended until its verdict, or taken back.

    ChangeApplied ─▶ [NotRecorded] ─▶ TrialSeen … ─▶ TrialEnded

The engine measures and judges. Whoever attends renews the trial's lease, so that the engine
takes the change back soon after nobody does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from specdeck.engine.client.retry import Retry, WaitingForEngine
from specdeck.engine.errors import Conflict, EngineError, NotAnEngine, SpecdeckError
from specdeck.engine.metrics.draft_length import exceeds
from specdeck.engine.metrics.page import read_page
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import Window, between
from specdeck.engine.operations.assignments import format_undo
from specdeck.engine.operations.change import (
    FORGOTTEN,
    LOST,
    ChangeApplied,
    ChangeClient,
    WaitsFor,
    describe_wait,
    find_hold,
    find_other_knob,
    limit_drafts,
    read_knobs,
)
from specdeck.engine.operations.record import Audit, ChangeRecord, NotRecorded, is_refusal
from specdeck.engine.protocol.messages import (
    KNOBS,
    STEPS_IN_FLIGHT,
    AppliedChange,
    Change,
    EngineState,
    knobs_on_trial,
    with_implied_policy,
)
from specdeck.engine.protocol.tuning import TrialTuning, Tuning

LEASE_S = 10.0
"""A trial that nobody attends any more is taken back after so long."""
LONGEST_LEASE_S = 86_400.0
POLL_S = 0.5
"""Between two looks of a command; a console may take its time."""
_RENEW_S = 3.0
_NOBODY = "unknown"
"""Whose a trial is that was asked for without a name, in the engine's words."""
_DRAFTING = {"k", "policy", "mode"}
"""The knobs of which nothing comes while the engine drafts nothing."""
_PAUSE_S = 0.5
"""Between two questions to an engine that does not answer."""


class TrialClient(ChangeClient, Protocol):
    """What is asked of the engine on trial; a control client is one."""

    async def tuning(self) -> Tuning:
        """The policy, the breaker and the trial."""

    async def state(self) -> EngineState:
        """The state as the plugin tells it."""

    async def page(self) -> str:
        """The metrics page."""


@dataclass(frozen=True, slots=True)
class TrialSeen:
    """The trial is under way."""

    trial: TrialTuning
    tuning: Tuning
    """All that the engine said with it."""


@dataclass(frozen=True, slots=True)
class TrialUnseen:
    """The trial is begun and left to the engine, and it cannot be said how it stands."""

    error: SpecdeckError | None
    """None where the engine tells of another trial."""


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """The engine has kept the change, taken it back, or never made it."""

    trial: TrialTuning
    tuning: Tuning
    observed_k: float | None
    """Draft tokens per draft while the change was on trial; 0 when none was made."""
    observed_after_ms: float | None
    """From the request to the counters that show it, milliseconds."""
    state: str | None = None
    """A knob as the engine's state has it in place of what the trial has left; None where that is
    in force, or cannot be told."""
    counted_k: float | None = None
    """Draft tokens per draft within the stints with a change that was kept, where that is more
    than it allows."""
    found: EngineState | None = None
    """The engine's state in the end, whoever has changed it since; None where it is not known."""
    error: SpecdeckError | None = None
    """Why it is not known."""
    restarted: bool = False
    """Whether that state is of another start, which knows nothing of the trial."""

    @property
    def is_forgotten(self) -> bool:
        """Whether a change that was kept is gone with the engine's former life."""
        return self.restarted and self.trial.state == "kept"

    @property
    def is_contradicted(self) -> bool:
        """Whether the engine shows itself that the end it tells of is none."""
        is_otherwise = self.state is not None or self.counted_k is not None
        return is_otherwise or self.is_unmeasured or self.is_forgotten

    @property
    def is_unmeasured(self) -> bool:
        """Whether the engine has kept what it never measured; an older plugin tells no pairs."""
        trial = self.trial
        return (
            trial.state == "kept" and trial.pairs_planned > 0 and not (trial.turns and trial.pairs)
        )

    @property
    def left(self) -> Mapping[str, Any]:
        """The knobs of the trial as it has left them, by its own word."""
        return self.trial.after if self.trial.state == "kept" else self.trial.before

    @property
    def in_force(self) -> Mapping[str, Any]:
        """The same as the engine's state has them; parameters, which it does not tell, as left."""
        left = self.left
        return left if self.found is None else {**left, **read_knobs(self.found, left)}

    @property
    def waits_for(self) -> WaitsFor | None:
        """What the k or the policy of the trial is stored for; None where it is in force."""
        knobs, state = self.in_force, self.found
        if state is None or knobs.get("mode") == "target-only" or not _DRAFTING & knobs.keys():
            return None
        return find_hold(state.mode, state.breaker)

    def line(self) -> str:
        """Of a contradicted one, for a person."""
        if self.is_forgotten:
            return f"NOT in force: {FORGOTTEN}"
        if self.state is None and self.counted_k is not None:
            shown = f"its counters show k {self.counted_k:.1f}"
            return f"NOT made: the engine says that it kept the change, and {shown}"
        if self.state is None:
            return "NOT judged: the engine says that it kept the change, and has measured no pair"
        left = "made: the engine says that it kept the change"
        if self.trial.state != "kept":
            left = "reverted: the engine says that the change is not in force"
        return f"NOT {left}, and its state has {self.state}"


TrialEvent = ChangeApplied | NotRecorded | TrialSeen | TrialUnseen | TrialEnded


@dataclass(frozen=True, slots=True)
class TrialStopped:
    """What became of a trial that somebody attended and wants no more.

    taken_back: the engine took the change back; leased: it could not be told, and does so by
    itself within `lease_s`; ended: there was nothing to take back, `trial` is over; lost:
    `error` says who has the engine.
    """

    end: Literal["taken_back", "leased", "ended", "lost"]
    lease_s: float
    trial: TrialTuning | None = None
    undo: str | None = None
    """The command that takes a kept change back."""
    error: EngineError | None = None
    state: str | None = None
    """Of what was taken back: a knob as the engine's state has it still; None where it is back."""
    unread: SpecdeckError | None = None
    """Why the state could not be looked at."""

    def line(self) -> str:
        """For a person.

        >>> TrialStopped("leased", 10.0).line()
        'the engine reverts the change within 10 s'
        >>> TrialStopped("taken_back", 10.0, state="k=3").line()
        'NOT reverted: the engine says that it reverted the change, and its state has k=3'
        """
        if self.error is not None:
            return str(self.error)
        if self.trial is not None:
            undo = f"; undo: {self.undo}" if self.undo else ""
            return f"the trial had ended: {self.trial.state}{undo}"
        if self.state is not None:
            reverted = "the engine says that it reverted the change"
            return f"NOT reverted: {reverted}, and its state has {self.state}"
        if self.unread is not None:
            reverted = "the engine says that it reverted the change"
            return f"{reverted}; its state cannot be read: {self.unread}"
        if self.end == "taken_back":
            return "the change is reverted"
        return f"the engine reverts the change within {self.lease_s:g} s"


def as_trial(change: Change, *, trial_s: float, attended: bool = True) -> Change:
    """`change` as one that the engine judges after `trial_s` seconds of work.

    >>> as_trial(Change(k=3), trial_s=60.0).lease_s
    10.0
    >>> as_trial(Change(k=3), trial_s=60.0, attended=False).lease_s
    360.0
    """
    # A trial gives up by itself when there is too little to measure, long before this.
    unattended = min(LONGEST_LEASE_S, 4 * trial_s + 120)
    return replace(change, judge=True, trial_s=trial_s, lease_s=LEASE_S if attended else unattended)


@dataclass(frozen=True, slots=True)
class _StintCount:
    """What an engine's counters had of one stint with the change."""

    drafts: float
    drafted: float
    strays: float
    """Drafts at the most that were made before it, and verified in it."""


class TrialRunner:
    """One trial of one engine, from its beginning to its end."""

    def __init__(
        self,
        client: TrialClient,
        change: Change,
        *,
        name: str,
        audit: Audit,
        instance: str | None = None,
        every: float = POLL_S,
        read_sample: Callable[[], Awaitable[Sample | None]] | None = None,
        on_notice: Callable[[WaitingForEngine], None] = lambda waiting: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`change` is one of `as_trial`, `name` what people call the engine.

        `instance` is the start of the engine, where it is known. `read_sample` gives counters
        that are at hand anyway, by the same `clock`; without it the engine is asked for its
        page. `on_notice` hears of an engine that does not answer for a while.
        """
        self._client = client
        self._change = change
        self._record = ChangeRecord(audit, change, client.url, name, wall)
        self._instance = instance
        self._every = every
        self._read_sample = read_sample or self._read_page
        self._clock, self._sleep = clock, sleep
        self._lease_s = change.lease_s or LEASE_S
        self._retry = Retry(
            self._lease_s, on_notice=on_notice, longest_pause_s=_PAUSE_S, clock=clock, sleep=sleep
        )
        self._applied: AppliedChange | None = None
        self._first: Tuning | None = None
        """The first that was seen: an older plugin does not name the trial that it begins."""
        self._renewed_at = self._requested_at = clock()
        self._turns = -1
        """Of the stint that is observed."""
        self._stint_since = clock()
        self._opening: Sample | None = None
        self._latest: Sample | None = None
        """Read in the stint, unless it turns out to have ended by then."""
        self._counted: dict[int, _StintCount] = {}
        """What was seen of each stint with the change, by its turn."""
        self._observed: float | None = None
        self._observed_after_ms: float | None = None

    async def attend(self) -> AsyncGenerator[TrialEvent, None]:
        """Begins the trial and renews its lease until it ends.

        A trial whose reply was lost is looked for in what the engine tells of itself.
        Raises SpecdeckError when the engine refuses the change, is restarted, has another trial
        by now, or gave no answer for as long as the lease lasts. Whoever stops in between is to
        ask for `take_back`, or leaves the trial to its lease.
        """
        async for event in self._begin():
            yield event
        tuning = await self._retry.answer(self._client.tuning, errors=SpecdeckError)
        # The lease runs from the request on, however long the engine took to answer.
        self._renewed_at = self._requested_at
        while True:
            answered_at, trial = self._clock(), self._own(tuning)
            if trial.over:
                break
            yield TrialSeen(trial, tuning)
            await self._observe(trial)
            await self._sleep(self._every)
            tuning = await self._retry.answer(
                self._renew, errors=SpecdeckError, until=answered_at + self._lease_s
            )
        end = await self._look_at_end(trial, tuning)
        failure = self._note_end(trial, end)
        if failure is not None:
            yield failure
        yield end

    async def detach(self) -> AsyncGenerator[TrialEvent, None]:
        """Begins the trial, looks at it once and leaves it to the engine.

        Raises SpecdeckError when the engine refuses the change; once it is begun, nothing raises.
        """
        async for event in self._begin():
            yield event
        try:
            tuning = await self._client.tuning()
        except SpecdeckError as error:
            yield TrialUnseen(error)
            return
        trial, named = tuning.trial, self._number
        is_ours = trial is not None and self._is_ours(trial, named or trial.number)
        if trial is None or not (is_ours and self._is_tried(trial)):
            yield TrialUnseen(None)
        else:
            yield TrialSeen(trial, tuning)

    async def take_back(self, reason: str = "interrupted") -> TrialStopped:
        """Has the engine take the change back at once, unless the trial is over.

        What it says that it took back is held against its state.
        """
        leased = TrialStopped("leased", self._lease_s)
        if self._number is None and self._first is None:
            return leased  # whose trial is under way cannot be told
        try:
            tuning = await self._client.tuning()
        except SpecdeckError:
            return leased
        try:
            trial = self._own(tuning)
        except EngineError as error:
            return TrialStopped("lost", self._lease_s, error=error)
        if trial.over:
            kept = format_undo(self._client.url, trial.before) if trial.state == "kept" else None
            self._note_end(trial)
            return TrialStopped("ended", self._lease_s, trial, kept)
        cancel = Change(
            cancel=True,
            trial=self._number,
            expect_version=tuning.version if self._number is None else None,
            who=self._change.who,
            reason=reason,
            origin="undo",
        )
        try:
            cancelled = await self._client.put(cancel)
        except SpecdeckError:
            return leased
        other, unread = None, None
        try:
            other = self._find_left(trial, cancelled, await self._client.state())
        except SpecdeckError as error:
            unread = error
        reverted = replace(trial, state="reverted", reason=reason)
        self._note_end(
            reverted, TrialEnded(reverted, tuning, self._observed, self._observed_after_ms, other)
        )
        return TrialStopped("taken_back", self._lease_s, state=other, unread=unread)

    def _find_left(
        self, trial: TrialTuning, cancelled: AppliedChange, state: EngineState
    ) -> str | None:
        """A knob that `state` has otherwise than before the trial; None also where the engine has
        been restarted or changed since `cancelled`.
        """
        is_since = state.instance != self._start or state.version > cancelled.version
        return None if is_since else find_other_knob(state, trial.before)

    @property
    def _number(self) -> int | None:
        return None if self._applied is None else self._applied.trial

    async def _begin(self) -> AsyncGenerator[TrialEvent, None]:
        self._record.ask({}, instance=self._start)
        change, self._requested_at = self._change, self._clock()
        try:
            applied = await self._ask()
        except SpecdeckError as error:
            self._record.fail(error)
            raise
        self._applied = applied
        ack_ms = (self._clock() - self._requested_at) * 1e3
        failure = self._record.add(
            applied,
            instance=self._start,
            after=knobs_on_trial(change, applied),
            reason=f"on trial: {change.reason}" if change.reason else "on trial",
        )
        yield ChangeApplied(change, applied, ack_ms, self._record.undo(applied))
        if failure is not None:
            yield failure

    async def _ask(self) -> AppliedChange:
        """The engine's word on the change, also where its reply was lost."""
        try:
            return await self._client.put(self._change)
        except SpecdeckError as error:
            if is_refusal(error):
                raise
            found = await self._find_begun()
            if found is None:
                raise
            return found

    async def _find_begun(self) -> AppliedChange | None:
        """The engine's word on a trial whose reply was lost; None where ours is not under way."""
        with suppress(SpecdeckError):
            tuning = await self._retry.answer(self._client.tuning, errors=SpecdeckError)
            state = await self._client.state()
            trial = tuning.trial
            if trial is None or trial.over or not self._is_ours(trial, trial.number):
                return None
            if state.instance == tuning.instance and self._is_tried(trial):
                before, number = dict(trial.before), trial.number
                return AppliedChange(before, {}, tuning.version, state.step, (LOST,), number)
        return None

    async def _look_at_end(self, trial: TrialTuning, tuning: Tuning) -> TrialEnded:
        """The end that the engine tells of, held against its state."""
        end = TrialEnded(trial, tuning, self._observed, self._observed_after_ms)
        try:
            state = await self._retry.answer(self._client.state)
        except SpecdeckError as error:
            return replace(end, counted_k=self._find_excess(trial, None), error=error)
        end = replace(end, found=state)
        if state.instance != tuning.instance:
            return replace(end, counted_k=self._find_excess(trial, None), restarted=True)
        if state.version > tuning.version:
            return replace(end, counted_k=self._find_excess(trial, None))
        if self._is_changed_since(trial, state):
            return end
        other = find_other_knob(state, end.left)
        counted = self._find_excess(trial, state) if other is None else None
        return replace(end, state=other, counted_k=counted)

    def _is_changed_since(self, trial: TrialTuning, state: EngineState) -> bool:
        """Whether somebody else has changed the engine since the trial began, which stands."""
        last = state.last_change
        return last is not None and last.t >= trial.t and last.origin != "trial"

    def _find_excess(self, trial: TrialTuning, state: EngineState | None) -> float | None:
        """What the counters had within the stints with a change that was kept, where that is more
        than the trial's knobs allow, with what else `state` has; None of it is not known.
        """
        stints = self._counted.values()
        drafts = sum(one.drafts for one in stints)
        if trial.state != "kept" or drafts <= sum(one.strays for one in stints):
            return None
        besides = {} if state is None else read_knobs(state, KNOBS)
        most = limit_drafts({**besides, **with_implied_policy(trial.after)})
        counted = sum(one.drafted for one in stints) / drafts
        return counted if exceeds(counted, most) else None

    def _note_end(self, trial: TrialTuning, end: TrialEnded | None = None) -> NotRecorded | None:
        """Writes down how the trial has ended, beside how it began; `end` is what was looked at."""
        if self._applied is None:
            return None
        kept, failure = trial.state == "kept", None
        if self._observed is not None:
            failure = self._record.add_observed(self._observed)
        return failure or self._record.add(
            self._applied,
            instance=self._start,
            after=trial.after if kept else trial.before,
            reason="; ".join((f"trial {trial.state}: {trial.reason}", *_list_doubts(end))),
            origin="trial",
            observed=self._observed if kept else None,
        )

    @property
    def _start(self) -> str | None:
        """Which start of the engine it is, where that is known."""
        return self._first.instance if self._first is not None else self._instance

    def _own(self, found: Tuning) -> TrialTuning:
        """The trial that was begun; raises EngineError where another one is in its place."""
        first = self._first = self._first or found
        begun, trial = first.trial, found.trial
        if found.instance != first.instance or begun is None or trial is None:
            raise EngineError(
                "the engine was restarted during the trial, which ended with it",
                remedy="it serves as its config says; set k again if that is not it",
            )
        if not self._is_ours(trial, self._number or begun.number):
            raise EngineError("another trial took its place", remedy="see the engine's changes")
        if not self._is_tried(trial):
            tried = " ".join(f"{name}={value}" for name, value in trial.after.items()) or "none"
            raise NotAnEngine(
                f"the engine was asked for a trial of another change, and tells of {tried}",
                remedy="look at its state: what it tries may be in force",
            )
        return trial

    def _is_ours(self, trial: TrialTuning, number: int) -> bool:
        """Whether it is the one that was begun, by its number and whose it is."""
        return trial.number == number and trial.who == (self._change.who or _NOBODY)

    def _is_tried(self, trial: TrialTuning) -> bool:
        """Whether `trial` is of what was asked for."""
        return self._change.knobs().items() <= trial.after.items()

    async def _renew(self) -> Tuning:
        """Renews the lease where a third of it has passed; the engine's word since."""
        if self._clock() - self._renewed_at >= min(_RENEW_S, self._lease_s / 3):
            with suppress(Conflict):  # it ended in between
                await self._client.put(
                    Change(renew=True, lease_s=self._lease_s, trial=self._number)
                )
            self._renewed_at = self._clock()
        return await self._client.tuning()

    async def _observe(self, trial: TrialTuning) -> None:
        """Looks at what k the counters show within a stint with the change.

        A sample counts when the stint was under way before it was read and still is afterwards.
        """
        if trial.state != "changed" or trial.turns != self._turns:
            self._turns = trial.turns if trial.state == "changed" else -1
            self._stint_since, self._opening, self._latest = self._clock(), None, None
        elif self._latest is not None:
            self._opening = self._opening or self._latest
            self._note_window(between(self._opening, self._latest), self._opening)
        if trial.state == "changed":
            with suppress(SpecdeckError):
                sample = await self._read_sample()
                if sample is not None and sample.at >= self._stint_since:
                    self._latest = sample

    def _note_window(self, window: Window | None, opening: Sample) -> None:
        """Notes what the stint under way has come to since `opening`."""
        if window is None or not window.generated:
            return
        if window.drafts is not None and window.drafted is not None:
            strays = STEPS_IN_FLIGHT * max(1.0, opening.running or 0.0)
            self._counted[self._turns] = _StintCount(window.drafts, window.drafted, strays)
        seen = window.observed_k
        self._observed = self._observed if seen is None else seen
        if self._observed is not None and self._observed_after_ms is None:
            self._observed_after_ms = (self._clock() - self._requested_at) * 1e3

    async def _read_page(self) -> Sample:
        return await read_page(await self._client.page(), t=0.0, at=self._clock())


def _list_doubts(end: TrialEnded | None) -> Iterator[str]:
    """What was found beside the engine's word of an end, in words."""
    if end is None:
        return
    if end.state is not None:
        yield f"the engine's state has {end.state}"
    if end.restarted:
        yield FORGOTTEN
    if end.counted_k is not None:
        yield f"the counters show k {end.counted_k:.1f}"
    if end.is_unmeasured:
        yield "no pair was measured"
    if end.waits_for is not None:
        yield describe_wait(end.waits_for)
