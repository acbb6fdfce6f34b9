"""The k of most committed tokens per second, for every batch size.

A step at k gives each request 1 + the expected accepted tokens, from acceptance by
position, and takes what steps at that batch size and k were measured to take. Both sides
are in the comparison: acceptance alone says nothing of cost. k = 0 is one of the choices
and is measured regularly, so speculation that does not pay is left.
"""

from __future__ import annotations

from math import log, sqrt

from specdeck.engine.policy.batches import BUCKETS, bucket, span
from specdeck.engine.policy.decision import Decision, Reason, everywhere
from specdeck.engine.policy.experience import Experience
from specdeck.engine.policy.observed import StepSeen
from specdeck.engine.policy.parameters import Goodput as Parameters
from specdeck.engine.policy.parameters import ParameterError
from specdeck.engine.policy.probing import Prober

_OPTIMISM = 1.5
"""Standard errors by which another k is given the benefit of the doubt when a try is due."""
_BASELINE_SHARE = 0.3
"""Of what exploring may cost, the part that measuring target-only takes while it is far behind."""
_TIMED_STEPS = 8
_SETTLED_STEPS = 24.0
"""Steps at a batch size before target-only is measured there."""


class Goodput:
    """Chooses k by batch size from `experience`; a little of the output pays for trying."""

    def __init__(self, parameters: Parameters, experience: Experience, *, k: int) -> None:
        self.parameters = parameters
        self._experience = experience
        highest = parameters.max_draft_length
        self._high = experience.k_max if highest is None else min(highest, experience.k_max)
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
        self.decision = everywhere(first)
        self.reason: Reason | None = None
        """Why k moved last."""
        self.reasons = 0
        """How often k moved."""

    def step(self, seen: StepSeen, *, steering: bool = True) -> Decision:
        """The k's after a step that `experience` has taken in.

        While it is not `steering`, because the breaker is open, it goes on learning but
        tries nothing.
        """
        self._steps += 1
        if not self._experience.closed:
            return self.decision
        here, steps, self._steps = self._experience.bucket, self._steps, 0
        self._prober.earn(steps)
        probe = self._prober.running(here, steps)
        if not steering:
            self._prober.stop()
            probe = None
        if probe is not None:
            return self.decision
        rates = self._rates(here)
        if rates is None:
            return self.decision
        moved = self._choose(here, rates)
        tried = self._try(here, rates) if steering else None
        if moved or tried is not None or self._probing:
            self._probing = tried is not None
            table = list(self._chosen)
            if tried is not None:
                table[here] = tried
            why = str(self.reason) if self.reason else None
            self.decision = Decision(tuple(table), probing=self._probing, reason=why)
        return self.decision

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

    def bypasses(self, here: int) -> bool:
        """Whether k = 0 is its choice for the bucket `here`."""
        return not self._chosen[here]

    def _rates(self, here: int) -> list[float] | None:
        """Expected tokens of a request per second, by k."""
        known = self._experience
        seconds = known.times.row(here, known.k_max)
        if seconds is None:
            return None
        return [
            tokens / spent
            for tokens, spent in zip(known.acceptance.expected, seconds, strict=False)
        ]

    def _error(self, errors: list[float], k: int, other: int) -> float:
        """Relative standard error of the ratio of two k's, given those of their times."""
        acceptance = self._experience.acceptance
        low, high = min(k, other), max(k, other)
        tokens = acceptance.error(low, high) / acceptance.expected[high]
        return sqrt(tokens**2 + errors[k] ** 2 + errors[other] ** 2)

    def _choose(self, here: int, rates: list[float]) -> bool:
        """Moves the choice if enough is expected of it; whether it moved."""
        now, parameters = self._experience.now, self.parameters
        present = self._chosen[here]
        best = _best(rates, self._low, self._high)
        fresh = not self._visited[here]
        self._visited[here] = True
        if best == present:
            return False
        gain = log(rates[best] / rates[present])
        errors = self._experience.times.errors(here, self._high)
        doubt = parameters.confidence * self._error(errors, best, present)
        waited = now - self._changed[here] >= parameters.dwell_s
        if not (fresh or waited) or gain < parameters.margin + doubt * (not fresh):
            return False
        self._explain(here, present, best, rates)
        self._changed[here] = now
        self._chosen[here] = best
        for other, visited in enumerate(self._visited):
            if not visited:
                self._chosen[other] = best
        return True

    def _try(self, here: int, rates: list[float]) -> int | None:
        """The k to try next, or None."""
        present = self._chosen[here]
        if not self._prober.affords(1 - max(rates) / rates[present]):
            return None  # nor could any other k be paid
        wanted = self._due(here, rates)
        if wanted is None:
            wanted = self._promising(here, rates)
        if wanted is None:
            return None
        loss = 1 - rates[wanted] / rates[present]
        return wanted if self._prober.start(here, wanted, loss) else None

    def _due(self, here: int, rates: list[float]) -> int | None:
        """Target-only whose time is old; or a draft, where target-only is the choice."""
        times, now = self._experience.times, self._experience.now
        present = self._chosen[here]
        lowest = max(1, self._low)
        other = 0 if present else _best(rates, lowest, self._high)
        if other < self._low:
            return None
        last = times.last(here, other)
        if last is None:  # a batch size that is only passed through is not worth it
            return other if times.measured(here, present) >= _SETTLED_STEPS else None
        wait = self.parameters.baseline_s / (1 if present else 2)
        if explore := self.parameters.explore:
            spent = self.parameters.probe_steps * (times.seconds(here, other) or 0.0)
            lost = spent * max(0.0, 1 - rates[other] / rates[present])
            wait = max(wait, lost / (_BASELINE_SHARE * explore))
        return other if now - last >= wait else None

    def _promising(self, here: int, rates: list[float]) -> int | None:
        """The other k that could be best, given what is not known of it."""
        present = self._chosen[here]
        errors = self._experience.times.errors(here, self._high)
        found, most = None, self.parameters.margin
        for k in range(self._low, self._high + 1):
            if k == present or (k < present and self._probing):
                continue  # a shorter draft has just been timed, and teaches nothing else
            # What trying it would teach: its time, and how often what is deeper is accepted.
            doubt = self._error(errors, k, present) if k > present else errors[k]
            if doubt > self.parameters.margin / 2:
                hope = log(rates[k] / rates[present]) + _OPTIMISM * doubt
                if hope > most:
                    found, most = k, hope
        return found

    def _explain(self, here: int, before: int, after: int, rates: list[float]) -> None:
        known = self._experience
        low, high = min(before, after), max(before, after)
        survival = known.acceptance.survival[low:high]
        cost = (known.times.seconds(here, high) or 0.0) - (known.times.seconds(here, low) or 0.0)
        self.reasons += 1
        self.reason = Reason(
            before,
            after,
            span(here),
            (low + 1, high),
            sum(survival) / len(survival),
            _rounded(known.acceptance.drafts(low + 1)),
            cost,
            rates[after] / rates[before] - 1,
            known.times.measured(here, after) < _TIMED_STEPS,
        )


def _best(rates: list[float], low: int, high: int) -> int:
    """The k of `low` to `high` with the highest rate, the smallest of equals.

    >>> _best([9.0, 3.0, 5.0, 5.0], 1, 3)
    2
    """
    return rates.index(max(rates[low : high + 1]), low)


def _rounded(drafts: float) -> int:
    """Two digits: the window has no sharp edge.

    >>> _rounded(1964.2), _rounded(7.4)
    (2000, 7)
    """
    number = round(drafts)
    return round(number, 2 - len(str(number))) if number > 99 else number
