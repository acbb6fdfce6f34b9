"""Bypasses speculation while it does not pay, and finds out when it does again.

    closed ── N poor windows, a breach, by hand ──▶ open ── cool-down over ──▶ half-open
      ▲                                              ▲                            │
      └────────── M good windows ────────────────────┼────────────────────────────┤
                                                     └── a poor one: cool-down x2 ┘

A window is poor when speculation was slower than measured target-only, when too little of a
draft was accepted without being measured to pay, or when the policy itself found no k
that pays. Opened by the policy's own finding it leaves trying to the policy, which knows what
that costs, and closes when it finds a k. What closes the breaker is a gain, what opens it a loss:
between the two it stays as it is, so an engine at the edge does not flap.
"""

from __future__ import annotations

from typing import Literal

from specdeck.engine.policy.estimates import Estimates
from specdeck.engine.policy.evidence import (
    Meter,
    WindowEvidence,
    judge_probes,
    judge_run,
    judge_window,
)
from specdeck.engine.policy.parameters import BreakerParameters
from specdeck.engine.policy.reason import Reason, Repetition, Unjudged
from specdeck.engine.policy.step import Elapsed, Step
from specdeck.engine.protocol.messages import Breaker as State
from specdeck.engine.protocol.tuning import BreakerTuning

Cause = Literal["loss", "acceptance", "policy", "divergence", "hand", "probe"]

_BURST_STEPS = 8
"""Steps in a row that speculate while it is half-open: the first of them only drafts."""
_PROBE_STEPS = 6
"""Settled speculating steps that a look at a half-open breaker rests on: those of a burst whose
first step only drafts, and whose k settles two steps late where scheduling is asynchronous."""
_WINDOW_STEPS = 10
_CHEAP = 0.5
"""The most steps that speculate while it is half-open without a sign that it pays, as a share."""
_OVERDUE = 3.0
"""Cycles without a look, as of steps that all carry prompts, after which fewer steps try."""
_UNJUDGED_S = 2.0
"""Longest cool-downs for which it is half-open without a step that could be compared."""
_UNMEASURED = 2.0
"""Times the windows that open it without a comparison, after which one is overdue."""
_MOST_PROBES = 60
"""Verdicts put off in half-open until there must be one."""
_BYPASSED = 0.8
"""The share of a window's steps for which the policy's own choice was k = 0."""
_FORGETS = 0.95
"""What a window leaves of the spread of single steps that was seen before."""
_CALM_S = 60.0
"""Closed for so long, it is as if it had never opened; before, it wants twice the windows."""


