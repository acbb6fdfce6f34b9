"""The control state of one engine core: k, mode, lease, trial, version.

Runs on the engine core's main thread, between scheduler steps, so nothing here needs a
lock. It lives in the engine, not in a console, so that an SSH session that drops leaves
no half-made change behind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdeck import __version__
from specdeck.engine.control.protocol import (
    PROTOCOL,
    Applied,
    Change,
    EngineState,
    LastChange,
    Lease,
    Policy,
)
from specdeck.engine.control.tuning import Exact, Tuning
from specdeck.engine.plugin import tuning
from specdeck.engine.plugin.checks import Standing, check
from specdeck.engine.plugin.fingerprint_identity import Identity
from specdeck.engine.plugin.judging import Judged
from specdeck.engine.plugin.knobs import Knobs
from specdeck.engine.plugin.refusal import Refusal
from specdeck.engine.plugin.seam import Engine
from specdeck.engine.plugin.steering import Steering
from specdeck.engine.policy.trial import Action, Trial

logger = logging.getLogger("vllm.specdeck")


@dataclass(frozen=True, slots=True)
class _Lease:
    ends: float
    back: Knobs


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
        self._version = 0
        self._lease: _Lease | None = None
        self._judged: Judged | None = None
        """The trial under way, or the last one that ended."""
        self._by: str | None = None
        """Who opened or reset the breaker by hand last."""
        self._last_change: LastChange | None = None
        self._begin(orchestration)

    def _begin(self, orchestration: Mapping[str, Any]) -> None:
        """Starts the policy that the config asks for."""
        if not orchestration.get("adaptive_draft"):
            return
        policy: Policy = orchestration.get("policy") or "goodput"
        try:
            self.change(Change(policy=policy, who="config", reason="orchestration.adaptive_draft"))
        except Refusal as refusal:
            logger.warning("specdeck leaves k alone: %s", refusal)

    def tick(self) -> None:
        """Takes back what has run out; called before every step and every answer."""
        lease, trial = self._lease, self._trying
        if lease is not None and self._clock() >= lease.ends:
            self._lease = None
            self._turn(lease.back, who="specdeck", reason="the lease ran out")
        if trial is not None:
            self._judge(trial, trial.trial.tick(self._clock()))

    def seen(self, record: Mapping[str, Any]) -> None:
        """Learns from a step; called after every one."""
        seen = self._steering.seen(record)
        judged = self._judged
        if judged is not None and seen is not None and not judged.trial.over:
            self._judge(judged, judged.trial.step(seen))

    @property
    def _trying(self) -> Judged | None:
        """The trial under way."""
        judged = self._judged
        return None if judged is None or judged.trial.over else judged

    def change(self, change: Change) -> Applied:
        """Applies `change` at once; raises Refusal and changes nothing otherwise."""
        self.tick()
        last, trial = self._last_change, self._trying
        standing = Standing(
            self._version,
            last.who if last else None,
            self._lease is not None,
            trial.who if trial else None,
        )
        check(change, self._steering, standing)
        step = self._engine.tally().step
        if change.renew or change.cancel:
            return self._hold(change, step)
        if change.judge:
            return self._try(change, step)
        who = change.who or "unknown"
        notices = self._stop_trial(f"{who} changed the engine")
        before = self._steering.knobs
        touched = self._steering.touched(change)
        was = self._steering.picked(touched)
        wanted = before.turned(change)
        if wanted.policy != before.policy and change.policy is None:
            notices += (f"policy {before.policy} → fixed: k is yours again",)
        notices += self._turn(wanted, who=who, reason=change.reason)
        notices += self._lend(change, before)
        notices += self._break(change, was, who)
        return Applied(was, self._steering.picked(touched), self._version, step, notices)

    def _hold(self, change: Change, step: int) -> Applied:
        """Renews or takes back what is leased or on trial."""
        now, lease, trial, who = self._clock(), self._lease, self._trying, change.who or "unknown"
        before = self._steering.knobs.spelled()
        if trial is not None and change.cancel:
            self._judge(trial, trial.trial.cancel(change.reason or f"cancelled by {who}"))
        elif trial is not None:
            trial.trial.renew(now, change.lease_s or 0.0)
        elif lease is not None and change.cancel:
            self._lease = None
            self._turn(lease.back, who=who, reason=change.reason)
        elif lease is not None:
            self._lease = replace(lease, ends=now + (change.lease_s or 0.0))
        present = self._steering.knobs.spelled()
        turned = {name: value for name, value in present.items() if before.get(name) != value}
        was = {name: before.get(name) for name in turned}
        return Applied(was, turned, self._version, step)

    def _try(self, change: Change, step: int) -> Applied:
        """Begins a judged trial: at once where the time before it is measured already."""
        steering = self._steering
        assert steering.pilot is not None
        touched, parameters = steering.touched(change), steering.catalogue.trial
        was, wanted = steering.picked(touched), steering.knobs.turned(change)
        if change.trial_s is not None:
            parameters = parameters.lasting(change.trial_s)
        trial = Trial(parameters, t=self._clock(), lease_s=change.lease_s, work=steering.pilot.work)
        self._judged = judged = Judged(
            trial,
            back=steering.knobs,
            wanted=wanted,
            before=was,
            after={"policy": wanted.policy, **change.asked()}
            if "policy" in was
            else change.asked(),
            who=change.who or "unknown",
            t=self._wall(),
            number=1 + (self._judged.number if self._judged else 0),
            why=change.reason,
        )
        self._version += 1
        notices: tuple[str, ...] = ()
        if not trial.ready:
            left = trial.seconds_left or 0.0
            notices = (f"the change is made after {left:.0f} s of work as it is now",)
        notices += self._judge(judged, trial.begin())
        return Applied(was, steering.picked(touched), self._version, step, notices)

    def _judge(self, judged: Judged, action: Action | None) -> tuple[str, ...]:
        """Does what a trial asks for."""
        if action is None:
            return ()
        words = judged.trial.reason
        if action == "apply":
            reason = f"on trial: {judged.why}" if judged.why else "on trial"
            return self._turn(judged.wanted, who=judged.who, reason=reason, by="trial")
        self._version += 1
        if action == "revert":
            return self._turn(judged.back, who="specdeck", reason=words, by="trial")
        pilot = self._steering.pilot
        if action == "keep" and pilot is not None:
            k = self._engine.scheduled_k()
            pilot.note(k, k, f"trial kept, {words}", "trial")
        return ()

    def _stop_trial(self, reason: str) -> tuple[str, ...]:
        judged = self._trying
        if judged is None:
            return ()
        self._judge(judged, judged.trial.cancel(reason))
        return (f"the trial of {judged.who} ended: {reason}",)

    def _break(self, change: Change, was: Mapping[str, Any], who: str) -> tuple[str, ...]:
        """Opens or resets the breaker by hand; says so where it is in the way."""
        steering = self._steering
        if change.breaker is None:
            if change.k is None or not steering.bypassed:
                return ()
            return ("the breaker is open: k takes effect when it is reset (breaker=closed)",)
        steering.hand(change, who=who)
        self._by = who
        self._version += 1
        knobs = steering.knobs.spelled()
        before, after = {**knobs, **was}, {**knobs, "breaker": change.breaker}
        self._last_change = LastChange(self._wall(), who, change.reason, before, after)
        if change.breaker == "open" and steering.knobs.mode == "target-only":
            return ("mode is target-only already: the breaker stays open when that ends",)
        return ()

    def _lend(self, change: Change, before: Knobs) -> tuple[str, ...]:
        """Begins a lease, or carries on the one in force beside a change that is to stay."""
        lease, now = self._lease, self._clock()
        if change.lease_s:
            self._lease = _Lease(now + change.lease_s, lease.back if lease else before)
        elif lease is not None:
            back = lease.back.turned(change)
            self._lease = None if back == self._steering.knobs else replace(lease, back=back)
            if self._lease is not None:
                left = lease.ends - now
                return (f"a trial goes on: what it changed comes back in {left:.0f} s",)
        return ()

    def _turn(
        self, knobs: Knobs, *, who: str, reason: str | None, by: str | None = None
    ) -> tuple[str, ...]:
        """Makes `knobs` the engine's and remembers who did; `by` names it among k's moves."""
        before = self._steering.knobs
        notices = self._steering.turn(knobs, why=reason or f"by {who}", who=by or who)
        if knobs != before:
            self._version += 1
            was, present = before.spelled(), knobs.spelled()
            self._last_change = LastChange(self._wall(), who, reason, was, present)
        return notices

    def facts(self) -> dict[str, Any]:
        """The facts behind the fingerprint, what is live included."""
        self._steering.name()
        return self._identity.as_json()

    def state(self) -> EngineState:
        """Everything the plugin knows at this moment."""
        self.tick()
        build, tally, steering = self._engine.build, self._engine.tally(), self._steering
        running, waiting = self._engine.requests()
        knobs, pilot, trial = steering.knobs, steering.pilot, self._trying
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
        self.tick()
        tally = self._engine.tally()
        exact = Exact(self._exact, tally.exact_requests, tally.exact_tokens, tally.exact_running)
        return replace(
            tuning.told(self._steering, by=self._by, instance=self._instance, t=self._wall()),
            version=self._version,
            trial=self._judged.told() if self._judged else None,
            exact=exact,
        )

    def _lease_left(self) -> Lease | None:
        lease, judged = self._lease, self._trying
        if judged is not None:
            left = judged.trial.lease_left_s
            return None if left is None else Lease(left, judged.back.k, judged.back.mode)
        if lease is None:
            return None
        left = max(0.0, lease.ends - self._clock())
        return Lease(seconds_left=left, k=lease.back.k, mode=lease.back.mode)
