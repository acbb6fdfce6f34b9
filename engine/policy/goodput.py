"""The k of most committed tokens per second, for every batch size.

A step at k gives each request 1 + the expected accepted tokens, from acceptance by
position, and takes what steps at that batch size and k were measured to take. Both sides
are in the comparison: acceptance alone says nothing of cost. k = 0 is one of the choices
and is measured regularly, so speculation that does not pay is left. Other k's are tried a
few steps at a time, paid from a budget of lost output.
"""

from __future__ import annotations

from math import exp, log, sqrt
from operator import truediv

from specdeck.engine.policy.estimates import Estimates
from specdeck.engine.policy.parameters import GoodputParameters, ParameterError
from specdeck.engine.policy.reason import MoreTokens
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import BUCKETS, Decision, bucket, everywhere

_OPTIMISM = 1.5
"""Standard errors by which another k is given the benefit of the doubt when a try is due."""
_BASELINE_SHARE = 0.3
"""Of what exploring may cost, the part that measuring target-only takes while it is far behind."""
_BLIND = 10
"""How often more a draft is tried where target-only is the choice, which says nothing of the text,
as long as that is cheap."""
_BLIND_SHARE = 0.6
"""Of what exploring may cost, the part that this takes."""
_OFTEN = 0.5
"""Recent changes of text from which tries beside target-only are paid from no budget."""
_RESTLESS, _SCOUT = 1.5, 0.9
"""Recent changes from which k = 1 is chosen in place of target-only, and the rate, as a share of
target-only's, that it must have for that."""
_SHIFTS_S = 10.0
_SHIFTING, _MOST_BLIND = 10.0, 0.1
"""By how much more each change of text in the last ten seconds or so allows, and the largest share
of the output: where text changes often, it pays to see the next change soon."""
_TIMED_STEPS = 8
_SETTLED_STEPS = 24.0
"""Steps at a batch size before target-only is measured there."""
_SWITCH = 0.03
"""What a try costs at least, as a share of its steps: the step that changes k is mixed."""
_RESERVE_STEPS = 250
"""The output that may be saved up for tries, in steps' worth of the budget's share."""


