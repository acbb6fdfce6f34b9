"""The knobs that an operator has set of one engine, and what its scheduler and drafter are told.

The operator's k, the policy's table or the breaker's zero: one of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from specdeck.engine.plugin.capabilities import capabilities, take_away
from specdeck.engine.plugin.cold import enter_cold, leave_cold
from specdeck.engine.plugin.engine import Engine
from specdeck.engine.plugin.fingerprint import Identity
from specdeck.engine.plugin.reply import Refusal, inability
from specdeck.engine.policy.parameters import Catalogue, ParameterError, read_orchestration
from specdeck.engine.policy.runner import PolicyRunner
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.messages import (
    INTERMEDIATE_K,
    Capability,
    Change,
    Fallback,
    Mode,
    Origin,
    Policy,
    Value,
    with_implied_policy,
)

_WATCHED = ("trial", "policy.threshold", "policy.goodput", "request_rest", "calibration")
"""What goes by an engine's own steps: it can only be done while they are seen, and not where
several ranks, with steps of their own each, are to stay alike."""

_MOVES_K = frozenset({"threshold", "goodput"})
"""Blocks of parameters of policies that look for the best k between the ends."""

_OWN = ("k", "mode", "fallback", "policy")

_NEEDS = {"k": "live_k", "mode": "target_only", "breaker": "breaker"}


@dataclass(frozen=True, slots=True)
class Knobs:
    """What an operator has set; the breaker is none of them, since it moves by itself too."""

    k: int
    mode: Mode = "speculate"
    fallback: Fallback = "warm"
    policy: Policy = "fixed"
    parameters: Mapping[str, Value] = field(default_factory=dict)
    """Those that were set since the start, by dotted name."""
    scheduled: bool = False
    """Whether the configured k by batch size is in force, which any k replaces."""

    def with_change(self, change: Change) -> Self:
        """These with what `change` asks for; a k without a policy ends the policy."""
        own = {name: value for name in _OWN if (value := getattr(change, name)) is not None}
        asked = with_implied_policy(own)
        parameters = {**self.parameters, **(change.parameters or {})}
        scheduled = self.scheduled and not {"k", "mode", "policy"} & set(asked)
        return replace(self, parameters=parameters, scheduled=scheduled, **asked)

    @property
    def live_k(self) -> int:
        """The k that the scheduler is to be told."""
        return 0 if self.mode == "target-only" else self.k

    @property
    def cold(self) -> bool:
        """Whether the drafter is to be left out."""
        return self.mode == "target-only" and self.fallback == "cold"

    def live_facts(self, breaker: str) -> dict[str, Any]:
        """What the serving path depends on: how target-only is kept matters only in it."""
        if self.mode == "target-only":
            return {"k": 0, "mode": self.mode, "fallback": self.fallback, "policy": self.policy}
        k: object = self.k if self.policy == "fixed" else None
        if self.scheduled:
            k = "by batch size"
        if breaker == "closed":
            return {"k": k, "mode": self.mode, "fallback": None, "policy": self.policy}
        k = 0 if breaker == "open" else None
        own = {"mode": self.mode, "fallback": None, "policy": self.policy, "breaker": breaker}
        return {"k": k, **own}

    def as_dict(self) -> dict[str, Any]:
        """Every knob by its name."""
        own = {name: getattr(self, name) for name in _OWN}
        return {**own, **self.parameters}


class Turn(Protocol):
    """Makes knobs the engine's; what there is to say of it."""

    def __call__(
        self,
        knobs: Knobs,
        *,
        who: str,
        reason: str | None,
        origin: Origin,
        before: Knobs | None = None,
    ) -> tuple[str, ...]:
        """`who` asked for it; `origin` is a trial's.

        `before` is what it ends where that is not in force at this moment, as of a trial.
        """


