"""The control state of one engine core: k, mode, lease, version.

Runs on the engine core's main thread, between scheduler steps, so nothing here needs a
lock. It lives in the engine, not in a console, so that an SSH session that drops leaves
no half-made change behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from specdeck import __version__
from specdeck.engine.control.protocol import (
    PROTOCOL,
    Applied,
    Capability,
    Change,
    EngineState,
    LastChange,
    Lease,
)
from specdeck.engine.plugin.autopilot import Autopilot, Chooser
from specdeck.engine.plugin.capabilities import capabilities
from specdeck.engine.plugin.fingerprint_identity import Identity
from specdeck.engine.plugin.knobs import Knobs
from specdeck.engine.plugin.refusal import Refusal, conflict, unsupported
from specdeck.engine.plugin.seam import Engine
from specdeck.engine.policy.parameters import ParameterError


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
    ) -> None:
        self._engine = engine
        self._identity = identity
        self._instance = instance
        self._orchestration = orchestration
        self._autopilot: Autopilot | None = None
        """Made with the first policy that chooses k, and kept for what it learned."""
        self._clock = clock
        self._wall = wall
        self._started = wall()
        self._capabilities = capabilities(engine.build)
        self._knobs = Knobs(k=engine.build.k_max)
        self._version = 0
        self._lease: _Lease | None = None
        self._last_change: LastChange | None = None
        self._scheduled = engine.build.own_schedule
        if self._can("live_k").available and not self._scheduled:
            engine.set_k(self._knobs.live_k)
        self._name()

    def tick(self) -> None:
        """Takes a change back whose lease has run out; called before every step."""
        lease = self._lease
        if lease is not None and self._clock() >= lease.ends:
            self._lease = None
            self._turn(lease.back, who="specdeck", reason="the lease ran out")

    def seen(self, record: Mapping[str, Any]) -> None:
        """Has the policy choose the k's for the next step; called after every step."""
        pilot = self._pilot
        if pilot is None or self._knobs.mode == "target-only":
            return
        decision = pilot.step(record)
        if decision is not None:
            self._engine.set_table(decision.table)

    def change(self, change: Change) -> Applied:
        """Applies `change` at once; raises Refusal and changes nothing otherwise."""
        self.tick()
        self._check(change)
        now = self._clock()
        if change.renew:
            assert self._lease is not None
            assert change.lease_s is not None
            self._lease = replace(self._lease, ends=now + change.lease_s)
            return Applied({}, {}, self._version, self._engine.tally().step)
        asked = change.asked()
        before = self._knobs
        step = self._engine.tally().step
        wanted = replace(before, **asked)
        notices: tuple[str, ...] = ()
        if change.k is not None and change.policy is None and before.policy != "fixed":
            wanted = replace(wanted, policy="fixed")
            notices = (f"policy {before.policy} → fixed: k is yours again",)
        notices += self._turn(wanted, who=change.who or "unknown", reason=change.reason)
        notices += self._lend(change, before, now)
        return Applied(
            before.picked(asked), self._knobs.picked(asked), self._version, step, notices
        )

    def _lend(self, change: Change, before: Knobs, now: float) -> tuple[str, ...]:
        """Begins a lease, or carries on the one in force beside a change that is to stay."""
        lease = self._lease
        if change.lease_s:
            self._lease = _Lease(now + change.lease_s, lease.back if lease else before)
        elif lease is not None:
            back = replace(lease.back, **change.asked())
            self._lease = None if back == self._knobs else replace(lease, back=back)
            if self._lease is not None:
                left = lease.ends - now
                return (f"a trial goes on: what it changed comes back in {left:.0f} s",)
        return ()

    def _turn(self, knobs: Knobs, *, who: str, reason: str | None) -> tuple[str, ...]:
        """Makes `knobs` the engine's, in an order in which no step drafts without a drafter."""
        before, self._knobs = self._knobs, knobs
        try:
            notices = self._bring_about(knobs, before)
        except Exception:
            self._knobs = before  # what could not be done is not claimed
            raise
        if knobs != before:
            self._version += 1
            self._last_change = LastChange(
                self._wall(), who, reason, before.spelled(), knobs.spelled()
            )
            self._name()
        return notices

    def _bring_about(self, knobs: Knobs, before: Knobs) -> tuple[str, ...]:
        notices: tuple[str, ...] = ()
        if self._can("live_k").available and knobs != before:
            self._steer(knobs, before)
            if self._scheduled:
                self._scheduled = False
                notices += ("the configured k by batch size is replaced until the next start",)
        if knobs.cold != before.cold:
            self._engine.skip_drafter(knobs.cold)
            if before.cold:
                # The drafter saw none of the tokens of the cold time, neither in the running
                # requests nor in the prefix cache: acceptance would stay near zero for both.
                preempted = self._engine.resync()
                notices += (f"resync: {preempted} requests preempted, prefix cache emptied",)
        return notices

    def _steer(self, knobs: Knobs, before: Knobs) -> None:
        """Has the scheduler told the operator's k, or the policy's."""
        if knobs.policy != "fixed" and knobs.policy != before.policy:
            if self._autopilot is None:
                self._autopilot = self._made(knobs.policy)
            else:
                self._autopilot.follow(knobs.policy, k=knobs.k)
        pilot = self._pilot
        if pilot is None or knobs.mode == "target-only":
            self._engine.set_k(knobs.live_k)
        else:
            self._engine.set_table(pilot.decision.table)

    @property
    def _pilot(self) -> Autopilot | None:
        """What chooses k; None while the operator does."""
        return None if self._knobs.policy == "fixed" else self._autopilot

    def _made(self, policy: Chooser) -> Autopilot:
        build = self._engine.build
        return Autopilot(
            policy,
            k=self._knobs.k,
            k_max=build.k_max,
            zero=self._can("target_only").available,
            asynchronous=build.asynchronous,
            orchestration=self._orchestration,
        )

    def _check(self, change: Change) -> None:
        if change.expect_version is not None and change.expect_version != self._version:
            last = self._last_change
            raise conflict(self._version, last.who if last else "specdeck")
        if change.renew and self._lease is None:
            raise conflict(self._version, "specdeck (the lease has run out)")
        asked = change.asked()
        needs = {"k": "live_k", "mode": "target_only"}
        names = [needs[knob] for knob in asked if knob in needs]
        if change.fallback == "cold":
            names.append("cold")
        if change.policy is not None:
            names.append(f"policy.{change.policy}")
        for name in names:
            capability = self._can(name)
            if not capability.available:
                raise unsupported(capability)
        if change.policy is not None and change.policy != "fixed":
            self._check_parameters(change.policy)
        k_max = self._engine.build.k_max
        if change.k is not None and change.k > k_max:
            raise Refusal(
                501,
                "k_max",
                f"k={change.k} is above k_max={k_max}: the engine's buffers are sized by it",
                f"start the engine with num_speculative_tokens: {change.k}",
            )

    def _check_parameters(self, policy: Chooser) -> None:
        try:
            self._made(policy)
        except ParameterError as error:
            remedy = "mend the config's orchestration block and start the engine anew"
            raise Refusal(501, f"policy.{policy}", str(error), remedy) from None

    def _can(self, name: str) -> Capability:
        return next(c for c in self._capabilities if c.name == name)

    def facts(self) -> dict[str, Any]:
        """The facts behind the fingerprint, what is live included."""
        self._name()
        return self._identity.as_json()

    def _name(self) -> str:
        """The path's name with what is in force at this moment."""
        live = self._knobs.live()
        return self._identity.now({**live, "k": "by batch size"} if self._scheduled else live)

    def state(self) -> EngineState:
        """Everything the plugin knows at this moment."""
        self.tick()
        build, tally, knobs = self._engine.build, self._engine.tally(), self._knobs
        running, waiting = self._engine.requests()
        pilot = self._pilot
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
            breaker=pilot.breaker if pilot else "closed",
            policy_reason=pilot.reason if pilot else None,
            step=tally.step,
            drafts=tally.drafts,
            drafted_per_position=tally.drafted_per_position,
            accepted_per_position=tally.accepted_per_position,
            running=running,
            pinned=tally.pinned,
            waiting=waiting,
            fingerprint=self._name(),
            capabilities=self._capabilities,
            lease=self._lease_left(),
            last_change=self._last_change,
        )

    def _lease_left(self) -> Lease | None:
        lease = self._lease
        if lease is None:
            return None
        left = max(0.0, lease.ends - self._clock())
        return Lease(seconds_left=left, k=lease.back.k, mode=lease.back.mode)
