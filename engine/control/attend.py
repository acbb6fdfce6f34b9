"""A judged trial, attended: its lease is renewed for as long as somebody watches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from specdeck.engine.control.observe import Outcome, undo
from specdeck.engine.control.protocol import Applied, Change
from specdeck.engine.control.tuning import TrialTuning, Tuning
from specdeck.engine.errors import Conflict, EngineError, SpecdeckError
from specdeck.engine.metrics.page import parse
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import between

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient

LEASE_S = 10.0
"""A trial whose watcher is gone is taken back after so long."""
POLL_S = 0.5
_RENEW_S = 3.0

Answered = Callable[[Applied], None]
Told = Callable[[TrialTuning], None]


async def attend(
    client: EngineClient,
    change: Change,
    told: Told = lambda _: None,
    *,
    answered: Answered = lambda _: None,
    stopped: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Outcome:
    """Begins the judged `change`, keeps it alive until it ends, and says what became of it.

    `answered` hears the engine's word at once, `told` of the trial twice a second.
    Cancelled, it takes the change back first; `stopped` hears in words what became of that.
    Raises SpecdeckError when the engine refuses, goes away or is started anew.
    """
    asked_at = clock()
    applied = await client.put(change)
    answered(applied)
    ack_ms = (clock() - asked_at) * 1e3
    watch = _Watch(client, applied.trial, asked_at, clock)
    try:
        trial = await watch.until_over(told, change.lease_s or LEASE_S, sleep)
    except asyncio.CancelledError:
        stopped(await asyncio.shield(watch.take_back(change.who, change.lease_s or LEASE_S)))
        raise
    kept = trial.state == "kept"
    return Outcome(
        url=client.url,
        requested=change.asked(),
        applied=dict(trial.after if kept else trial.before),
        before=applied.before,
        ack_ms=ack_ms,
        observed_k=watch.observed,
        observed_after_ms=watch.observed_after_ms,
        notices=applied.notices,
        trial=asdict(trial),
    )


async def begun(
    client: EngineClient,
    change: Change,
    *,
    answered: Answered = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Begins the judged `change` and leaves it to the engine; `answered` hears its word at once."""
    asked_at = clock()
    applied = await client.put(change)
    answered(applied)
    ack_ms = (clock() - asked_at) * 1e3
    trial, notices = None, applied.notices
    try:
        trial = (await client.tuning()).trial
        if trial is not None and applied.trial not in (None, trial.number):
            trial = None  # another one by now
    except SpecdeckError as error:
        notices += (f"the trial is begun, and not seen yet: {error.line()}",)
    return Outcome(
        client.url, change.asked(), applied.applied, applied.before, ack_ms, None, None,
        notices, None if trial is None else asdict(trial),
    )  # fmt: skip


class _Watch:
    """Looks at one trial, and at what k the counters show once it is applied."""

    def __init__(
        self,
        client: EngineClient,
        number: int | None,
        asked_at: float,
        clock: Callable[[], float],
    ) -> None:
        """`number` is the trial's as the engine named it; an older plugin names none."""
        self._client = client
        self._named = number
        self._begun: Tuning | None = None
        self._asked_at = asked_at
        self._clock = clock
        self._first: Sample | None = None
        self.observed: float | None = None
        """Draft tokens per draft while the change was on trial; 0 when none was made."""
        self.observed_after_ms: float | None = None

    async def until_over(
        self, told: Told, lease_s: float, sleep: Callable[[float], Awaitable[None]]
    ) -> TrialTuning:
        found = await self._client.tuning()
        renewed = heard = self._clock()
        while True:
            trial = self._same(found)
            told(trial)
            if trial.over:
                return trial
            if trial.state == "changed":
                await self._observe()
            await sleep(POLL_S)
            try:
                if self._clock() - renewed >= min(_RENEW_S, lease_s / 3):
                    with suppress(Conflict):  # it ended in between
                        await self._client.put(
                            Change(renew=True, lease_s=lease_s, trial=self._named)
                        )
                    renewed = self._clock()
                found = await self._client.tuning()
                heard = self._clock()
            except SpecdeckError:
                if self._clock() - heard >= lease_s:
                    raise

    async def take_back(self, who: str | None, lease_s: float) -> str:
        """Has the engine take the trial back, unless it is over; what became of it, in words."""
        later = f"the engine takes the change back within {lease_s:g} s"
        if self._named is None and self._begun is None:
            return later  # whose trial is under way cannot be told
        try:
            found = await self._client.tuning()
        except SpecdeckError:
            return later
        try:
            trial = self._same(found)
        except EngineError as error:
            return str(error)
        if trial.over:
            kept = f"; undo: {undo(self._client.url, trial.before)}"
            return f"the trial had ended: {trial.state}{kept if trial.state == 'kept' else ''}"
        version = found.version if self._named is None else None
        cancel = Change(
            cancel=True, trial=self._named, expect_version=version, who=who, reason="interrupted"
        )
        try:
            await self._client.put(cancel)
        except SpecdeckError:
            return later
        return "the change is taken back"

    def _same(self, found: Tuning) -> TrialTuning:
        """The trial that was begun; raises EngineError where another one is in its place."""
        first = self._begun = self._begun or found
        begun, trial = first.trial, found.trial
        if found.instance != first.instance or begun is None or trial is None:
            raise EngineError(
                "the engine was started anew in mid-trial: the trial ended with it",
                remedy="it serves as its config says; set k again if that is not it",
            )
        if trial.number != (self._named or begun.number):
            raise EngineError("another trial took its place", remedy="see the engine's changes")
        return trial

    async def _observe(self) -> None:
        with suppress(SpecdeckError):
            sample = parse(await self._client.page(), t=0.0, at=self._clock())
            window = between(self._first, sample) if self._first else None
            if window is None or not window.generated:
                self._first = self._first or sample
                return
            found = window.draft_tokens_per_draft
            self.observed = 0.0 if found is None and not window.drafts else found
            if self.observed is not None and self.observed_after_ms is None:
                self.observed_after_ms = (self._clock() - self._asked_at) * 1e3