class Steering:
    """Brings knobs about on an `Engine`, watches its steps, and has its path named."""

    def __init__(
        self,
        engine: Engine,
        identity: Identity,
        *,
        orchestration: Mapping[str, Any],
        wall: Callable[[], float],
    ) -> None:
        self.engine = engine
        self._identity = identity
        self.capabilities = capabilities(engine.build)
        self.together: Capability | None = None
        """Why it does nothing on its own, where it is one of several ranks."""
        self.configured, self.wrong = read_orchestration(orchestration)
        """The parameters as the engine was started, and the blocks that made no sense."""
        self.catalogue: Catalogue = self.configured
        """The parameters in force."""
        # A schedule may hold a k that would end the engine, and is not kept where one can.
        scheduled = engine.build.own_schedule and not engine.build.drafts_all_or_none
        self.knobs = Knobs(k=engine.build.k_max, scheduled=scheduled)
        self.runner = self._watch(wall)
        """What observes the engine and chooses k; None where k cannot be changed."""
        if self.runner is not None and not self.knobs.scheduled:
            engine.set_k(self.knobs.live_k)
        self._follow(self.knobs)
        self.name()

    def _watch(self, wall: Callable[[], float]) -> PolicyRunner | None:
        build = self.engine.build
        if not self.can("live_k").available or build.k_max < 1:
            return None
        return PolicyRunner.watching(
            self.catalogue,
            k=self.knobs.k,
            k_max=build.k_max,
            zero=self.can("target_only").available,
            wall=wall,
        )

    def can(self, name: str) -> Capability:
        """Whether the engine can, and the reason where not."""
        return next(c for c in self.capabilities if c.name == name)

    def require(self, change: Change, *, now: Knobs, later: Knobs | None) -> None:
        """Raises Refusal unless the engine can do the whole of `change`.

        `now` is what it changes: in force, or again once it has ended the trial under way;
        `later` is what a lease goes back to, None without one.
        """
        if change.parameters and self.together is not None:
            raise inability(self.together)  # they are of what goes by steps
        for name in _needed_capabilities(change, self.engine.build.k_max):
            capability = self.can(name)
            if not capability.available:
                raise inability(capability)
        if change.policy is not None and change.policy in self.wrong:
            remedy = "correct the config's orchestration block and restart the engine"
            reason = self.wrong[change.policy]
            raise Refusal(501, f"policy.{change.policy}", reason, remedy)
        k_max = self.engine.build.k_max
        if change.k is not None and change.k > k_max:
            raise Refusal(
                501,
                "k_max",
                f"k={change.k} is above k_max={k_max}: the engine's buffers are sized by it",
                f"start the engine with num_speculative_tokens: {change.k}",
            )
        self._require_parameters(change, now, later)

    def _require_parameters(self, change: Change, now: Knobs, later: Knobs | None) -> None:
        """Refuses parameters that make no sense beside those in force, now or after a lease."""
        when = ""
        try:
            found = self.configured.with_values(now.with_change(change).parameters)
            if change.judge and change.trial_s is not None:
                found.trial.lasting(change.trial_s)
            if later is not None and not change.lease_s:
                when = "when the lease ends, "
                self.configured.with_values(later.with_change(change).parameters)
        except ParameterError as error:
            raise Refusal(400, "parameter", f"{when}{error}", "nothing was changed") from None

    def step(self, step: Step) -> None:
        """Learns from a step, and has the policy choose the k's for the next one."""
        runner = self.runner
        if runner is None:
            return
        was = runner.breaker.state
        if runner.step(step, steering=self.knobs.mode == "speculate"):
            self._tell()
            if runner.breaker.state != was:
                self.name()

    def join(self, why: Capability) -> None:
        """It is one of several ranks that stay alike: nothing chooses k by its steps any more."""
        self.together = why
        self._withhold(why)

    def _withhold(self, why: Capability) -> None:
        self.capabilities = take_away(self.capabilities, _WATCHED, why)

    def go_blind(self, why: str) -> None:
        """Nothing that needs to see steps can be wanted any more; a held breaker stays open."""
        self._withhold(Capability("watching", False, why, "restart the engine"))
        runner = self.runner
        if runner is None:
            return
        runner.breaker.silence()
        if runner.bypassed and not runner.breaker.held:
            runner.reset()
            self._tell()

    def look(self, t: float) -> None:
        """Has time pass to `t`, seconds of the clock of the steps: an idle engine makes none."""
        if self.runner is not None:
            self.runner.look(t)

    def turn(
        self, knobs: Knobs, *, why: str, who: str, origin: Origin, before: Knobs | None = None
    ) -> tuple[str, ...]:
        """Makes `knobs` the engine's, and remembers the move.

        `before` is what it ends where that is not in force at this moment.
        """
        ended = before or self.knobs
        k = self.engine.scheduled_k() if ended == self.knobs else ended.live_k
        notices = self.swap(knobs)
        if knobs != ended:
            self._log_move(k, why, "trial" if origin == "trial" else who, origin)
        return notices

    def swap(self, knobs: Knobs) -> tuple[str, ...]:
        """Makes `knobs` the engine's, in an order in which no step drafts without a drafter."""
        before, self.knobs = self.knobs, knobs
        try:
            notices = self._bring_about(knobs, before)
        except Exception:
            self.knobs = before  # what could not be done is neither claimed nor left half done
            self._follow(before)
            self._tell()
            raise
        if knobs != before:
            self.name()
        return notices

    def turn_breaker(self, change: Change, *, who: str) -> None:
        """Opens or resets the breaker from outside, at once."""
        runner = self.runner
        assert runner is not None
        k = self.engine.scheduled_k()
        if change.breaker == "open":
            reason = change.reason or f"opened by {who}"
            runner.trip(change.cause or "hand", reason, hold=not change.probe)
        else:
            runner.reset()
        self._tell()
        self.name()
        words = f": {change.reason}" if change.reason else ""
        why = "for divergence" if change.cause else "by hand"
        self._log_move(k, f"breaker {change.breaker} {why}{words}", who, change.origin)

    def _log_move(self, before: int, why: str, who: str, origin: Origin) -> None:
        if self.runner is not None:
            self.runner.log_move(before, self.engine.scheduled_k(), why, who, origin)

    def _bring_about(self, knobs: Knobs, before: Knobs) -> tuple[str, ...]:
        notices: tuple[str, ...] = ()
        if knobs != before and self.runner is not None:
            self._follow(knobs)
            self._tell()
            if knobs.mode == "target-only":
                self.runner.breaker.silence()
            if before.scheduled and not knobs.scheduled:
                notices += ("the configured k by batch size is replaced until the next start",)
        if knobs.cold and not before.cold:
            enter_cold(self.engine)
        elif before.cold and not knobs.cold:
            notices += leave_cold(self.engine)
        return notices

    def _follow(self, knobs: Knobs) -> None:
        """Has the policy and the parameters of `knobs` choose from now on."""
        self.catalogue = self.configured.with_values(knobs.parameters)
        if self.runner is not None:
            self.runner.follow(knobs.policy, k=knobs.k, catalogue=self.catalogue)
        rests = knobs.policy == "goodput" and self.can("request_rest").available
        self.engine.rest_fruitless(self.catalogue.goodput.rest_rounds if rests else None)

    def _tell(self) -> None:
        """Tells the scheduler the operator's k, the policy's, or what the breaker leaves."""
        runner, knobs = self.runner, self.knobs
        if runner is None or knobs.mode == "target-only":
            self.engine.set_k(knobs.live_k)
        elif knobs.policy != "fixed" or runner.interrupted:
            self.engine.set_table(runner.decision.table)
        elif knobs.scheduled:
            self.engine.restore_schedule()
        else:
            self.engine.set_k(knobs.live_k)

    @property
    def bypassed(self) -> bool:
        """Whether the breaker has k."""
        return self.runner is not None and self.runner.bypassed

    def touched_names(self, change: Change, knobs: Knobs | None = None) -> list[str]:
        """What `change` asks for, and the policy where a k ends it: undoing wants both.

        `knobs` are those it is made to, the ones in force without.
        """
        names, knobs = list(change.knobs()), knobs or self.knobs
        ends = knobs.with_change(change).policy != knobs.policy
        return [*names, "policy"] if ends and change.policy is None else names

    def pick(self, names: Iterable[str], knobs: Knobs | None = None) -> dict[str, Any]:
        """The knobs and parameters called `names`, as they are now or in `knobs`; the breaker as
        it is now."""
        catalogue = self.configured.with_values(knobs.parameters) if knobs else self.catalogue
        found: dict[str, Any] = {}
        for name in names:
            if name == "breaker":
                found[name] = "open" if self.bypassed else "closed"
            elif "." in name:
                found[name] = catalogue.value(name)
            else:
                found[name] = getattr(knobs or self.knobs, name)
        return found

    def undo_breaker(self, change: Change) -> dict[str, str]:
        """The word that takes `change` of the breaker back, as `specdeck set` spells it.

        Opened, it is to be reset, whatever it was: opening it once more would hold it for ever.
        """
        if change.breaker is None:
            return {}
        anew = change.breaker == "open" and not change.probe
        return {"breaker": "closed" if anew else self.breaker_word}

    @property
    def breaker_word(self) -> str:
        """The word that brings the breaker to where it is, as `specdeck set` spells it."""
        runner = self.runner
        if runner is None or not runner.bypassed:
            return "closed"
        return "open" if runner.breaker.held else "probe"

    def name(self) -> str:
        """The path's name with what is in force at this moment."""
        breaker = self.runner.breaker.state if self.runner else "closed"
        live, weights = self.knobs.live_facts(breaker), self.engine.weights()
        return self._identity.now(live if weights is None else {**live, "weights": dict(weights)})


def _needed_capabilities(change: Change, k_max: int) -> list[str]:
    """The capabilities that `change` requires."""
    names = [_NEEDS[knob] for knob in change.knobs() if knob in _NEEDS]
    if change.parameters:  # of what moves k, or has it moved on trial
        names.append("live_k")
    policies = {name.partition(".")[0] for name in change.parameters or {}} & _MOVES_K
    if policies or (change.k is not None and 0 < change.k < k_max):
        names.append(INTERMEDIATE_K)
    if change.k == 0:  # the same to the drafter as target-only
        names.append("target_only")
    if change.judge:
        names.append("trial")
    if change.fallback == "cold":
        names.append("cold")
    if change.policy is not None:
        names.append(f"policy.{change.policy}")
    return names
