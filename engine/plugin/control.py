"""The control state of one engine core: k, mode, lease, trial, version; and its answers.

Runs in the engine core's process, on its main thread and between scheduler steps, so
nothing here needs a lock. It lives in the engine, not in a console, so that an SSH session
that drops leaves no half-made change behind.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

from specdeck import __version__
from specdeck.engine.plugin.capabilities import PINS_FAILED, lose_pins
from specdeck.engine.plugin.core_engine import CoreEngine
from specdeck.engine.plugin.engine import Engine
from specdeck.engine.plugin.fingerprint import Board, Identity, identify
from specdeck.engine.plugin.guards import QUIET_S
from specdeck.engine.plugin.leases import LeaseRecord, Leases
from specdeck.engine.plugin.looks import PAGE
from specdeck.engine.plugin.reply import (
    Refusal,
    conflict,
    describe_tuning,
    inability,
    nonsense,
)
from specdeck.engine.plugin.request_pins import exact_models
from specdeck.engine.plugin.steering import Knobs, Steering
from specdeck.engine.plugin.trials import Trials
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import bucket
from specdeck.engine.protocol.calibration import DummySteps, StepShape
from specdeck.engine.protocol.messages import (
    INTERMEDIATE_K,
    ORCHESTRATION_VARIABLE,
    PROTOCOL,
    AppliedChange,
    Capability,
    Change,
    EngineState,
    InvalidChange,
    LastChange,
    Origin,
)
from specdeck.engine.protocol.tuning import Exact, Tuning

logger = logging.getLogger("vllm.specdeck")

_ALONE = Capability(
    "ranks", False, "each data-parallel rank would judge and choose k on its own",
    "run one engine per rank, without data_parallel_size",
)  # fmt: skip
"""What is not done where several ranks are to stay alike."""

_CONTROL = "_specdeck_control"
"""The attribute of an engine core that holds its `Control`, or why there is none."""
_LOGGED = "_specdeck_logged"
"""That which says when a failure was logged last."""


@dataclass(frozen=True, slots=True)
class Undo:
    """What the last change of several ranks did, to be taken back where one did not follow."""

    mark: str
    """Names the change."""
    knobs: Knobs
    """In force before."""
    lease: LeaseRecord | None
    breaker: str | None
    """The word that brings it back to where it was; None where there was none to it."""


class Control:
    """Applies changes to one `Engine`, takes them back when they run out, and answers for it."""

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
        board: Board | None = None,
    ) -> None:
        """`clock` and `wall` give seconds: monotonic, and Unix time."""
        self._engine = engine
        self._identity = identity
        self._instance = instance
        self._exact = tuple(exact)
        self._board = board
        self._clock = clock
        self._wall = wall
        self._started = wall()
        self._steering = Steering(engine, identity, orchestration=orchestration, wall=wall)
        self._turns = 0
        self._leases = Leases(self._steering, self._turn, clock=clock)
        self._trials = Trials(
            self._steering, self._turn, self._leases.take_back, clock=clock, wall=wall
        )
        self._by: str | None = None
        """Who opened or reset the breaker by hand last."""
        self._last_change: LastChange | None = None
        self._undo: Undo | None = None
        """Of the last change, where the engine is one of several ranks."""
        self._begin(orchestration)
        engine.watch(self)

    @classmethod
    def over(cls, core: Any) -> Self:
        """Takes hold of `core`, a vLLM EngineCore; called once, before traffic."""
        engine = CoreEngine(core)
        instance = secrets.token_hex(8)
        identity, board = identify(core, engine.build, instance)
        return cls(
            engine,
            identity,
            instance=instance,
            orchestration=orchestration(os.environ),
            clock=time.monotonic,
            wall=time.time,
            exact=exact_models(os.environ),
            board=board,
        )

    def _begin(self, orchestration: Mapping[str, Any]) -> None:
        """Starts the policy that the config asks for; says what of it makes no sense."""
        for block, reason in self._steering.wrong.items():
            logger.warning("specdeck uses its default %s parameters: %s", block, reason)
        build = self._engine.build
        if build.own_schedule and build.drafts_all_or_none:
            why = self._steering.can(INTERMEDIATE_K).reason
            logger.warning("specdeck replaces the configured k by batch size: %s", why)
        if not orchestration.get("adaptive_draft"):
            return
        body = {
            "policy": orchestration.get("policy") or "goodput",
            "who": "config",
            "reason": "orchestration.adaptive_draft",
            "origin": "config",
        }
        try:
            self.change(Change.from_json(body))
        except (Refusal, InvalidChange) as refusal:
            logger.warning("specdeck leaves k alone: %s", refusal)

    def answer(self, command: str, payload: Any) -> dict[str, Any]:
        """The reply as JSON; a refusal carries its HTTP `status` beside the `error`."""
        try:
            return self._reply(command, payload)
        except Refusal as refusal:
            return {**refusal.as_json(), "status": refusal.status}

    def _reply(self, command: str, payload: Any) -> dict[str, Any]:
        if command == "state":
            return self.state().as_json()
        if command == "tuning":
            return self.tuning().as_json()
        if command == "steps":
            return {"steps": self._engine.steps(payload, PAGE)}
        if command == "requests":
            found = self._engine.active_requests()
            return {**found, "instance": self._instance, "t": self._wall()}
        if command == "cpu":
            times = self._engine.cpu_times()
            return {"cpu": None if times is None else asdict(times)}
        if command == "cohorts":
            return {**self._engine.cohorts(), "instance": self._instance, "t": self._wall()}
        if command == "facts":
            return {**self.facts(), "instance": self._instance}
        if command == "board":
            return {"path": self._board.path if self._board else None, "instance": self._instance}
        if command == "change":
            if time.time() > payload["until"]:
                # Whoever asked has been told that there was no answer.
                raise Refusal(503, "late", "the engine core got to it too late; nothing changed")
            return asdict(self._change_marked(Change(**payload["change"]), payload.get("mark")))
        if command == "take_back":
            return {"taken_back": self.take_back(payload["mark"])}
        if command == "serving":
            self._identity.add("serving", payload["facts"], payload["unread"])
            return {}
        if command == "join":
            self.join()
            return {}
        if command == "calibrate":
            if time.time() > payload["until"]:
                raise Refusal(503, "late", "the engine core got to it too late; nothing was run")
            return self.calibrate(StepShape(**payload["shape"])).as_json()
        raise Refusal(400, "invalid", f"unknown command {command!r}")

    def before_step(self) -> None:
        """Takes back what has run out; called before every step and every answer."""
        self._leases.tick()
        self._trials.tick()

    def after_step(self, step: Step) -> None:
        """Learns from a step; called after every one."""
        self._steering.step(step)
        self._trials.step(step)

    def on_blind(self) -> None:
        """No step is seen any more: a trial ends, and k is the operator's again."""
        why = "specdeck failed at watching the steps; the engine's log says why"
        self._trials.cancel(why)
        self._steering.go_blind(why)
        self._leases.forget_policy()
        fixed = replace(self._steering.knobs, policy="fixed")
        self._turn(fixed, who="specdeck", reason=why, origin="policy")

    def on_new_weights(self) -> None:
        """The path has another name from now on, for responses as well."""
        self._steering.name()

    def _look(self) -> None:
        """Brings everything that goes by time up to this moment."""
        self.before_step()
        self._steering.look(self._clock())

    @property
    def _version(self) -> int:
        return self._turns + self._trials.moves

    def change(self, change: Change) -> AppliedChange:
        """Applies `change` at once; raises Refusal and changes nothing otherwise."""
        self._look()
        self._require_current(change)
        lease, trial = self._leases.running, self._trials.running
        self._steering.require(
            change,
            now=trial.back if trial else self._steering.knobs,
            later=lease.back if lease else None,
        )
        step = self._engine.tally().step
        if change.renew or change.cancel:
            return self._hold(change, step)
        if change.judge:
            touched = self._steering.touched_names(change)
            was = self._steering.pick(touched)
            notices = self._trials.begin(change) + self._warn_of_breaker(change)
            found, number = self._steering.pick(touched), self._trials.number
            return AppliedChange(
                was, found, self._version, step, notices, number, instance=self._instance
            )
        who = change.who or "unknown"
        notices = self._trials.cancel(f"{who} changed the engine")
        before, turns = self._steering.knobs, self._turns
        touched = self._steering.touched_names(change)
        was = self._steering.pick(touched)
        undoing = {**self._undo_lease(change, lease), **self._steering.undo_breaker(change)}
        wanted = before.with_change(change)
        if wanted.policy != before.policy and change.policy is None:
            notices += (f"policy {before.policy} → fixed: the operator sets k again",)
        notices += self._turn(wanted, who=who, reason=change.reason, origin=change.origin)
        notices += self._leases.lend(change, before)
        notices += self._turn_breaker(change, was, who)
        found, undo = self._steering.pick(touched), {**was, **undoing} if undoing else None
        if undo is not None and self._last_change is not None and self._turns != turns:
            self._last_change = replace(self._last_change, undo=undo)
        return AppliedChange(
            was, found, self._version, step, notices, undo=undo, instance=self._instance
        )

    def _undo_lease(self, change: Change, lease: LeaseRecord | None) -> dict[str, Any]:
        """What undoing `change` sets over a lease: what that goes back to.

        What it has lent, such as a k that a sweep visits, was to be for a while.
        """
        if lease is None:
            return {}
        return self._steering.pick(self._steering.touched_names(change, lease.back), lease.back)

    def join(self) -> None:
        """Ends what this rank would do on its own: it is one of several that stay alike."""
        steering = self._steering
        if steering.together is not None:
            return
        if steering.can("live_k").available:
            logger.warning("specdeck chooses no k by itself: %s", _ALONE.reason)
            automatic = {"breaker.automatic": "never"}
            change = Change(
                parameters=automatic, who="specdeck", reason=_ALONE.reason, origin="config"
            )
            ends = steering.knobs.policy != "fixed"
            self.change(replace(change, policy="fixed") if ends else change)
        steering.join(_ALONE)

    def calibrate(self, shape: StepShape) -> DummySteps:
        """Makes dummy steps, and has the policy's cost model learn from them.

        Raises Refusal where they would tell nothing true, and while the engine is not idle.
        """
        steering, build = self._steering, self._engine.build
        able = steering.can("calibration")
        if not able.available or steering.runner is None:
            raise inability(able)
        if shape.k > build.k_max or (not shape.k and not steering.can("target_only").available):
            lowest = 0 if steering.can("target_only").available else 1
            raise nonsense(f"k is {lowest} to {build.k_max}, not {shape.k}")
        rows = build.rows(shape.batch, shape.k)
        if shape.batch > build.seats or rows > build.step_tokens:
            drafting = f", {shape.batch * build.draft_slots} of them the drafter's"
            raise nonsense(
                f"a step of this engine has at most {build.seats} requests and "
                f"{build.step_tokens} tokens, not {shape.batch} and {rows}"
                f"{drafting if build.draft_slots else ''}"
            )
        if steering.knobs.cold:
            message = "the drafter is left out of steps (cold), and would not be timed"
            raise Refusal(409, "cold", message, "leave target-only, or use the warm fallback")
        if not self._engine.is_idle():
            raise Refusal(
                409, "busy", "the engine has requests, and dummy steps would hold them up",
                "take it out of the traffic, or calibrate it before it gets any",
            )  # fmt: skip
        made = self._engine.make_dummy_steps(shape.batch, shape.k, shape.steps)
        times, here = steering.runner.estimates.times, bucket(shape.batch)
        if made.seconds:
            times.add_dummies(here, shape.batch, shape.k, made.seconds)
        both = times.compare_with_dummies(here, shape.k)
        return DummySteps(
            self._instance, shape.batch, shape.k, made.seconds, made.interrupted,
            None if both is None else both[1],
        )  # fmt: skip

    def _change_marked(self, change: Change, mark: str | None) -> AppliedChange:
        """`change`, which `take_back` undoes where it bears a mark."""
        if mark is None:
            return self.change(change)
        self._look()
        undo = Undo(
            mark,
            self._steering.knobs,
            self._leases.running,
            None if change.breaker is None else self._steering.breaker_word,
        )
        applied = self.change(change)
        self._undo = undo
        return applied

    def take_back(self, mark: str) -> bool:
        """Undoes the change of this mark if it was the last; whether it was."""
        undo = self._undo
        if undo is None or undo.mark != mark:
            return False
        self._undo = None
        who, reason = "specdeck", "another rank did not follow"
        self._turn(undo.knobs, who=who, reason=reason, origin="undo")
        self._leases.running = undo.lease
        if undo.breaker is not None:
            word: Literal["open", "closed"] = "closed" if undo.breaker == "closed" else "open"
            back = Change(breaker=word, probe=undo.breaker == "probe", reason=reason, origin="undo")
            self._turn_breaker(back, self._steering.pick(["breaker"]), who)
        return True

    def _require_current(self, change: Change) -> None:
        """Refuses what somebody else was faster than."""
        last, lease, trial = self._last_change, self._leases.running, self._trials.running
        if change.expect_version is not None and change.expect_version != self._version:
            raise conflict(self._version, last.who if last else "specdeck")
        held = lease is not None or trial is not None
        if (change.renew or change.cancel) and not held:
            text = "no lease and no trial is under way: it has ended, or there was none"
            raise Refusal(409, "version", text, "read the engine's state")
        if change.judge and held:
            whose = f"{trial.who}'s trial" if trial else "a lease"
            text = f"specdeck: {whose} is under way, and there is one at a time"
            raise conflict(self._version, text)
        if lease is not None and change.lease_s and not (change.renew or change.judge):
            is_other = None not in (lease.who, change.who) and lease.who != change.who
            if is_other or lease.origin != change.origin:
                # It would end with this one, sooner or later than its owner was told.
                whose = f"{lease.who or 'somebody'}'s"
                raise Refusal(
                    409, "lease",
                    f"{whose} {'sweep' if lease.origin == 'sweep' else 'lease'} is under way, and"
                    " there is one lease at a time",
                    "wait until it ends, or change the engine without a lease",
                )  # fmt: skip

    def _hold(self, change: Change, step: int) -> AppliedChange:
        """Renews or takes back what is leased or on trial."""
        lease, trial = self._leases.running, self._trials.running
        if change.trial is not None and (trial is None or trial.number != change.trial):
            raise conflict(self._version, f"specdeck (trial {change.trial} has ended)")
        who = change.who or "unknown"
        tried = trial is not None and change.cancel
        before = (trial.wanted if trial and tried else self._steering.knobs).as_dict()
        if trial is not None and change.cancel:
            self._trials.cancel(change.reason or f"cancelled by {who}")
        elif trial is not None:
            trial.trial.renew(self._clock(), change.lease_s or 0.0)
        elif lease is not None and change.cancel:
            self._leases.take_back(lease.back, who=who, reason=change.reason, origin=change.origin)
        elif lease is not None:
            self._leases.renew(change.lease_s or 0.0)
        present = self._steering.knobs.as_dict()
        turned = {name: value for name, value in present.items() if before.get(name) != value}
        was = {name: before.get(name) for name in turned}
        return AppliedChange(was, turned, self._version, step, instance=self._instance)

    def _turn_breaker(self, change: Change, was: Mapping[str, Any], who: str) -> tuple[str, ...]:
        """Opens or resets the breaker by hand; says so where it is in the way."""
        steering = self._steering
        if change.breaker is None:
            return self._warn_of_breaker(change)
        steering.turn_breaker(change, who=who)
        self._by = who
        self._turns += 1
        knobs = steering.knobs.as_dict()
        before, after = {**knobs, **was}, {**knobs, "breaker": change.breaker}
        self._last_change = LastChange(
            self._wall(), who, change.reason, before, after, change.origin
        )
        if change.breaker == "open" and steering.knobs.mode == "target-only":
            return ("mode is target-only already: the breaker stays open when that ends",)
        return ()

    def _warn_of_breaker(self, change: Change) -> tuple[str, ...]:
        """Says so where the breaker keeps a k from taking effect."""
        runner = self._steering.runner
        if change.k is None or runner is None or not runner.bypassed:
            return ()
        state = runner.breaker.state
        return (f"the breaker is {state}: k takes effect when it is reset (breaker=closed)",)

    def _turn(
        self,
        knobs: Knobs,
        *,
        who: str,
        reason: str | None,
        origin: Origin,
        before: Knobs | None = None,
    ) -> tuple[str, ...]:
        """Makes `knobs` the engine's and remembers who did, and where it came from."""
        ended, why = before or self._steering.knobs, reason or f"by {who}"
        notices = self._steering.turn(knobs, why=why, who=who, origin=origin, before=before)
        if knobs != ended:
            self._turns += 1
            was, present = ended.as_dict(), knobs.as_dict()
            # What was set for the first time was as the engine was started with it.
            first = [name for name in knobs.parameters if name not in was]
            was |= {name: self._steering.configured.value(name) for name in first}
            self._last_change = LastChange(self._wall(), who, reason, was, present, origin)
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
        knobs, runner, judged = steering.knobs, steering.runner, self._trials.running
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
            breaker=runner.breaker.state if runner else "closed",
            policy_reason=runner.reason_in_words if runner else None,
            alarm=runner.alarm_in_words if runner else None,
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
            trial=judged.trial.state if judged else None,
            fingerprint=steering.name(),
            full_graphs=build.graph_reach,
            capabilities=lose_pins(steering.capabilities)
            if tally.pins_failed
            else steering.capabilities,
            lease=judged.lease() if judged else self._leases.describe(),
            last_change=self._last_change,
        )

    def tuning(self) -> Tuning:
        """What the policy, the breaker and the trial are at."""
        self._look()
        tally = self._engine.tally()
        exact = Exact(self._exact, tally.exact_requests, tally.exact_tokens, tally.exact_running)
        return replace(
            describe_tuning(self._steering, by=self._by, instance=self._instance, t=self._wall()),
            version=self._version,
            trial=self._trials.last.as_reply() if self._trials.last else None,
            exact=exact,
            exact_reason=PINS_FAILED if tally.pins_failed else None,
            resting=tally.resting,
        )


