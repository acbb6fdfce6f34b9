"""False and missed verdicts of trials on an engine whose load drifts.

    python -m benchmarks.trial_drift [--trials 1000] [--seed 1]

The plugin's own `Trial` judges steps of 25 ms of eight requests, whose speed follows an
Ornstein-Uhlenbeck process (standard deviation, time constant) beside the noise of single steps.
With a true gain of 0 each verdict but "inconclusive" is false. "one time, then the other" is the
same work cut in two halves, judged by Welch's interval of blocks of a second.
"""

from __future__ import annotations

import argparse
from math import exp, sqrt
from random import Random

from specdeck.engine.policy.intervals import change
from specdeck.engine.policy.parameters import TrialParameters
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.trial_verdict import Trial

DRIFTS = ((0.0, 10.0), (0.02, 10.0), (0.05, 10.0), (0.02, 120.0), (0.05, 120.0))
"""Standard deviation of the speed, as a share, and its time constant, seconds."""
GAINS = (0.0, 0.02, 0.05)
REQUESTS = 8
STEP_S = 0.025
NOISE = 0.10
"""Of a step's duration."""
TOKENS, TOKENS_DEVIATION = 20.3, 3.4
"""Of a step: eight requests that accept 70 % at each of three positions."""


class Load:
    """Steps of an engine that drifts."""

    def __init__(self, random: Random, deviation: float, constant_s: float) -> None:
        self._random = random
        self._stays = exp(-STEP_S / constant_s)
        self._moves = deviation * sqrt(1 - self._stays**2)
        self._drift = random.gauss(0, deviation)
        self.t = 0.0

    def step(self, gain: float) -> Step:
        """The next one, so much faster."""
        random = self._random
        self._drift = self._stays * self._drift + random.gauss(0, self._moves)
        seconds = STEP_S * exp(random.gauss(0, NOISE) - self._drift) / (1 + gain)
        self.t += seconds
        committed = max(REQUESTS, round(random.gauss(TOKENS, TOKENS_DEVIATION)))
        return Step(0, self.t, REQUESTS, 4 * REQUESTS, 3, REQUESTS, 3 * REQUESTS,
                    committed - REQUESTS, seconds, committed)  # fmt: skip


def try_by_turns(load: Load, random: Random, gain: float) -> tuple[str, float]:
    """A trial's verdict, and the seconds of work that it took."""
    trial = Trial(TrialParameters(), t=load.t, lease_s=None, random=random)
    began, present = load.t, gain if trial.begin() == "apply" else 0.0
    while not trial.over:
        action = trial.step(load.step(present))
        present = {"apply": gain, "withdraw": 0.0}.get(action or "", present)
    assert trial.comparison is not None
    return trial.comparison.verdict, load.t - began


def try_in_halves(load: Load, gain: float) -> str:
    """The verdict of a time before and a time after."""
    halves: list[list[float]] = []
    for present in (0.0, gain):
        halves.append([])
        for _ in range(40):
            ends, began, tokens = load.t + 1.0, load.t, 0
            while load.t < ends:
                tokens += load.step(present).committed
            halves[-1].append(tokens / (load.t - began))
    found = change(*halves)
    assert found is not None
    return {1: "better", 0: "inconclusive", -1: "worse"}[found.sign]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        "| drift | true gain | better | worse | seconds | one time, then the other: better, worse |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for deviation, constant in DRIFTS:
        for gain in GAINS:
            random = Random(f"{options.seed} {deviation} {constant} {gain}")
            found, halves, seconds = [], [], 0.0
            for _ in range(options.trials):
                verdict, took = try_by_turns(Load(random, deviation, constant), random, gain)
                found.append(verdict)
                seconds += took
                halves.append(try_in_halves(Load(random, deviation, constant), gain))
            shares = [f"{each.count(word) / options.trials:.1%}"
                      for each in (found, halves) for word in ("better", "worse")]  # fmt: skip
            name = f"{deviation:.0%}, {constant:g} s" if deviation else "none"
            cells = [name, f"{gain:+.0%}", *shares[:2], f"{seconds / options.trials:.0f}",
                     f"{shares[2]}, {shares[3]}"]  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
