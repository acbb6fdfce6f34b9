"""The control state of one engine core: k, mode, lease, trial, version.

Runs on the engine core's main thread, between scheduler steps, so nothing here needs a
lock. It lives in the engine, not in a console, so that an SSH session that drops leaves
no half-made change behind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specdeck import __version__
from specdeck.engine.control.protocol import (
    PROTOCOL,
    Applied,
    Change,
    EngineState,
    LastChange,
    Lease,
    Origin,
)
from specdeck.engine.control.tuning import Exact, Tuning
from specdeck.engine.plugin import tuning
from specdeck.engine.plugin.checks import Standing, check
from specdeck.engine.plugin.fingerprint_identity import Identity
from specdeck.engine.plugin.judging import Trials
from specdeck.engine.plugin.knobs import Knobs
from specdeck.engine.plugin.leased import Leased
from specdeck.engine.plugin.refusal import Refusal, change_from, conflict
from specdeck.engine.plugin.seam import Engine
from specdeck.engine.plugin.steering import Steering

logger = logging.getLogger("vllm.specdeck")


class Controller:
    """Applies changes to an `Engine` and answers for its state."""

    def __init__(
        self,
        engine: Engine,
        identity: Identity,
        *,
        instance: str,
        orchestration: Mapping[str, Any],
        clock: Callable[[], float],
        wall: Callable[[], float],
        exact: Sequence[str] = (),
    ) -> None:
        self._engine = engine
        self._identity = identity
        self._instance = instance
        self._exact = tuple(exact)
        self._clock = clock
        self._wall = wall
        self._started = wall()
        self._steering = Steering(engine, identity, orchestration=orchestration, wall=wall)
        self._turns = 0
        self._lease: Leased | None = None
        self._trials = Trials(self._steering, self._turn, self._take_back, clock=clock, wall=wall)
        self._by: str | None = None
        """Who opened or reset the breaker by hand last."""
        self._last_change: LastChange | None = None
        self._begin(orchestration)

    def _begin(self, orchestration: Mapping[str, Any]) -> None:
        """Starts the policy that the config asks for; says what of it makes no sense."""
        for block, reason in self._steering.wrong.items():
            logger.warning("specdeck goes by its own %s parameters: %s", block, reason)
        if not orchestration.get("adaptive_draft"):
            return
        wanted = {"policy": orchestration.get("policy") or "goodput"}
        reason = "orchestration.adaptive_draft"
        try:
            self.change(
                change_from({**wanted, "who": "config", "reason": reason, "origin": "config"})
            )
        except Refusal as refusal:
            logger.warning("specdeck leaves k alone: %s", refusal)

    def tick(self) -> None:
        """Takes back what has run out; called before every step and every answer."""
        lease = self._lease
        if lease is not None and self._clock() >= lease.ends:
            reason = "the lease ran out"
            self._take_back(lease.back, who="specdeck", reason=reason, origin="lease")
        self._trials.tick()

    def _look(self) -> None:
        """Brings everything that goes by time up to this moment."""
        self.tick()
        self._steering.look(self._clock())

    def seen(self, record: Mapping[str, Any]) -> None:
        """Learns from a step; called after every one."""
        seen = self._steering.seen(record)
        if seen is not None:
            self._trials.step(seen)

    def blinded(self) -> None:
        """No step is seen any more: a trial ends, and k is the operator's again."""
        why = "specdeck failed at watching the steps; the engine's log says why"
        self._trials.cancel(why)
        self._steering.blinded(why)
        if (lease := self._lease) is not None:
            self._lease = replace(lease, back=replace(lease.back, policy="fixed"))
        fixed = replace(self._steering.knobs, policy="fixed")
        self._turn(fixed, who="specdeck", reason=why, origin="policy")

    @property
    def _version(self) -> int:
        return self._turns + self._trials.moves

    def change(self, change: Change) -> Applied:
        """Applies `change` at once; raises Refusal and changes nothing otherwise."""
        self._look()
        last, trial = self._last_change, self._trials.running
        standing = Standing(
            self._version,
            last.who if last else None,
            trial.back if trial else self._steering.knobs,
            self._lease.back if self._lease else None,
            trial.who if trial else None,
        )
        check(change, self._steering, standing)
        step = self._engine.tally().step
        if change.renew or change.cancel:
            return self._hold(change, step)
        if change.judge:
            touched = self._steering.touched(change)
            was = self._steering.picked(touched)
            notices = self._trials.begin(change) + self._in_the_way(change)
            found, number = self._steering.picked(touched), self._trials.number
            return Applied(was, found, self._version, step, notices, number)
        who = change.who or "unknown"
        notices = self._trials.cancel(f"{who} changed the engine")
        before = self._steering.knobs
        touched = self._steering.touched(change)
        was = self._steering.picked(touched)
        undoing = self._steering.undoing(change)
        wanted = before.turned(change)
        if wanted.policy != before.policy and change.policy is None:
            notices += (f"policy {before.policy} → fixed: k is yours again",)
        notices += self._turn(wanted, who=who, reason=change.reason, origin=change.origin)
        notices += self._lend(change, before)
        notices += self._break(change, was, who)
        found, undo = self._steering.picked(touched), {**was, **undoing} if undoing else None
        return Applied(was, found, self._version, step, notices, undo=undo)

    def _hold(self, change: Change, step: int) -> Applied:
        """Renews or takes back what is leased or on trial."""
        now, lease, trial = self._clock(), self._lease, self._trials.running
        if change.trial is not None and (trial is None or trial.number != change.trial):
            raise conflict(self._version, f"specdeck (trial {change.trial} has ended)")
        who = change.who or "unknown"
        before = self._steering.knobs.spelled()
        if trial is not None and change.cancel:
            self._trials.cancel(change.reason or f"cancelled by {who}")
        elif trial is not None:
            trial.trial.renew(now, change.lease_s or 0.0)
        elif lease is not None and change.cancel:
            self._take_back(lease.back, who=who, reason=change.reason, origin=change.origin)
        elif lease is not None:
            self._lease = replace(lease, ends=now + (change.lease_s or 0.0))
        present = self._steering.knobs.spelled()
        turned = {name: value for name, value in present.items() if before.get(name) != value}
        was = {name: before.get(name) for name in turned}
        return Applied(was, turned, self._version, step)

    def _break(self, change: Change, was: Mapping[str, Any], who: str) -> tuple[str, ...]:
        """Opens or resets the breaker by hand; says so where it is in the way."""
        steering = self._steering
        if change.breaker is None:
            return self._in_the_way(change)
        steering.hand(change, who=who)
        self._by = who
        self._turns += 1
        knobs = steering.knobs.spelled()
        before, after = {**knobs, **was}, {**knobs, "breaker": change.breaker}
        self._last_change = LastChange(
            self._wall(), who, change.reason, before, after, change.origin
        )
        if change.breaker == "open" and steering.knobs.mode == "target-only":
            return ("mode is target-only already: the breaker stays open when that ends",)
        return ()

    def _in_the_way(self, change: Change) -> tuple[str, ...]:
        """Says so where the breaker keeps a k from taking effect."""
        pilot = self._steering.pilot
        if change.k is None or pilot is None or not pilot.bypassed:
            return ()
        state = pilot.breaker.state
        return (f"the breaker is {state}: k takes effect when it is reset (breaker=closed)",)

    def _lend(self, change: Change, before: Knobs) -> tuple[str, ...]:
        """Begins a lease, or carries on the one in force beside a change that is to stay."""
        lease, now = self._lease, self._clock()
        if change.lease_s:
            self._lease = Leased(now + change.lease_s, lease.back if lease else before)
        elif lease is not None:
            back = lease.back.turned(change)
            self._lease = None if back == self._steering.knobs else replace(lease, back=back)
            if self._lease is not None:
                left = lease.ends - now
                return (f"a trial goes on: what it changed comes back in {left:.0f} s",)
        return ()

    def _turn(
        self, knobs: Knobs, *, who: str, reason: str | None, origin: Origin
    ) -> tuple[str, ...]:
        """Makes `knobs` the engine's and remembers who did, and where it came from."""
        before = self._steering.knobs
        notices = self._steering.turn(knobs, why=reason or f"by {who}", who=who, origin=origin)
        if knobs != before:
            self._turns += 1
            was, present = before.spelled(), knobs.spelled()
            self._last_change = LastChange(self._wall(), who, reason, was, present, origin)
        return notices

    def _take_back(
        self, knobs: Knobs, *, who: str, reason: str | None, origin: Origin
    ) -> tuple[str, ...]:
        """Turns to `knobs`, which a lease or a trial holds; tried again should that fail."""
        now = self._clock()
        self._lease = (self._lease or Leased(now, knobs)).tried(now)
        notices = self._turn(knobs, who=who, reason=reason, origin=origin)
        self._lease = None
        return notices

    def facts(self) -> dict[str, Any]:
        """The facts behind the fingerprint, what is live included."""
        self._steering.name()
        return self._identity.as_json()

    def state(self) -> EngineState:
        """Everything the plugin knows at this moment."""
        self._look()
        build, tally, steering = self._engine.build, self._engine.tally(), self._steering
        running, waiting = self._engine.requests()
        knobs, pilot, trial = steering.knobs, steering.pilot, self._trials.running
        return EngineState(
            protocol=PROTOCOL,
            plugin=__version__,
            instance=self._instance,
            version=self._version,
            started=self._started,
            vllm=build.vllm,
            model=build.model,
            method=build.method,
            runner=build.runner,
            k=self._engine.scheduled_k(),
            k_set=knobs.k,
            k_max=build.k_max,
            mode=knobs.mode if build.method else "target-only",
            fallback=knobs.fallback,
            policy=knobs.policy,
            breaker=pilot.breaker.state if pilot else "closed",
            policy_reason=pilot.reason if pilot else None,
            alarm=pilot.breaker.alarm if pilot else None,
            step=tally.step,
            drafts=tally.drafts,
            drafted_per_position=tally.drafted_per_position,
            accepted_per_position=tally.accepted_per_position,
            running=running,
            waiting=waiting,
            pinned=tally.pinned,
            exact_running=tally.exact_running,
            exact_requests=tally.exact_requests,
            exact_tokens=tally.exact_tokens,
            trial=trial.trial.state if trial else None,
            fingerprint=steering.name(),
            capabilities=steering.capabilities,
            lease=self._lease_left(),
            last_change=self._last_change,
        )

    def tuning(self) -> Tuning:
        """What the policy, the breaker and the trial are at."""
        self._look()
        tally = self._engine.tally()
        exact = Exact(self._exact, tally.exact_requests, tally.exact_tokens, tally.exact_running)
        return replace(
            tuning.told(self._steering, by=self._by, instance=self._instance, t=self._wall()),
            version=self._version,
            trial=self._trials.last.told() if self._trials.last else None,
            exact=exact,
        )

    def _lease_left(self) -> Lease | None:
        lease, judged = self._lease, self._trials.running
        if judged is not None:
            left = judged.trial.lease_left_s
            return None if left is None else Lease(left, judged.back.k, judged.back.mode)
        if lease is None:
            return None
        left = max(0.0, lease.ends - self._clock())
        return Lease(seconds_left=left, k=lease.back.k, mode=lease.back.mode)