def answer_call(core: Any, command: str, payload: str) -> str:
    """The engine core's utility method `specdeck`: JSON in, JSON out, on its main thread.

    A refusal is a value, and so is a failure: an exception here would keep the engine from
    starting, and later fail nothing but log a traceback for each look at it. Anybody may look, so
    that one failure a minute is logged.
    """
    try:
        control = getattr(core, _CONTROL, None)
        if control is None:
            control = _take_hold(core)
        if isinstance(control, str):
            raise RuntimeError(control)
        return json.dumps(control.answer(command, json.loads(payload)))
    except Exception as error:
        if _is_due(core):
            logger.exception("specdeck failed at %s; the engine continues", command)
        message = f"specdeck failed in the engine: {type(error).__name__}: {error}"
        return json.dumps({"error": {"code": "failed", "message": message}, "status": 500})


def _is_due(core: Any) -> bool:
    """Whether a failure is to be logged: none was of late."""
    now, last = time.monotonic(), getattr(core, _LOGGED, None)
    if last is not None and now - last < QUIET_S:
        return False
    setattr(core, _LOGGED, now)
    return True


def _take_hold(core: Any) -> Control:
    """The control over `core`; tried once, since each try would wrap the scheduler again."""
    setattr(core, _CONTROL, "it could not start; the engine's log says why")
    control = Control.over(core)
    setattr(core, _CONTROL, control)
    return control


def orchestration(environment: Mapping[str, str]) -> dict[str, Any]:
    """The config's `orchestration` block as the launcher handed it over.

    >>> orchestration({"SPECDECK_ORCHESTRATION": '{"min_draft_length": 2}'})
    {'min_draft_length': 2}
    >>> orchestration({}), orchestration({"SPECDECK_ORCHESTRATION": "{"})
    ({}, {})
    """
    try:
        found = json.loads(environment.get(ORCHESTRATION_VARIABLE) or "{}")
    except ValueError:
        logger.warning("%s is not JSON: every parameter has its default", ORCHESTRATION_VARIABLE)
        return {}
    return found if isinstance(found, dict) else {}
