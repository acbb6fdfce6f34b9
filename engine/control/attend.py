"""A judged trial, attended: its lease is renewed for as long as somebody watches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from specdeck.engine.control.observe import Outcome
from specdeck.engine.control.protocol import Change
from specdeck.engine.control.tuning import TrialTuning, Tuning
from specdeck.engine.errors import Conflict, EngineError, SpecdeckError
from specdeck.engine.metrics.page import parse
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import between

if TYPE_CHECKING:
    from specdeck.engine.control.client import EngineClient

LEASE_S = 10.0
"""A trial whose watcher is gone is taken back after so long."""
POLL_S = 0.5
_RENEW_S = 3.0

Told = Callable[[TrialTuning], None]


async def attend(
    client: EngineClient,
    change: Change,
    told: Told = lambda _: None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Outcome:
    """Begins the judged `change`, keeps it alive until it ends, and says what became of it.

    `told` hears of the trial twice a second. Cancelled, it takes the change back first.
    Raises SpecdeckError when the engine refuses, goes away or is started anew.
    """
    asked_at = clock()
    applied = await client.put(change)
    ack_ms = (clock() - asked_at) * 1e3
    watch = _Watch(client, asked_at, clock)
    try:
        trial = await watch.until_over(told, change.lease_s or LEASE_S, sleep)
    except asyncio.CancelledError:
        await asyncio.shield(_take_back(client, change.who))
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
    client: EngineClient, change: Change, *, clock: Callable[[], float] = time.monotonic
) -> Outcome:
    """Begins the judged `change` and leaves it to the engine."""
    asked_at = clock()
    applied = await client.put(change)
    ack_ms = (clock() - asked_at) * 1e3
    trial = (await client.tuning()).trial
    return Outcome(
        client.url, change.asked(), applied.applied, applied.before, ack_ms, None, None,
        applied.notices, None if trial is None else asdict(trial),
    )  # fmt: skip


async def _take_back(client: EngineClient, who: str | None) -> None:
    with suppress(SpecdeckError):  # its lease does the same a little later
        await client.put(Change(cancel=True, who=who, reason="interrupted"))


class _Watch:
    """Looks at one trial, and at what k the counters show once it is applied."""

    def __init__(self, client: EngineClient, asked_at: float, clock: Callable[[], float]) -> None:
        self._client = client
        self._asked_at = asked_at
        self._clock = clock
        self._first: Sample | None = None
        self.observed: float | None = None
        """Draft tokens per draft while the change was on trial; 0 when none was made."""
        self.observed_after_ms: float | None = None

    async def until_over(
        self, told: Told, lease_s: float, sleep: Callable[[float], Awaitable[None]]
    ) -> TrialTuning:
        first = await self._client.tuning()
        renewed = heard = self._clock()
        found: Tuning = first
        while True:
            trial = self._same(first, found)
            told(trial)
            if trial.over:
                return trial
            if trial.state == "changed":
                await self._observe()
            await sleep(POLL_S)
            try:
                if self._clock() - renewed >= min(_RENEW_S, lease_s / 3):
                    with suppress(Conflict):  # it ended in between
                        await self._client.put(Change(renew=True, lease_s=lease_s))
                    renewed = self._clock()
                found = await self._client.tuning()
                heard = self._clock()
            except SpecdeckError:
                if self._clock() - heard >= lease_s:
                    raise

    def _same(self, first: Tuning, found: Tuning) -> TrialTuning:
        begun, trial = first.trial, found.trial
        if found.instance != first.instance or begun is None or trial is None:
            raise EngineError(
                "the engine was started anew in mid-trial: the trial ended with it",
                remedy="it serves as its config says; set k again if that is not it",
            )
        if trial.number != begun.number:
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
