"""What the plugin answers to `GET tuning`, put together of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specdeck.engine.control.tuning import BreakerTuning, Ledger, Outlook, Saved, Tuning
from specdeck.engine.plugin.autopilot import Autopilot
from specdeck.engine.plugin.steering import Steering
from specdeck.engine.policy.batches import bucket
from specdeck.engine.policy.meter import Evidence

_HOUR_S = 3600.0
_DAY_S = 86400.0
_TIMED_STEPS = 8


def told(steering: Steering, *, by: str | None, instance: str, t: float) -> Tuning:
    """What is known of the policy and the breaker; trial and exact traffic are the caller's."""
    pilot, engine = steering.pilot, steering.engine
    common = Tuning(
        instance=instance,
        version=0,
        t=t,
        policy=steering.knobs.policy,
        reason=pilot.reason if pilot else None,
        k=by_schedule(engine.schedule()),
        parameters=steering.catalogue.listed(steering.configured),
        breaker=BreakerTuning("closed", automatic=False),
    )
    if pilot is None:
        return common
    drafts, (running, _) = engine.tally().drafted_per_position, engine.requests()
    return replace(
        common,
        breaker=breaker(pilot, by=by),
        ledger=ledger(pilot),
        curve=pilot.curve.points(),
        outlook=outlook(pilot, running, drafts),
        acceptance=acceptance(pilot, drafts),
        changes=tuple(pilot.changes),
    )


def by_schedule(schedule: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """k by number of requests of a list indexed by it, as vLLM's scheduler holds it.

    >>> by_schedule([5, 5, 5, 2])
    ((1, 2, 5), (3, 3, 2))
    """
    found: list[tuple[int, int, int]] = []
    for requests, k in list(enumerate(schedule))[1:]:
        if found and found[-1][2] == k:
            found[-1] = (found[-1][0], requests, k)
        else:
            found.append((requests, requests, k))
    return tuple(found)


def breaker(pilot: Autopilot, *, by: str | None) -> BreakerTuning:
    """The breaker of an engine; `by` opened or reset it by hand last."""
    view = pilot.breaker.view()
    evidence = view.evidence
    return BreakerTuning(
        state=view.state,
        automatic=pilot.pilot.automatic and pilot.pilot.breaker is not None,
        reason=view.reason,
        cause=view.cause,
        evidence=None if evidence is None else words(evidence),
        window_s=None if evidence is None else evidence.seconds,
        acceptance=None if evidence is None else evidence.acceptance,
        gain=None if evidence is None else evidence.gain,
        since_s=view.since_s,
        next_probe_s=view.next_probe_s,
        cooldown_s=view.cooldown_s,
        held=view.held,
        by=by,
        opened=view.opened,
        alarm=view.alarm,
    )


def words(evidence: Evidence) -> str:
    """What a window showed, as a line.

    >>> words(Evidence(1.0, 50, 50, 250, 10, speculating_s=1.0, target_only_s=0.82))
    '50 steps in 1.0 s: 4 % accepted of 250 drafted tokens, -18 % against target-only'
    """
    found = f"{evidence.steps} steps in {evidence.seconds:.1f} s: "
    if evidence.acceptance is None:
        return found + "nothing drafted"
    found += f"{evidence.acceptance * 100:.0f} % accepted of {evidence.drafted:,} drafted tokens"
    if evidence.gain is None:
        return f"{found}, target-only not measured"
    return f"{found}, {evidence.gain * 100:+.0f} % against target-only"


def ledger(pilot: Autopilot) -> Ledger:
    """Engine time saved in the last hour and day."""
    return Ledger(_saved(pilot, _HOUR_S), _saved(pilot, _DAY_S))


def _saved(pilot: Autopilot, seconds: float) -> Saved | None:
    balance = pilot.pilot.ledger.over(seconds, now=pilot.experience.now)
    if not balance.speculating_s:
        return None
    return Saved(balance.saved_s, balance.speculating_s)


def acceptance(pilot: Autopilot, drafts: Sequence[int]) -> tuple[float, ...] | None:
    """Shares accepted up to each position, of those that any draft had."""
    had = sum(1 for count in drafts if count)
    return tuple(pilot.experience.acceptance.survival[:had]) if had else None


def outlook(pilot: Autopilot, requests: int, drafts: Sequence[int]) -> tuple[Outlook, ...]:
    """What every k is expected to give to so many requests; empty before any step."""
    known, here = pilot.experience, bucket(requests)
    had = sum(1 for count in drafts if count)
    found = []
    for k, tokens in enumerate(known.acceptance.expected):
        seconds = known.times.seconds(here, k)
        rate = None if not seconds else max(requests, 1) * tokens / seconds
        timed = known.times.measured(here, k) >= _TIMED_STEPS
        found.append(Outlook(k, tokens, rate, timed, k > had))
    return tuple(found) if any(each.tokens_per_second for each in found) else ()