class Breaker:
    """One for each engine; sees every step, whatever the policy."""

    def __init__(self, parameters: BreakerParameters, estimates: Estimates) -> None:
        self.parameters = parameters
        self.state: State = "closed"
        self._estimates = estimates
        self._meter = Meter(estimates)
        self._elapsed = Elapsed(parameters.cooldown_max_s)
        self._since = 0.0
        self._cooldown = parameters.cooldown_s
        self._held = False
        self.cause: Cause | None = None
        """What opened it last; None before it ever opened."""
        self.reason: Reason | None = None
        """The same with figures."""
        self._evidence: WindowEvidence | None = None
        self._run: WindowEvidence | None = None
        """The poor windows in a row, or the probes so far, as one."""
        self._spread = 0.0
        self._tries = parameters.share
        """Of the steps while it is half-open, those that speculate."""
        self._calm = True
        self._compared_at = 0.0
        self._poor = self._probes = self._opened = self._high = 0
        self._bypassed = self._speculated = self._cycle = self._unjudged = 0
        self.alarm: Repetition | None = None

    @property
    def speculates(self) -> bool:
        """Whether the next step may draft."""
        if self.state == "closed":
            return True
        return self.state == "half-open" and self._cycle < _BURST_STEPS

    @property
    def held(self) -> bool:
        """Whether it is open until it is reset."""
        return self._held and self.state == "open"

    @property
    def defers(self) -> bool:
        """Whether it is open because the policy found no k that pays: then that goes on trying."""
        return self.state == "open" and self.cause == "policy" and not self._held

    def step(
        self, step: Step, *, bypassed: bool, automatic: bool = True, moved: bool = False
    ) -> None:
        """Takes in a step; `bypassed` says that the policy's own choice for it was k = 0.

        `moved` says that a policy that knows what k costs has chosen another since the breaker
        opened: what was measured to lose is not its choice any more. Unless it is `automatic`
        windows are measured and never open it.
        """
        now, state = self._elapsed.at(step.t), self.state
        if state == "closed":
            self._meter.add(step)
            self._bypassed += bypassed
            self._speculated += step.verified > 0
            if self._meter.seconds >= self.parameters.window_s:
                self._close_window(automatic=automatic)
            return
        if state == "open":
            if self.defers:
                if not bypassed:
                    self._turn("closed")
            elif moved and not self._held and self.cause in ("loss", "acceptance"):
                self._turn("closed")
            elif not self._held and now - self._since >= self._cooldown:
                self._turn("half-open")
            return
        if moved and self.cause in ("loss", "acceptance"):
            self._turn("closed")
            return
        self._probe(step)

    def look(self, t: float) -> None:
        """Has time pass to `t` without a step; a cool-down that is over ends with the next one."""
        self._elapsed.at(t)

    def trip(self, cause: Cause, reason: Reason, *, hold: bool) -> None:
        """Opens it from outside; `hold` keeps it open until it is reset.

        A breach of divergence is held: no probe of speed could show that it is over.
        """
        self._held = hold
        self._open(cause, reason)

    def reset(self) -> None:
        """Closes it by hand, with the first cool-down ahead again."""
        self._held = False
        self._calm = True
        self._turn("closed")

    def view(self, *, automatic: bool = True, by: str | None = None) -> BreakerTuning:
        """What there is to show; `by` opened or reset it by hand last."""
        since, evidence = self._elapsed.seconds - self._since, self._evidence
        waits = self.state == "open" and not (self._held or self.defers)
        return BreakerTuning(
            state=self.state,
            automatic=automatic,
            reason=None if self.reason is None else str(self.reason),
            cause=self.cause,
            evidence=None if evidence is None else str(evidence),
            window_s=None if evidence is None else evidence.seconds,
            acceptance=None if evidence is None else evidence.acceptance,
            gain=None if evidence is None else evidence.gain,
            since_s=since,
            next_probe_s=max(0.0, self._cooldown - since) if waits else None,
            cooldown_s=self._cooldown,
            held=self.held,
            by=by,
            opened=self._opened,
            alarm=None if self.alarm is None else str(self.alarm),
        )

    def retune(self, parameters: BreakerParameters) -> None:
        """Goes on by other parameters; what was counted so far stays."""
        self.parameters = parameters
        self._elapsed.leap_s = parameters.cooldown_max_s
        self._cooldown = min(max(self._cooldown, parameters.cooldown_s), parameters.cooldown_max_s)

    def silence(self) -> None:
        """Takes the alarm back: what repeats itself shows in drafts only, and there are none."""
        self._high, self.alarm = 0, None

    def _close_window(self, *, automatic: bool) -> None:
        """Judges a window of the closed breaker."""
        evidence = self._meter.evidence()
        bypassed = self._bypassed >= _BYPASSED * evidence.steps
        if not self._speculated:
            self.silence()
        if self._speculated < _WINDOW_STEPS and not bypassed:
            if evidence.steps > 10 * _WINDOW_STEPS:
                self._begin_window()
            return
        self._evidence = evidence
        if evidence.compared:
            self._compared_at = self._elapsed.seconds
        self._watch_repetition(evidence)
        verdict = judge_window(evidence, self.parameters, bypassed=bypassed)
        # A poor window may hold two kinds of text, which deviate more than either does.
        spread = 0.0 if verdict.weight else evidence.spread or 0.0
        self._spread = max(_FORGETS * self._spread, spread)
        self._begin_window()
        if not automatic:
            self._poor, self._run = 0, None
            return
        if not verdict.weight:
            self._poor, self._run = 0, None
            if self._elapsed.seconds - self._since > _CALM_S:
                self._calm = True
            return
        self._poor += verdict.weight
        run = self._run = evidence if self._run is None else self._run + evidence
        if self._poor < self.parameters.windows * (1 if self._calm else 2):
            return
        unmeasured = self._elapsed.seconds - max(self._compared_at, self._since)
        overdue = unmeasured >= _UNMEASURED * self.parameters.windows * self.parameters.window_s
        found = judge_run(
            run, self.parameters, spread=self._spread, bypassed=bypassed, overdue=overdue
        )
        if found is not None:
            self._evidence = run
            self._open(found.cause or "loss", found.reason)

    def _probe(self, step: Step) -> None:
        """Counts a step of the half-open breaker; the settled speculating ones are judged."""
        self._cycle += 1
        cycle_steps = _BURST_STEPS / self._tries
        if self._cycle >= cycle_steps:
            self._cycle = 0
        self._unjudged += 1
        if self._unjudged > _OVERDUE * cycle_steps:
            self._tries = self.parameters.share
        if self._estimates.shifted:  # what was tried before says nothing of the present text
            self._run, self._probes = None, 0
            self._tries = min(self._tries, _CHEAP)
            self._begin_window()
        if self._tried_in_vain():
            return
        if not (step.verified and step.settled):
            return
        self._meter.add(step)
        self._speculated += 1
        if self._speculated < _PROBE_STEPS:
            return
        evidence = self._meter.evidence()
        self._begin_window()
        run = self._run = evidence if self._run is None else self._run + evidence
        self._probes += 1
        self._evidence = run
        if evidence.compared:
            self._compared_at = self._elapsed.seconds
        last = self._probes >= _MOST_PROBES
        self._unjudged = 0
        # At a batch size where target-only was never measured, it has to be first.
        self._tries = self._share(run) if evidence.compared else self.parameters.share
        verdict = judge_probes(run, self.parameters, spread=self._spread, last=last)
        if verdict is None:
            return
        if verdict.weight:
            self._cooldown = self._longer(run)
            self._turn("open")
            self.reason = verdict.reason
        elif self._probes >= self.parameters.good_probes:
            self._turn("closed")

    def _tried_in_vain(self) -> bool:
        """Opens it again when nothing could be compared for long."""
        passed = self._elapsed.seconds - max(self._since, self._compared_at)
        if passed < _UNJUDGED_S * self.parameters.cooldown_max_s:
            return False
        reason = Unjudged(passed, speculated=self._run is not None)
        self._cooldown = min(2 * self._cooldown, self.parameters.cooldown_max_s)
        self._turn("open")
        self.reason = reason
        return True

    def _share(self, run: WindowEvidence) -> float:
        """Of the steps of a half-open breaker, those that speculate.

        More where that costs less, and all of them once it seems to pay: to wait costs then.
        """
        parameters, gain = self.parameters, run.gain
        if gain is None:
            return parameters.share
        error = run.gain_error(spread=self._spread)
        if error is not None and gain > error:
            return 1.0
        paid = parameters.probe_cost / -gain if gain < 0 else 1.0
        return max(parameters.share, min(_CHEAP, paid))

    def _longer(self, run: WindowEvidence) -> float:
        """Twice the cool-down, unless probes as cheap as this one can come as often as before."""
        parameters = self.parameters
        lost = -run.saved_s if run.compared else run.seconds
        dear = max(parameters.cooldown_s, lost / parameters.probe_cost)
        return min(2 * self._cooldown, dear, parameters.cooldown_max_s)

    def _open(self, cause: Cause, reason: Reason) -> None:
        if self.state == "closed":
            self._opened += 1
            again = min(2 * self._cooldown, self.parameters.cooldown_max_s)
            self._cooldown = self.parameters.cooldown_s if self._calm else again
            self._calm = False
        self.cause, self.reason = cause, reason
        self._turn("open")

    def _turn(self, state: State) -> None:
        self.state, self._since = state, self._elapsed.seconds
        self._poor = self._probes = self._cycle = self._unjudged = 0
        self._tries = self.parameters.share
        self._run = None
        self.silence()
        self._begin_window()

    def _begin_window(self) -> None:
        self._meter.clear()
        self._bypassed = self._speculated = 0

    def _watch_repetition(self, evidence: WindowEvidence) -> None:
        acceptance = evidence.acceptance
        if acceptance is None:
            return
        high = acceptance > self.parameters.repetition
        self._high = self._high + 1 if high else 0
        if self._high >= self.parameters.repetition_windows:
            self.alarm = Repetition(acceptance, self._high)
        elif not high:
            self.alarm = None
