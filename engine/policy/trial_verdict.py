"""A change on trial: with it and without it by turns, then kept or taken back without being asked.

    changed ⇄ baseline ──▶ kept | reverted
        └── lease lost, cancelled, no traffic ──▶ reverted

Load and machine drift, and a time before against a time after takes the drift for the change. So
both settings are in force by turns, in pairs of stints whose order is chance, and what a pair has
in common cancels out (paired comparisons in randomised blocks: Box, Hunter and Hunter, Statistics
for Experimenters, 2nd ed., section 3.2). It runs in the engine, so it ends as it should when
nobody is looking any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from random import Random
from statistics import NormalDist
from typing import Literal

from specdeck.engine.policy.intervals import Work, gain, rate
from specdeck.engine.policy.parameters import TrialParameters
from specdeck.engine.policy.step import Elapsed, Step
from specdeck.engine.protocol.tuning import Phase, TrialComparison

Action = Literal["apply", "withdraw", "keep", "revert", "abandon"]
"""apply and withdraw are turns within the trial; the others are its end."""

_PATIENCE = 1.5
_PATIENCE_S = 10.0
"""A trial may take so many times its seconds, and so many more, before it gives up for want
of work to measure. What it settles after its turns is work, and comes on top: where steps are long,
three of them are longer than a short stint."""
_PAIRS, _SLOW_PAIRS = 16, 8
"""Pairs of a trial, where stints are long enough; slow are changes that take time to tell."""
_FEWEST_PAIRS = 5
_LONGEST_STINT_S = 90.0
_SLOW_BLOCKS = 5
"""A stint of a slow change holds so many of the shortest ones."""
_SETTLING_STEPS = 3
"""Steps after a turn that still verify drafts of the other setting, or wait for them."""
_LOOKS = (0.375, 0.625, 1.0)
"""Shares of the pairs after which there may be a verdict."""
_TOKENS_SHARE = 0.8
"""Of the error allowed, what the tokens per second may spend; the wait for a token has the rest."""


class _Stint:
    """What one setting did in one pair."""

    __slots__ = ("committed", "seconds", "waited")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.waited = 0.0
        """Seconds summed over the requests that waited for them."""
        self.committed = 0

    def add(self, seconds: float, step: Step) -> None:
        self.seconds += seconds
        self.waited += seconds * step.requests
        self.committed += step.committed


class Trial:
    """One trial; every method answers what the controller must do at once, or None."""

    def __init__(
        self,
        parameters: TrialParameters,
        *,
        t: float,
        lease_s: float | None,
        slow: bool = False,
        random: Random | None = None,
    ) -> None:
        """`slow` is a change that takes time to tell, as of a policy: its stints are longer."""
        self.parameters = parameters
        self.state: Phase = "baseline"
        self.comparison: TrialComparison | None = None
        self.reason: str | None = None
        self.turns = 0
        """Turns so far: one more whenever the other setting comes into force."""
        self._elapsed = Elapsed()
        self._elapsed.at(t)
        self._random = random or Random()
        self.pairs_planned = plan_pairs(parameters, slow=slow)
        self._before: list[_Stint] = []
        self._after: list[_Stint] = []
        self._stint = _Stint()
        self._second = False
        """Whether the stint under way is the second of its pair."""
        self._settling_s, self._settling_steps = 0.0, 0
        self._ran = False
        self._lease_ends = lease_s
        self._gives_up = _PATIENCE * (parameters.baseline_s + parameters.seconds) + _PATIENCE_S

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state in ("kept", "reverted", "abandoned")

    @property
    def pairs(self) -> int:
        """Pairs that are measured."""
        return min(len(self._before), len(self._after))

    def renew(self, t: float, lease_s: float) -> None:
        """Extends the lease to `lease_s` from this moment."""
        if not self.over:
            self._lease_ends = self._elapsed.at(t) + lease_s

    def tick(self, t: float) -> Action | None:
        """Looks at the lease; called before every step and at every request of the state."""
        now = self._elapsed.at(t)
        if self.over:
            return None
        if self._lease_ends is not None and now >= self._lease_ends:
            return self._end("the lease was not renewed")
        if now >= self._gives_up:
            return self._end("too little traffic to compare")
        return None

    def begin(self) -> Action:
        """The change at once, so that whoever asked for it sees it: the first stint is its own."""
        self._ran = True
        return self._turn()

    def step(self, step: Step) -> Action | None:
        """Counts a step."""
        seconds = step.seconds
        if self.over or not self._ran or seconds is None:
            return None
        if self._settling_steps > 0 or self._settling_s > 0:
            self._settling_steps -= 1
            self._settling_s -= seconds
            self._gives_up += seconds
            return None
        stint = self._stint
        stint.add(seconds, step)
        if stint.seconds * self.pairs_planned < self._planned_s or not stint.committed:
            return None
        (self._after if self.state == "changed" else self._before).append(stint)
        self._stint = _Stint()
        if not self._second:
            self._second = True
            return self._turn()
        self._second = False
        ended = self._conclude()
        if ended is not None:
            return ended
        return self._turn() if self._random.random() < 0.5 else None

    def cancel(self, reason: str) -> Action | None:
        """Takes the change back now."""
        return None if self.over else self._end(reason)

    @property
    def seconds_left(self) -> float | None:
        """Seconds of work still to be measured at the most; None when it is over."""
        if self.over:
            return None
        counted = [*self._before, *self._after, self._stint]
        whole = self.parameters.baseline_s + self.parameters.seconds
        return max(0.0, whole - sum(stint.seconds for stint in counted))

    @property
    def lease_left_s(self) -> float | None:
        """Seconds until it takes itself back unless it is renewed; None without a lease."""
        if self._lease_ends is None or self.over:
            return None
        return max(0.0, self._lease_ends - self._elapsed.seconds)

    @property
    def _planned_s(self) -> float:
        """Seconds of work of all stints like the one under way."""
        parameters = self.parameters
        return parameters.seconds if self.state == "changed" else parameters.baseline_s

    def _turn(self) -> Action:
        self.turns += 1
        self._settling_s, self._settling_steps = self.parameters.settle_s, _SETTLING_STEPS
        self.state = "baseline" if self.state == "changed" else "changed"
        return "apply" if self.state == "changed" else "withdraw"

    def _conclude(self) -> Action | None:
        """The end, if the pairs so far tell or there are all of them."""
        if self.pairs not in look_pairs(self.pairs_planned):
            return None
        error = spend(1 - self.parameters.confidence, self.pairs, self.pairs_planned)
        rates = [_by_pair(side, "committed", "seconds") for side in (self._before, self._after)]
        waits = [_by_pair(side, "waited", "committed") for side in (self._before, self._after)]
        tokens = gain(*rates, confidence=1 - error * _TOKENS_SHARE)
        wait = gain(*waits, confidence=1 - error * (1 - _TOKENS_SHARE))
        last = self.pairs == self.pairs_planned
        if tokens is None or wait is None:
            return self._end("too little traffic to compare") if last else None
        # More tokens per second decide; where they do not, the wait for a token does.
        sign = tokens.sign or -wait.sign
        if not (sign or last):
            return None
        self.comparison = TrialComparison(
            "better" if sign > 0 else "worse" if sign < 0 else "inconclusive",
            tokens,
            wait,
            before_tokens_per_second=rate(rates[0]),
            after_tokens_per_second=rate(rates[1]),
            before_ms_per_token=rate(waits[0]) * 1e3,
            after_ms_per_token=rate(waits[1]) * 1e3,
        )
        if not (sign > 0 or (not sign and self.parameters.keep_inconclusive)):
            return self._end(str(self.comparison))
        self.state, self.reason = "kept", str(self.comparison)
        return "keep"

    def _end(self, reason: str) -> Action:
        self.reason = reason
        self.state = "reverted" if self._ran else "abandoned"
        return "revert" if self._ran else "abandon"


def plan_pairs(parameters: TrialParameters, *, slow: bool) -> int:
    """Pairs of stints that a trial of `parameters` is cut into.

    >>> plan_pairs(TrialParameters(baseline_s=40, seconds=40), slow=False)
    16
    >>> plan_pairs(TrialParameters(baseline_s=40, seconds=40), slow=True)
    8
    >>> plan_pairs(TrialParameters(baseline_s=5, seconds=5), slow=True)
    5
    """
    shorter = min(parameters.baseline_s, parameters.seconds)
    longer = max(parameters.baseline_s, parameters.seconds)
    least = parameters.block_s * (_SLOW_BLOCKS if slow else 1)
    most = max(_SLOW_PAIRS if slow else _PAIRS, int(longer / _LONGEST_STINT_S))
    return max(_FEWEST_PAIRS, min(most, int(shorter / least)))


def look_pairs(planned: int) -> list[int]:
    """After which pairs there may be a verdict.

    >>> look_pairs(16), look_pairs(8), look_pairs(5)
    ([6, 10, 16], [5, 8], [5])
    """
    found = {max(round(share * planned), _FEWEST_PAIRS) for share in _LOOKS}
    return sorted(found)


def spend(error: float, pairs: int, planned: int) -> float:
    """The error that the look after `pairs` may make, out of `error` over all looks.

    The spending function of O'Brien and Fleming's kind (Lan and DeMets, Biometrika 70, 1983,
    page 660): little early, so that the last look loses next to nothing. Each look gets what
    is spent since the look before, which by Bonferroni keeps the sum.

    >>> looks = [spend(0.05, pairs, 16) for pairs in look_pairs(16)]
    >>> [round(look, 4) for look in looks], round(sum(looks), 4)
    ([0.0014, 0.0118, 0.0368], 0.05)
    """
    earlier = max((look for look in look_pairs(planned) if look < pairs), default=0)
    return _spent(error, pairs / planned) - (_spent(error, earlier / planned) if earlier else 0.0)


def _spent(error: float, share: float) -> float:
    normal = NormalDist()
    return 2 * (1 - normal.cdf(normal.inv_cdf(1 - error / 2) / sqrt(share)))


def _by_pair(stints: list[_Stint], top: str, bottom: str) -> Mapping[int, Work]:
    return {
        number: (getattr(stint, top), getattr(stint, bottom)) for number, stint in enumerate(stints)
    }