class Goodput:
    """Chooses k by batch size from `estimates`; a little of the output pays for trying."""

    def __init__(self, parameters: GoodputParameters, estimates: Estimates, *, k: int) -> None:
        self.parameters = parameters
        self._estimates = estimates
        highest = parameters.max_draft_length
        self._high = estimates.k_max if highest is None else min(highest, estimates.k_max)
        self._low = min(parameters.min_draft_length, self._high)
        if self._high < 1:
            raise ParameterError("k_max=0: there is nothing to choose from")
        self.visits_zero = self._low == 0
        first = min(max(k, self._low), self._high)
        self._chosen = [first] * BUCKETS
        self._visited = [False] * BUCKETS
        self._changed = [float("-inf")] * BUCKETS
        self._prober = Prober(parameters.explore, parameters.probe_steps)
        self._steps = 0
        self._probing = False
        self._here = 0
        self._shifts = self._shifted_at = 0.0
        self.decision = everywhere(first)
        self.reason: MoreTokens | None = None
        """Why k moved last."""
        self.reasons = 0
        """How often k moved."""

    def step(self, step: Step, *, steering: bool = True) -> Decision:
        """The k's after a step that `estimates` has taken in.

        While it is not `steering`, because the breaker is open, it goes on learning but
        tries nothing.
        """
        self._steps += 1
        if not self._estimates.closed:
            return self.decision
        here, steps, self._steps = self._estimates.bucket, self._steps, 0
        self._prober.earn(steps)
        trying = self._prober.goes_on(here, steps)
        if not steering:
            self._prober.stop()
        elif trying:
            return self.decision
        if self._estimates.shifted:
            self._shifts, self._shifted_at = self._recent_shifts() + 1, self._estimates.now
        rates = self._rates(here)
        if rates is None:
            return self.decision
        moved = self._choose(here, rates)
        tried = self._try(here, rates) if steering else None
        if moved or tried is not None or self._probing or here != self._here:
            self._probing, self._here = tried is not None, here
            self._decide(self._chosen[here] if tried is None else tried)
        return self.decision

    def _decide(self, k: int) -> None:
        """`k` at the present batch sizes and those beside, so that a few more or less end no try.

        A k that changed from step to step would never show what it costs.
        """
        table, here = list(self._chosen), self._here
        table[max(0, here - 1) : here + 2] = [k] * len(table[max(0, here - 1) : here + 2])
        self.decision = Decision(tuple(table), probing=self._probing, reason=self.reason)

    def speculating(self, requests: int) -> int:
        """The best k above 0: what to try where target-only is in force."""
        here = bucket(requests)
        rates = self._rates(here)
        lowest = max(1, self._low)
        if rates is None:
            return max(lowest, self._chosen[here])
        return _best(rates, lowest, self._high)

    def chosen(self, requests: int) -> int:
        """The choice for a batch size, whatever is being tried."""
        return self._chosen[bucket(requests)]

    def choice(self, here: int) -> int:
        """Its k at the batch sizes of the bucket `here`, whatever is being tried."""
        return self._chosen[here]

    def _rates(self, here: int) -> list[float] | None:
        """Expected tokens of a request per second, by k."""
        known = self._estimates
        costs = known.costs(here)
        if costs is None:
            return None
        return list(map(truediv, known.acceptance.expected, costs[0]))

    def _errors(self, here: int) -> list[float]:
        costs = self._estimates.costs(here)
        assert costs is not None
        return costs[1]

    def _error(self, errors: list[float], k: int, other: int) -> float:
        """Relative standard error of the ratio of two k's, given those of their times."""
        acceptance = self._estimates.acceptance
        low, high = min(k, other), max(k, other)
        tokens = acceptance.error(low, high) / acceptance.expected[high]
        return sqrt(tokens**2 + errors[k] ** 2 + errors[other] ** 2)

    def _choose(self, here: int, rates: list[float]) -> bool:
        """Moves the choice if enough is expected of it; whether it moved."""
        now, parameters = self._estimates.now, self.parameters
        present = self._chosen[here]
        best = _best(rates, self._low, self._high)
        if not best and rates[1] > _SCOUT * rates[0] and self._recent_shifts() > _RESTLESS:
            best = 1  # target-only would not see the next change of text
        fresh = not self._visited[here]
        self._visited[here] = True
        if best == present:
            return False
        gain = log(rates[best] / rates[present])
        errors = self._errors(here)
        doubt = parameters.confidence * self._error(errors, best, present)
        waited = now - self._changed[here] >= parameters.dwell_s
        if not (fresh or waited or self._estimates.shifted) or gain < parameters.margin + doubt * (
            not fresh
        ):
            return False
        self._explain(here, present, best, rates)
        self._changed[here] = now
        self._chosen[here] = best
        self._choose_elsewhere()
        return True

    def _choose_elsewhere(self) -> None:
        """What is expected to be best at batch sizes that were not there yet."""
        known = self._estimates
        expected, shapes = known.acceptance.expected, known.shapes()
        for other, visited in enumerate(self._visited):
            if not visited:
                shape = shapes[other]
                found = self._rates(other) if shape is None else list(map(truediv, expected, shape))
                assert found is not None
                self._chosen[other] = _best(found, self._low, self._high)

    def _try(self, here: int, rates: list[float]) -> int | None:
        """The k to try next, or None."""
        present = self._chosen[here]
        if self._estimates.times.steps(here, present) < _TIMED_STEPS / 2:
            return None  # what is not known is the present k
        wanted = self._due(here, rates)
        if wanted is not None and not present and self._recent_shifts() > _OFTEN:
            self._prober.begin(here)  # what it may cost is in when it is due
            return wanted
        if not self._prober.affords(1 - max(rates) / rates[present]):
            return None  # nor could any other k be paid
        if wanted is None:
            wanted = self._promising(here, rates)
        if wanted is None:
            return None
        loss = 1 - rates[wanted] / rates[present]
        return wanted if self._prober.start(here, loss) else None

    def _due(self, here: int, rates: list[float]) -> int | None:
        """Target-only whose time is old; or a draft, where target-only is the choice."""
        times, now = self._estimates.times, self._estimates.now
        present = self._chosen[here]
        lowest = max(1, self._low)
        other = 0 if present else _best(rates, lowest, self._high)
        if other < self._low:
            return None
        last = times.last(here, other)
        if last is None:  # a batch size that is only passed through is not worth it
            return other if times.steps(here, present) >= _SETTLED_STEPS else None
        shifts = 0.0 if present else self._recent_shifts()
        wait = self.parameters.baseline_s / (1 if present else _BLIND * (1 + shifts))
        if now - last < wait:
            return None
        if explore := self.parameters.explore:
            spent = self.parameters.probe_steps * (times.seconds(here, other) or 0.0)
            lost = spent * max(0.0, 1 - rates[other] / rates[present])
            share = _BASELINE_SHARE if present else _BLIND_SHARE * (1 + _SHIFTING * shifts)
            wait = max(wait, lost / min(share * explore, _MOST_BLIND))
        return other if now - last >= wait else None

    def _recent_shifts(self) -> float:
        """How often the text changed of late."""
        return self._shifts * exp((self._shifted_at - self._estimates.now) / _SHIFTS_S)

    def _promising(self, here: int, rates: list[float]) -> int | None:
        """The other k that could be best, given what is not known of it."""
        present = self._chosen[here]
        errors = self._errors(here)
        found, most = None, self.parameters.margin
        for k in range(self._low, self._high + 1):
            if k == present or (self._probing and (k < present or errors[k] <= errors[present])):
                continue  # what is in doubt shows at the present k as well, or better
            # What trying it would teach: its time, and how often what is deeper is accepted.
            doubt = self._error(errors, k, present) if k > present else errors[k]
            if doubt > self.parameters.margin / 2:
                hope = log(rates[k] / rates[present]) + _OPTIMISM * doubt
                if hope > most and self._prober.affords(1 - rates[k] / rates[present]):
                    found, most = k, hope
        return found

    def _explain(self, here: int, before: int, after: int, rates: list[float]) -> None:
        known = self._estimates
        low, high = min(before, after), max(before, after)
        survival = known.acceptance.survival[low:high]
        cost = (known.times.seconds(here, high) or 0.0) - (known.times.seconds(here, low) or 0.0)
        self.reasons += 1
        self.reason = MoreTokens(
            before,
            after,
            here,
            (low + 1, high),
            sum(survival) / len(survival),
            known.acceptance.drafts(low + 1),
            cost,
            rates[after] / rates[before] - 1,
            known.times.steps(here, after) < _TIMED_STEPS,
        )


