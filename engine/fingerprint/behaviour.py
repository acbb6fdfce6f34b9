"""What an engine does with the probe set, in figures that hold still while its kernels do.

The third layer sees what no configuration shows: another driver, another kernel. Answers
are greedy token ids and their log-probabilities; the probe set is asked several times,
and how far the repetitions differ decides how coarsely log-probabilities are taken.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from specdeck.engine.fingerprint.name import compute_name

PROBE_SET = 1
"""Raised when a probe changes: behaviours of different sets are not compared."""

FINEST = 1e-4
"""The smallest step of a log-probability, in nats: kernels of another order of summing
differ by more in bfloat16, and in float32 on all but the sharpest tokens."""

_LADDER = _NOISIER = 8.0
_ABOVE_NOISE = 4.0
"""A step is so many times the noise that was seen, so that a repetition rarely crosses it."""

_BY_CHANCE = 0.001
"""That an engine agrees with itself so much less often and nothing has changed: a nightly look
calls it once in some years."""


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """One probe's continuation."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural logarithm of each token's probability."""


@dataclass(frozen=True, slots=True)
class MovedProbe:
    """A probe that an engine answers otherwise, and by how much."""

    arm: str
    probe: int
    token: int | None
    """The first token that differs; None when only log-probabilities moved."""
    logprob: float
    """The largest change of a log-probability before that, in nats."""

    def line(self) -> str:
        """For one line.

        >>> MovedProbe("serving", 3, None, 0.03125).line()
        'probe 3 (serving): the same tokens, log-probabilities by up to 0.0312'
        """
        tokens = "the same tokens" if self.token is None else f"another token at {self.token}"
        moved = f"log-probabilities by up to {self.logprob:.4f}"
        return f"probe {self.probe} ({self.arm}): {tokens}, {moved}"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The answers of each arm, and how far they held still."""

    arms: Mapping[str, tuple[ProbeAnswer, ...]]
    """`serving`, and `target-only` where the engine can be asked for it."""
    runs: int
    agreement: float
    """Answers whose tokens equal the most frequent ones, 0 to 1."""
    noise: float
    """The largest distance of a log-probability from its median over the runs, in nats."""
    missing: tuple[str, ...] = ()
    """Arms that could not be asked, each with its reason."""
    probe_set: int = PROBE_SET

    @property
    def asked(self) -> int:
        """Answers that were asked for."""
        return self.runs * sum(len(answers) for answers in self.arms.values())

    @property
    def step(self) -> float:
        """How coarsely log-probabilities enter the name, in nats."""
        return step(self.noise)

    @property
    def name(self) -> str:
        """`sd1:x…`, of the tokens and the quantised log-probabilities."""
        facts = {
            "probes": self.probe_set,
            "step": self.step,
            "arms": {
                arm: [[list(a.tokens), quantise(a.logprobs, self.step)] for a in answers]
                for arm, answers in self.arms.items()
            },
        }
        return compute_name("behaviour", facts, partial=bool(self.missing))

    def as_json(self) -> dict[str, Any]:
        """Plain values, for a pin."""
        return {
            "name": self.name,
            "probe_set": self.probe_set,
            "runs": self.runs,
            "agreement": round(self.agreement, 4),
            "noise": self.noise,
            "step": self.step,
            "missing": list(self.missing),
            "arms": {
                arm: [{"tokens": list(a.tokens), "logprobs": list(a.logprobs)} for a in answers]
                for arm, answers in self.arms.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `as_json` wrote; raises KeyError, TypeError or ValueError on nonsense."""
        arms = {
            str(arm): tuple(
                ProbeAnswer(tuple(map(int, a["tokens"])), tuple(map(float, a["logprobs"])))
                for a in answers
            )
            for arm, answers in data["arms"].items()
        }
        return cls(
            arms,
            int(data["runs"]),
            float(data["agreement"]),
            float(data["noise"]),
            tuple(map(str, data["missing"])),
            int(data["probe_set"]),
        )


def step(noise: float) -> float:
    """The step of quantisation that noise of this size calls for: FINEST, times 8, times 64.

    The ladder is coarse, so that two measurements of one engine choose the same rung.

    >>> step(0.0), step(0.0001)
    (0.0001, 0.0008)
    """
    found = FINEST
    while found < noise * _ABOVE_NOISE:
        found *= _LADDER
    return round(found, 10)


def quantise(logprobs: Iterable[float], step: float) -> list[int]:
    """Log-probabilities in whole steps.

    >>> quantise([-0.50004, -1.0], 0.0001)
    [-5000, -10000]
    """
    return [round(x / step) for x in logprobs]


def settle(
    runs: Mapping[str, Sequence[Sequence[ProbeAnswer]]], missing: Iterable[str]
) -> Behaviour:
    """The behaviour that repeated runs agree on: `runs[arm][run][probe]`.

    >>> once = [ProbeAnswer((1, 2), (-0.1, -0.2))]
    >>> found = settle({"serving": [once, once]}, ())
    >>> (found.runs, found.agreement, found.noise)
    (2, 1.0, 0.0)
    """
    arms: dict[str, tuple[ProbeAnswer, ...]] = {}
    agreed = asked = 0
    noise = 0.0
    for arm, repeats in runs.items():
        answers = []
        for tries in zip(*repeats, strict=True):
            tokens = statistics.mode(answer.tokens for answer in tries)
            alike = [answer.logprobs for answer in tries if answer.tokens == tokens]
            middle = tuple(statistics.median(values) for values in zip(*alike, strict=True))
            apart = (abs(x - m) for one in alike for x, m in zip(one, middle, strict=True))
            noise = max(noise, max(apart, default=0.0))
            agreed, asked = agreed + len(alike), asked + len(tries)
            answers.append(ProbeAnswer(tokens, middle))
        arms[arm] = tuple(answers)
    count = max((len(repeats) for repeats in runs.values()), default=0)
    return Behaviour(arms, count, agreed / asked if asked else 0.0, noise, tuple(missing))


def moved_probes(before: Behaviour, after: Behaviour) -> tuple[MovedProbe, ...]:
    """The probes that differ by more than the coarser of the two steps.

    Arms that only one side has are left out; so is everything across two probe sets.
    """
    if before.probe_set != after.probe_set:
        return ()
    coarse = max(before.step, after.step)
    found = []
    for arm in before.arms.keys() & after.arms.keys():
        for number, (old, new) in enumerate(zip(before.arms[arm], after.arms[arm], strict=False)):
            token = _first_difference(old.tokens, new.tokens)
            # After another token everything is another text: only what stands before counts.
            same = len(old.tokens) if token is None else token
            pairs = list(zip(old.logprobs, new.logprobs, strict=False))[:same]
            apart = max((abs(a - b) for a, b in pairs), default=0.0)
            if token is not None or apart > coarse:
                found.append(MovedProbe(arm, number, token, apart))
    return tuple(sorted(found, key=lambda one: (one.probe, one.arm)))


def explain_lost_agreement(before: Behaviour, after: Behaviour) -> str | None:
    """How much less an engine agrees with itself than it did; None where chance may have done it.

    By Fisher's exact test, one-sided: so many disagreements or more among the later answers.

    >>> once = {"serving": (ProbeAnswer((1,), (-0.1,)),) * 16}
    >>> explain_lost_agreement(Behaviour(once, 3, 1.0, 0.0), Behaviour(once, 3, 0.75, 0.0))
    '75.0 % of answers agree over 3 runs, 100.0 % did'
    >>> explain_lost_agreement(Behaviour(once, 3, 1.0, 0.0), Behaviour(once, 3, 0.96, 0.0))
    """
    if before.probe_set != after.probe_set or not (before.asked and after.asked):
        return None
    were, are = (round((1 - one.agreement) * one.asked) for one in (before, after))
    apart, of = were + are, before.asked + after.asked
    ways = (
        math.comb(apart, count) * math.comb(of - apart, after.asked - count)
        for count in range(are, min(apart, after.asked) + 1)
    )
    if sum(ways) / math.comb(of, after.asked) > _BY_CHANCE:
        return None
    agree = f"{after.agreement:.1%} of answers agree over {after.runs} runs"
    return f"{agree}, {before.agreement:.1%} did".replace("%", " %")


def explain_incomparable(before: Behaviour, after: Behaviour) -> Iterator[str]:
    """Why two behaviours cannot be told to be the same, though no probe may have moved."""
    if before.probe_set != after.probe_set:
        yield f"behaviour: probe set {before.probe_set} was asked, and {after.probe_set} is"
        return
    if before.arms.keys() != after.arms.keys():
        names = ", ".join(sorted(before.arms.keys() ^ after.arms.keys()))
        why = "; ".join(dict.fromkeys((*before.missing, *after.missing)))
        yield f"behaviour: one side alone was asked for {names}" + (f" ({why})" if why else "")
    if after.noise > _NOISIER * max(before.noise, FINEST):
        # Its own noise would hide whatever has moved: it decides how coarsely is compared.
        yield (
            f"behaviour: log-probabilities differ by up to {after.noise:.2g} from run to run,"
            f" where {before.noise:.2g} was seen: probe it again, without other traffic"
        )


def _first_difference(old: Sequence[int], new: Sequence[int]) -> int | None:
    if tuple(old) == tuple(new):
        return None
    pairs = enumerate(zip(old, new, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(old), len(new)))
