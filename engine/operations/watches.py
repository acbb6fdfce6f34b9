"""What is told beside an engine's readings: drift from its pin, and alerts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from specdeck.engine.client.webhook import Webhook
from specdeck.engine.divergence.history import (
    read_counts,
    read_excess,
    read_streamed,
    read_verdict,
)
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.operations.alerts import (
    AcceptanceAlarm,
    Alert,
    CheckOutcome,
    Limits,
    LimitUnwatched,
    MismatchAlarm,
)
from specdeck.engine.operations.drift import Drift, DriftEvent, DriftWatcher, NotComparable
from specdeck.engine.operations.fingerprint import Fingerprints
from specdeck.engine.store.checks import Checks, Run
from specdeck.engine.store.database import Store

CHECKS_APART_S = 10.0
"""Between two looks for a check that has finished."""

UNREAD_S = 60.0
"""For how long the checks cannot be read before it is said: another process may hold the store."""

MOST_WAITING = 16
"""Turns of drifts and alerts that wait for the webhook; what comes beyond them is not posted."""

FinishedChecks = Callable[[], Sequence[Run]]
"""The checks of the engine that have finished, of those that began last; blocks."""


@dataclass(frozen=True, slots=True)
class NotPosted:
    """The webhook could not be told."""

    line: str
    """Why, for one line."""


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A check that has finished could not be held against the limit."""

    line: str
    """Why, for one line."""


NO_LIMITS = Limits()

Posted = Drift | NotComparable | Alert | LimitUnwatched
"""What a webhook gets."""
WatchEvent = DriftEvent | Alert | LimitUnwatched | NotJudged | NotPosted


class EngineWatch:
    """One engine's drift and alerts.

    It is to `take` every reading; where it says so, there are `events` to be told.
    """

    def __init__(
        self,
        url: str,
        drift: DriftWatcher,
        limits: Limits = NO_LIMITS,
        *,
        webhook: Webhook | None = None,
        finished_checks: FinishedChecks = tuple,
    ) -> None:
        self.drift = drift
        self._url = url
        self._webhook = webhook
        self._acceptance = (
            None if limits.acceptance_floor is None else AcceptanceAlarm(limits.acceptance_floor)
        )
        self._mismatch = None if limits.mismatch_max is None else MismatchAlarm(limits.mismatch_max)
        self._finished_checks = finished_checks
        self._known_checks: frozenset[int] | None = None
        """Those that had finished at the last look, by their numbers; None before the first one."""
        self._checks_looked_at = float("-inf")
        self._unread_since: float | None = None
        """Unix time since which the checks cannot be read; None while they can."""
        self._is_unread_told = False
        self._alerts: list[Alert | LimitUnwatched] = []
        self._posting = asyncio.Lock()
        self._waiting = 0
        """Turns that are posted or wait for it."""
        self._left_out = 0
        """Drifts and alerts that were not posted since the webhook fell behind."""

    def take(self, reading: Reading) -> bool:
        """Takes a reading in; whether `events` has anything to do after it."""
        alert = None if self._acceptance is None else self._acceptance.take(reading)
        if alert is not None:
            self._alerts.append(alert)
        return bool(self._alerts) or self._is_check_due(reading.t) or self.drift.is_due(reading)

    async def post(self, events: Iterable[WatchEvent]) -> AsyncIterator[NotPosted]:
        """Posts what is worth it, after what came first; yields what did not arrive.

        A webhook that answers more slowly than an engine flaps would have ever more to wait for
        it: beyond MOST_WAITING they are left out, which is told when it begins, and how many
        they were when it is over.
        """
        worth = [event for event in events if isinstance(event, Posted)]
        if self._webhook is None or not worth:
            return
        if self._waiting >= MOST_WAITING:
            begins = not self._left_out
            self._left_out += len(worth)
            if begins:
                yield NotPosted("the webhook is behind: what comes now is not posted")
            return
        self._waiting += 1
        try:
            async with self._posting:
                async for failure in post_events(self._webhook, worth):
                    yield failure
        finally:
            self._waiting -= 1
        if not self._waiting and (left := self.take_left_out()) is not None:
            yield left

    def take_left_out(self) -> NotPosted | None:
        """How many drifts and alerts were not posted since this was last asked; None for none."""
        count, self._left_out = self._left_out, 0
        return NotPosted(f"not posted, as the webhook was behind: {count}") if count else None

    async def events(self, reading: Reading) -> AsyncIterator[WatchEvent]:
        """What there is to tell after a reading, the webhook last."""
        told: list[WatchEvent] = []
        alerts, self._alerts = self._alerts, []
        for alert in alerts:
            told.append(alert)
            yield alert
        async for judged in self._look_at_checks(reading.t):
            told.append(judged)
            yield judged
        async for event in self.drift.follow(reading):
            told.append(event)
            yield event
        async for failure in self.post(told):
            yield failure

    def _is_check_due(self, t: float) -> bool:
        return self._mismatch is not None and abs(t - self._checks_looked_at) >= CHECKS_APART_S

    async def _look_at_checks(self, t: float) -> AsyncIterator[Alert | NotJudged]:
        """The alerts of the checks that finished since the last look, or why there can be none.

        A check that began earlier than another may finish after it.
        """
        if self._mismatch is None or not self._is_check_due(t):
            return
        self._checks_looked_at = t
        try:
            runs = await asyncio.to_thread(self._finished_checks)
        except SpecdeckError as error:  # of what it has nothing is known
            if self._unread_since is None or t < self._unread_since:
                self._unread_since = t
            if not self._is_unread_told and t - self._unread_since >= UNREAD_S:
                self._is_unread_told = True
                yield NotJudged(f"no check is held against mismatch_max: {error.line()}")
            return
        self._unread_since, self._is_unread_told = None, False
        known, self._known_checks = self._known_checks, frozenset(run.id for run in runs)
        if known is None:
            return
        for run in sorted((run for run in runs if run.id not in known), key=_finish_time):
            try:  # the statistics take a second to be imported
                alert = await asyncio.to_thread(self._judge, self._mismatch, run)
            except SpecdeckError as error:
                yield NotJudged(f"a check is not held against mismatch_max: {error.line()}")
            else:
                if alert is not None:
                    yield alert

    def _judge(self, alarm: MismatchAlarm, run: Run) -> Alert | None:
        outcome = read_outcome(run)
        return None if outcome is None else alarm.take(outcome, self._url)