def _best(rates: list[float], low: int, high: int) -> int:
    """The k of `low` to `high` with the highest rate, the smallest of equals.

    >>> _best([9.0, 3.0, 5.0, 5.0], 1, 3)
    2
    """
    return rates.index(max(rates[low : high + 1]), low)


class Prober:
    """Whether a try may start, and when it ends.

    `share` is the part of the output that tries may cost: a try that is expected to lose a
    third over eight steps is paid back in 270 steps at 1 %.

    >>> prober = Prober(share=0.01, steps=8)
    >>> prober.start(0, loss=0.0)
    True
    >>> [prober.goes_on(0, steps) for steps in (4, 4)]
    [True, False]
    """

    def __init__(self, share: float, steps: int) -> None:
        self._share = share
        self._steps = steps
        self._budget = share * _RESERVE_STEPS
        self._left = 0
        self._bucket: int | None = None
        """Where a try is under way."""

    def earn(self, steps: int) -> None:
        """Puts the share of so many steps into the budget."""
        self._budget = min(self._budget + self._share * steps, self._share * _RESERVE_STEPS)

    def start(self, bucket: int, loss: float) -> bool:
        """Begins a try that loses `loss` of a step's output in each step, if that can be paid.

        One that is expected to gain, a negative loss, costs nothing.
        """
        if self._bucket is not None or not self._share or not self.affords(loss):
            return False
        self._budget -= self._cost(loss)
        self.begin(bucket)
        return True

    def begin(self, bucket: int) -> None:
        """Begins a try, whatever it costs."""
        self._bucket, self._left = bucket, self._steps

    def affords(self, loss: float) -> bool:
        """Whether a try that loses `loss` of a step's output in each step can be paid."""
        return self._budget > 0 or not self._cost(loss)

    def _cost(self, loss: float) -> float:
        return self._steps * max(0.0, loss + _SWITCH)

    def goes_on(self, bucket: int, steps: int) -> bool:
        """Whether a try goes on after `steps` more; one ends early when the batch moves away."""
        if self._bucket is None:
            return False
        self._left -= steps
        if self._left <= 0 or not -1 <= bucket - self._bucket <= 1:
            self._bucket = None
        return self._bucket is not None

    def stop(self) -> None:
        """Ends the try under way."""
        self._bucket = None
