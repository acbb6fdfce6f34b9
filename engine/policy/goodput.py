"""The k of most committed tokens per second, for every batch size.

A step at k gives each request 1 + the expected accepted tokens, from acceptance by
position, and takes what steps at that batch size and k were measured to take. Both sides
are in the comparison: acceptance alone says nothing of cost. k = 0 is one of the choices
and is measured regularly, so speculation that does not pay is left. Other k's are tried a
few steps at a time, paid from a budget of lost output.
"""

from __future__ import annotations

from math import ceil, erfc, exp, log, pi, sqrt
from operator import truediv

from specdeck.engine.policy.estimates import BLOCK_STEPS, Estimates
from specdeck.engine.policy.parameters import GoodputParameters, ParameterError
from specdeck.engine.policy.reason import MoreTokens
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import BUCKETS, Decision, bucket, everywhere, span

_BASELINE_SHARE = 0.3
"""Of what exploring may cost, the part that measuring target-only takes while it is far behind."""
_OLD_SHARE, _OLD_S = 0.2, 120.0
"""The part that timing again takes of what was timed longest ago, and how long ago at least."""
_ASK_AGAIN_S = 1.0
"""How long such a try waits where it cannot be paid yet."""
_SHIFTS_S = 30.0
"""How long a change of text counts."""
_SELDOM = 0.1
"""Changes in that time that are expected where none was seen."""
_GAIN_KEEPS = 0.9995
"""What a block leaves of the most that speculation was seen to gain."""
_GAIN = 0.5
"""What speculation is taken to gain after the next change, as a share, before any was seen."""
_LOOK_DRAFTS = 8
"""Drafts of a look at the text: they tell what is mostly accepted from what is not."""
_TIMED_STEPS = 8
_SETTLED_STEPS = 24.0
"""Steps at a batch size before target-only is measured there."""
_SWITCH = 0.03
"""What a try costs at least, as a share of its steps: the step that changes k is mixed."""
_RESERVE_S = 15.0
"""The output that may be saved up for tries at one batch size, and is there at the start: the
budget's share of so many seconds. Not of steps: a few hundred of a large batch are a minute."""


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
        self._oldest_due = [0.0] * BUCKETS
        """When to look next for the k that was timed longest ago."""
        self._prober = Prober(parameters.explore, parameters.probe_steps)
        self._steps = 0
        self._probing = False
        self._here = 0
        self._shifts = self._shifted_at = self._gain = 0.0
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
        trying = self._prober.goes_on(here, steps)
        if not trying:
            self._estimates.block_steps = BLOCK_STEPS
        if not steering:
            self._prober.stop()
        elif trying:
            return self.decision
        if self._estimates.shifted:
            self._shifts, self._shifted_at = self._recent_shifts() + 1, self._estimates.now
        rates = self._rates(here)
        if rates is None:
            return self.decision
        self._prober.earn(here, steps * self._seconds(here)[self._chosen[here]])
        self._watch_gain(rates)
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

    def _seconds(self, here: int) -> list[float]:
        """Of a step, by k."""
        costs = self._estimates.costs(here)
        assert costs is not None
        return costs[0]

    def _cost(self, spent: float, ratio: float) -> float:
        """What a try is expected to lose, in seconds of the present k's output.

        Its steps take `spent` seconds each, its rate is `ratio` of the present one.
        """
        return self.parameters.probe_steps * spent * max(0.0, 1 - ratio + _SWITCH)

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
        if not best and self._scouts(here, rates):
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
        if not present and (look := self._look(here, rates)):
            self._estimates.block_steps = self._look_steps
            self._prober.begin(here, self._look_steps)  # what it may cost is in when it is due
            return look
        wanted = self._due(here, rates) if present else None
        if wanted is None:
            wanted = self._oldest(here, rates)
        if wanted is None:
            wanted = self._promising(here, rates)
        if wanted is None:
            return None
        cost = self._cost(self._seconds(here)[wanted], rates[wanted] / rates[present])
        return wanted if self._prober.start(here, cost) else None

    def _due(self, here: int, rates: list[float]) -> int | None:
        """Target-only whose time is old."""
        times, now = self._estimates.times, self._estimates.now
        if self._low:
            return None
        last = times.last(here, 0)
        if last is None:  # a batch size that is only passed through is not worth it
            present = self._chosen[here]
            return 0 if times.steps(here, present) >= _SETTLED_STEPS else None
        wait = self.parameters.baseline_s
        if now - last < wait:
            return None
        if explore := self.parameters.explore:
            spent = self.parameters.probe_steps * (times.seconds(here, 0) or 0.0)
            lost = spent * max(0.0, 1 - rates[0] / rates[self._chosen[here]])
            wait = max(wait, lost / (_BASELINE_SHARE * explore))
        return 0 if now - last >= wait else None

    def _oldest(self, here: int, rates: list[float]) -> int | None:
        """The k that was timed longest ago, if that is long: its cost may have changed since.

        What was dear when it was last tried promises nothing, and would never be tried again.
        """
        times, now, explore = self._estimates.times, self._estimates.now, self.parameters.explore
        if self._probing or now < self._oldest_due[here] or not explore:
            return None
        present = self._chosen[here]
        others = [k for k in range(self._low, self._high + 1) if k != present]
        timed = [(last, k) for k in others if (last := times.last(here, k)) is not None]
        last, k = min(timed, default=(now, present))
        if now - last < _OLD_S:
            self._oldest_due[here] = last + _OLD_S
            return None
        cost = self._cost(self._seconds(here)[k], rates[k] / rates[present])
        if not self._prober.affords(here, cost):
            self._oldest_due[here] = now + _ASK_AGAIN_S
            return None
        self._oldest_due[here] = now + max(_OLD_S, cost / (_OLD_SHARE * explore))
        return k

    def _look(self, here: int, rates: list[float]) -> int | None:
        """The draft by which to see whether the text has changed, where target-only is the choice.

        A change comes by chance, and costs from then on what speculation would gain: looks
        that cost c each, for changes of h a second that are worth g of the output, cost least
        every sqrt(2 c / (h g)) seconds.
        """
        times, now = self._estimates.times, self._estimates.now
        if not self.parameters.explore:
            return None
        other = _best(rates, 1, self._high)
        last = times.last(here, other)
        if last is None:
            due = times.steps(here, 0) >= _SETTLED_STEPS
        else:
            due = now - last >= sqrt(2 * self._look_cost(here, other, rates) / self._worth())
        return other if due else None

    def _look_cost(self, here: int, k: int, rates: list[float]) -> float:
        """What a look loses, in seconds of target-only's output."""
        spent = self._estimates.times.seconds(here, k) or 0.0
        return self._look_steps * spent * max(_SWITCH, 1 - rates[k] / rates[0])

    @property
    def _look_steps(self) -> int:
        """Steps of a look: the first only drafts."""
        known, most = self._estimates, self.parameters.probe_steps
        if known.prompts.any:  # how many of them come at another k takes longer to see
            return most
        return min(most, 2 + ceil(_LOOK_DRAFTS / max(1.0, known.size)))

    def _worth(self) -> float:
        """What seeing the next change at once is worth in each second, as a share of the output."""
        return (self._recent_shifts() + _SELDOM) / _SHIFTS_S * max(self._gain, _GAIN)

    def _scouts(self, here: int, rates: list[float]) -> bool:
        """Whether to draft one token all the time costs less than looks from time to time."""
        looks = sqrt(2 * self._look_cost(here, 1, rates) * self._worth())
        return rates[1] > (1 - looks) * rates[0]

    def _recent_shifts(self) -> float:
        """How often the text changed of late."""
        return self._shifts * exp((self._shifted_at - self._estimates.now) / _SHIFTS_S)

    def _watch_gain(self, rates: list[float]) -> None:
        """Remembers what speculation gained at most, and forgets it slowly."""
        self._gain = max(_GAIN_KEEPS * self._gain, max(rates) / rates[0] - 1)

    def _promising(self, here: int, rates: list[float]) -> int | None:
        """The other k by which most is expected to be gained, beyond what the try costs.

        What a try may find out is worth something for about as many steps as are remembered.
        """
        present, margin = self._chosen[here], self.parameters.margin
        rate, spent = rates[present], self._seconds(here)
        lasts = self.parameters.memory_steps * spent[present]
        funded = self._prober.affords(here, 1.0)
        if not funded and max(rates) <= (1 + _SWITCH) * rate:
            return None  # nor could any other k be paid
        errors, probing = self._errors(here), self._probing
        found, most = None, 0.0
        for k in range(self._low, self._high + 1):
            if k == present or (probing and (k < present or errors[k] <= errors[present])):
                continue  # what is in doubt shows at the present k as well, or better
            ratio = rates[k] / rate
            cost = self._cost(spent[k], ratio)
            if cost and not funded:
                continue
            # What trying it would teach: its time, and how often what is deeper is accepted.
            doubt = self._error(errors, k, present) if k > present else errors[k]
            if doubt <= margin / 2:
                continue
            gain = log(ratio) - margin
            # With a gain below 0 it can promise no more than this: most k's end here.
            if gain < 0 and lasts * _DENSITY * doubt * exp(gain * gain / (-2 * doubt * doubt)) <= (
                cost + most
            ):
                continue
            shown = doubt * self._share_shown(errors[k], k, present)
            worth = lasts * improvement(gain, shown) - cost
            if worth > most:
                found, most = k, worth
        return found

    def _share_shown(self, error: float, k: int, present: int) -> float:
        """The share of a doubt that one try takes away: a little where much was tried before."""
        known = self._estimates
        error2 = error * error
        shown = error2 / (error2 + known.times.block_error2)
        if k > present:
            drafts = self.parameters.probe_steps * known.size
            shown = max(shown, drafts / (drafts + known.acceptance.drafts(present + 1)))
        return sqrt(shown)

    def _explain(self, here: int, before: int, after: int, rates: list[float]) -> None:
        known = self._estimates
        low, high = min(before, after), max(before, after)
        survival = known.acceptance.survival[low:high]
        cost = (known.times.seconds(here, high) or 0.0) - (known.times.seconds(here, low) or 0.0)
        self.reasons += 1
        self.reason = MoreTokens(
            before,
            after,
            span(here),
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


def improvement(gain: float, doubt: float) -> float:
    """What is expected of the better of two, one of which gains `gain` ± `doubt` on the other.

    The expected improvement of Bayesian optimisation (Jones, Schonlau and Welch, 1998): little
    where neither a gain nor a doubt is large.

    >>> round(improvement(0.0, 0.1), 3), round(improvement(-0.1, 0.1), 4), improvement(0.2, 0.0)
    (0.04, 0.0083, 0.2)
    """
    if doubt <= 0:
        return max(0.0, gain)
    z = gain / doubt
    return gain * erfc(-z * _ROOT_HALF) / 2 + doubt * _DENSITY * exp(-z * z / 2)


_ROOT_HALF, _DENSITY = sqrt(0.5), 1 / sqrt(2 * pi)


class Prober:
    """Whether a try may start, and when it ends.

    `share` is the part of the output that tries may cost: a try that is expected to lose 0.1 s of
    it is paid back in 10 s at 1 %. What is saved at one batch size pays for tries there, since
    little of what is known of another holds for it.

    >>> prober = Prober(share=0.01, steps=8)
    >>> prober.start(0, cost=0.2)
    True
    >>> [prober.goes_on(0, steps) for steps in (4, 4)]
    [True, False]
    >>> prober.start(0, cost=0.1), prober.start(0, cost=0.0), prober.start(5, cost=0.1)
    (False, True, False)
    """

    def __init__(self, share: float, steps: int) -> None:
        self._share = share
        self._steps = steps
        self._budgets = [share * _RESERVE_S] * BUCKETS
        self._left = 0
        self._bucket: int | None = None
        """Where a try is under way."""

    def earn(self, bucket: int, seconds: float) -> None:
        """Puts the share of so many seconds into the budget of their batch sizes."""
        saved = self._budgets[bucket] + self._share * seconds
        self._budgets[bucket] = min(saved, self._share * _RESERVE_S)

    def start(self, bucket: int, cost: float) -> bool:
        """Begins a try that is expected to cost so many seconds, if that can be paid.

        One that is expected to gain costs nothing.
        """
        if self._bucket is not None or not self._share or not self.affords(bucket, cost):
            return False
        self._budgets[bucket] -= cost
        self.begin(bucket, self._steps)
        return True

    def begin(self, bucket: int, steps: int) -> None:
        """Begins a try of so many steps, whatever it costs."""
        self._bucket, self._left = bucket, steps

    def affords(self, bucket: int, cost: float) -> bool:
        """Whether a try that costs so many seconds can be paid: what is owed is paid back."""
        return self._budgets[bucket] > 0 or not cost

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