async def post_events(
    webhook: Webhook | None, events: Iterable[WatchEvent]
) -> AsyncIterator[NotPosted]:
    """Post the drifts and alerts among `events`; yields those that did not arrive."""
    if webhook is None:
        return
    for event in events:
        if isinstance(event, Posted):
            reason = await webhook.post(event.as_json())
            if reason is not None:
                yield NotPosted(reason)


def list_finished(store: Path, url: str) -> tuple[Run, ...]:
    """The checks of the engine at `url` that have finished, of the latest that the store can read.

    Raises SpecdeckError where the store cannot be read.
    """
    with Store(store) as opened:
        return Checks(opened).history(url)


def _finish_time(run: Run) -> float:
    return float("-inf") if run.finished is None else run.finished


def read_outcome(run: Run) -> CheckOutcome | None:
    """What a check found; None of one that has not finished. Raises UsageError of damaged facts."""
    if run.finished is None or run.summary is None:
        return None
    return CheckOutcome(
        run.finished, *read_counts(run), read_verdict(run), read_excess(run), *read_streamed(run)
    )


class Watches:
    """The fingerprints, limits and webhook of a session: opens the watch of each engine."""

    def __init__(
        self,
        fingerprints: Fingerprints,
        limits: Limits = NO_LIMITS,
        *,
        webhook: Webhook | None = None,
        names_unpinned: bool = True,
    ) -> None:
        """`names_unpinned`: whether facts are fetched while there is not a pin to compare with."""
        self.fingerprints = fingerprints
        self._limits = limits
        self._webhook = webhook
        self._names_unpinned = names_unpinned

    def open(self, url: str) -> EngineWatch:
        """The watch of the engine at `url`, on its own pin and on the checks that were stored."""
        drift = DriftWatcher(
            lambda pinned: self.fingerprints.fetch(url, ask_own=False),
            self.fingerprints.pin_file(url),
            names_unpinned=self._names_unpinned,
        )
        return EngineWatch(
            url,
            drift,
            self._limits,
            webhook=self._webhook,
            finished_checks=partial(list_finished, self.fingerprints.store, url),
        )
