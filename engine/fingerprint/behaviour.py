"""What an engine does with the probe set, in figures that hold still while its kernels do.

The third layer sees what no configuration shows: another driver, another kernel. Answers
are greedy token ids and their log-probabilities; the probe set is asked several times,
and how far the repetitions differ decides how coarsely log-probabilities are taken, and how
many answers it takes to tell another token from a close call that went the other way.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from specdeck.engine.fingerprint.name import compute_name
from specdeck.engine.fingerprint.partings import Answers, find_partings

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

_PARTED_BY_CHANCE = 1e-4
"""That answers of all parted probes together fall apart so, and nothing has changed. Smaller than
the other: probes that did not part have been looked at as well."""

_MORE = 8
"""Further answers to a probe that has more than one."""

_MOST_MORE = 40
"""Further answers to a parted one: three of a pin beside 38 others are rare enough."""

_MOST_SEEN = 1_000_000
"""Answers of one kind that a pin may claim."""
_MOST_RUNS, _MOST_ARMS, _MOST_PROBES = 100, 8, 100
"""That a pin may claim: a comparison reckons with every answer."""
_WIDEST = 1e6
"""Nats that a log-probability or noise of a pin may have."""
_LAST_TOKEN = 2**31
_MOST_TOKENS = 1024
"""Of an answer: probes ask for far fewer, and a comparison goes over each."""

Probe = tuple[str, int]
"""One of an arm: the arm and the number of the probe."""


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """One probe's continuation."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural logarithm of each token's probability; none where they are not asked for."""


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
        >>> MovedProbe("no-logprobs", 3, 4, 0.0).line()
        'probe 3 (no-logprobs): another token at 4'
        """
        tokens = "the same tokens" if self.token is None else f"another token at {self.token}"
        moved = f", log-probabilities by up to {self.logprob:.4f}" if self.logprob else ""
        return f"probe {self.probe} ({self.arm}): {tokens}{moved}"


@dataclass(frozen=True, slots=True)
class PartedProbe:
    """A probe whose answers have left the ones that they are compared with."""

    arm: str
    probe: int
    token: int
    """The first at which they part."""
    before: int
    after: int
    """Answers of either side that came that far."""
    log_chance: float
    """The natural logarithm of the chance that an unchanged engine does that."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The answers of each arm, and how far they held still."""

    arms: Mapping[str, tuple[ProbeAnswer, ...]]
    """`serving`, the same without log-probabilities as `no-logprobs`, which older pins lack, and
    `target-only` where the engine can be asked for it."""
    runs: int
    agreement: float
    """Answers whose tokens equal the most frequent ones, 0 to 1."""
    noise: float
    """The largest distance of a log-probability from its median over the runs, in nats."""
    missing: tuple[str, ...] = ()
    """Arms that could not be asked, each with its reason."""
    probe_set: int = PROBE_SET
    seen: Mapping[str, tuple[Answers, ...]] = field(default_factory=dict)
    """Every answer of each probe, those to further asks among them; an older pin has none."""

    @property
    def asked(self) -> int:
        """Answers that were asked for in the runs."""
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

    def answers(self, arm: str, probe: int) -> Answers:
        """How often each answer to a probe came; at least so often for a pin that keeps one."""
        if arm in self.seen:
            return self.seen[arm][probe]
        apart = round((1 - self.agreement) * self.asked)
        return {self.arms[arm][probe].tokens: max(1, self.runs - apart)}

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
                arm: [
                    {
                        "tokens": list(a.tokens),
                        "logprobs": list(a.logprobs),
                        **self._seen_as_json(arm, n),
                    }
                    for n, a in enumerate(answers)
                ]
                for arm, answers in self.arms.items()
            },
        }

    def _seen_as_json(self, arm: str, probe: int) -> dict[str, Any]:
        """How often the answer came, and each other one."""
        if arm not in self.seen:
            return {}
        counts, usual = self.seen[arm][probe], self.arms[arm][probe].tokens
        others = [{"tokens": list(t), "seen": n} for t, n in counts.items() if t != usual]
        return {"seen": counts[usual], **({"others": others} if others else {})}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `as_json` wrote; raises KeyError, TypeError or ValueError on nonsense."""
        arms = {
            str(arm): tuple(read_answer(a["tokens"], a["logprobs"]) for a in answers)
            for arm, answers in data["arms"].items()
        }
        _bound(len(arms), 0, _MOST_ARMS)
        _bound(max(map(len, arms.values()), default=0), 0, _MOST_PROBES)
        return cls(
            arms,
            _bound(int(data["runs"]), 0, _MOST_RUNS),
            _bound(float(data["agreement"]), 0, 1),
            _bound(float(data["noise"]), 0, _WIDEST),
            tuple(map(str, data["missing"])),
            int(data["probe_set"]),
            {
                str(arm): tuple(map(_read_seen, answers))
                for arm, answers in data["arms"].items()
                if all("seen" in a for a in answers)
            },
        )


def read_answer(tokens: Iterable[Any], logprobs: Iterable[Any]) -> ProbeAnswer:
    """What a pin or an engine has for one; raises TypeError or ValueError on nonsense."""
    return ProbeAnswer(
        _read_tokens(tokens), tuple(_bound(float(x), -_WIDEST, _WIDEST) for x in logprobs)
    )


def _read_seen(answer: Mapping[str, Any]) -> Answers:
    """How often each answer to a probe was seen; raises as `Behaviour.from_json` does."""
    found: Counter[tuple[int, ...]] = Counter()
    for one in (answer, *answer.get("others", ())):
        count = int(one["seen"])
        if not 0 < count <= _MOST_SEEN:
            raise ValueError(f"an answer was seen {count} times")
        found[_read_tokens(one["tokens"])] += count
    return found


def _read_tokens(values: Iterable[Any]) -> tuple[int, ...]:
    found = tuple(_bound(int(value), 0, _LAST_TOKEN) for value in values)
    _bound(len(found), 0, _MOST_TOKENS)
    return found


_Number = TypeVar("_Number", int, float)


def _bound(value: _Number, least: float, most: float) -> _Number:
    """`value`; raises ValueError where it is no number from `least` to `most`."""
    if not least <= value <= most:
        raise ValueError(f"{value} is not between {least:g} and {most:g}")
    return value


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
    runs: Mapping[str, Sequence[Sequence[ProbeAnswer]]],
    missing: Iterable[str],
    further: Mapping[Probe, Sequence[ProbeAnswer]] | None = None,
) -> Behaviour:
    """The behaviour that repeated runs agree on: `runs[arm][run][probe]`.

    `further` answers to single probes add to what was seen. Agreement and noise are of the runs
    alone: a probe is asked further because it was unsteady.

    >>> once = [ProbeAnswer((1, 2), (-0.1, -0.2))]
    >>> found = settle({"serving": [once, once]}, ())
    >>> (found.runs, found.agreement, found.noise)
    (2, 1.0, 0.0)
    """
    arms: dict[str, tuple[ProbeAnswer, ...]] = {}
    seen: dict[str, tuple[Answers, ...]] = {}
    agreed = asked = 0
    noise = 0.0
    for arm, repeats in runs.items():
        answers, counts = [], []
        for number, tries in enumerate(zip(*repeats, strict=True)):
            more = (further or {}).get((arm, number), ())
            counts.append(Counter(answer.tokens for answer in (*tries, *more)))
            tokens = statistics.mode(answer.tokens for answer in tries)
            alike = [answer.logprobs for answer in tries if answer.tokens == tokens]
            middle = tuple(statistics.median(values) for values in zip(*alike, strict=True))
            apart = (abs(x - m) for one in alike for x, m in zip(one, middle, strict=True))
            noise = max(noise, max(apart, default=0.0))
            agreed, asked = agreed + len(alike), asked + len(tries)
            answers.append(ProbeAnswer(tokens, middle))
        arms[arm], seen[arm] = tuple(answers), tuple(counts)
    count = max((len(repeats) for repeats in runs.values()), default=0)
    agreement = agreed / asked if asked else 0.0
    return Behaviour(arms, count, agreement, noise, tuple(missing), seen=seen)


def parted_probes(before: Behaviour, after: Behaviour) -> tuple[PartedProbe, ...]:
    """The probes whose answers have left those of the other side, be it by chance.

    Arms that only one side has are left out; so is everything across two probe sets.
    """
    if before.probe_set != after.probe_set:
        return ()
    found = []
    for arm in before.arms.keys() & after.arms.keys():
        for number in range(min(len(before.arms[arm]), len(after.arms[arm]))):
            answers = before.answers(arm, number), after.answers(arm, number)
            partings = sorted(find_partings(*answers), key=lambda one: one.token)
            chance = sum(one.log_chance for one in partings)
            # Where whole answers came again, a rare beginning with few answers tells nothing.
            came_again = not answers[0].keys().isdisjoint(answers[1])
            if not partings or (came_again and chance > math.log(_PARTED_BY_CHANCE)):
                continue
            first = partings[0]
            found.append(PartedProbe(arm, number, first.token, first.before, first.after, chance))
    return tuple(sorted(found, key=lambda one: (one.probe, one.arm)))


def may_be_chance(parted: Iterable[PartedProbe]) -> bool:
    """Whether an unchanged engine may well part in these probes, taken together.

    One probe tells it by many answers, several by few.
    """
    return sum(one.log_chance for one in parted) > math.log(_PARTED_BY_CHANCE)


def probes_to_ask(found: Behaviour, beside: Behaviour | None) -> tuple[Probe, ...]:
    """The probes that each want one more answer; none once what was seen is enough.

    Those are what has more than one answer, and what parts from `beside` by chance as it may be:
    sooner or later an engine that has not changed gives an answer of that side again.
    """
    counts = {
        (arm, number): found.answers(arm, number)
        for arm, answers in found.arms.items()
        for number in range(len(answers))
    }
    further = {probe: sum(seen.values()) - found.runs for probe, seen in counts.items()}
    wanted = [one for one, seen in counts.items() if len(seen) > 1 and further[one] < _MORE]
    parted = () if beside is None else parted_probes(beside, found)
    if may_be_chance(parted):
        apart = ((one.arm, one.probe) for one in parted)
        wanted += [one for one in apart if further[one] < _MOST_MORE]
    return tuple(dict.fromkeys(wanted))


def moved_probes(before: Behaviour, after: Behaviour) -> tuple[MovedProbe, ...]:
    """The probes whose answers part by more than chance, and those whose log-probabilities differ
    by more than the coarser of the two steps.

    Arms that only one side has are left out; so is everything across two probe sets.
    """
    if before.probe_set != after.probe_set:
        return ()
    coarse = max(before.step, after.step)
    parted = parted_probes(before, after)
    is_another = not may_be_chance(parted)
    tokens = {(one.arm, one.probe): one.token for one in parted}
    found = []
    for arm in before.arms.keys() & after.arms.keys():
        for number, (old, new) in enumerate(zip(before.arms[arm], after.arms[arm], strict=False)):
            token = tokens.get((arm, number))
            # After another token everything is another text: only what stands before counts.
            pairs = zip(_common_logprobs(old, new), new.logprobs, strict=False)
            apart = max((abs(a - b) for a, b in pairs), default=0.0)
            if (is_another and token is not None) or apart > coarse:
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
    all_ways = _log_comb(of, after.asked)
    chances = (
        math.exp(_log_comb(apart, n) + _log_comb(of - apart, after.asked - n) - all_ways)
        for n in range(max(are, after.asked - of + apart), min(apart, after.asked) + 1)
    )
    if sum(chances) > _BY_CHANCE:
        return None
    agree = f"{after.agreement:.1%} of answers agree over {after.runs} runs"
    return f"{agree}, {before.agreement:.1%} did".replace("%", " %")


def _log_comb(of: int, chosen: int) -> float:
    """The natural logarithm of `math.comb`, in as much time for large numbers as for small."""
    return math.lgamma(of + 1) - math.lgamma(chosen + 1) - math.lgamma(of - chosen + 1)


def explain_incomparable(before: Behaviour, after: Behaviour) -> Iterator[str]:
    """Why two behaviours cannot be told to be the same, though no probe may have moved."""
    if before.probe_set != after.probe_set:
        yield f"behaviour: probe set {before.probe_set} was asked, and {after.probe_set} is"
        return
    if before.arms.keys() != after.arms.keys():
        names = ", ".join(sorted(before.arms.keys() ^ after.arms.keys()))
        why = "; ".join(dict.fromkeys((*before.missing, *after.missing)))
        yield f"behaviour: one side alone was asked for {names}" + (f" ({why})" if why else "")
    parted = parted_probes(before, after)
    if parted and may_be_chance(parted):
        yield _explain_chance(parted)
    if after.noise > _NOISIER * max(before.noise, FINEST):
        # Its own noise would hide whatever has moved: it decides how coarsely is compared.
        yield (
            f"behaviour: log-probabilities differ by up to {after.noise:.2g} from run to run,"
            f" where {before.noise:.2g} was seen: probe it again, without other traffic"
        )


def _explain_chance(parted: Sequence[PartedProbe]) -> str:
    one, more = parted[0], len(parted) - 1
    also = f", and {more} more" if more else ""
    remedy = (
        "pin it again with --behaviour, which keeps more answers"
        if one.after >= _MOST_MORE
        else "`specdeck fingerprint verify` asks an engine as often as it takes"
    )
    return (
        f"behaviour: probe {one.probe} ({one.arm}) has another token at {one.token}{also}, which"
        f" chance may do in {one.before} and {one.after} answers: {remedy}"
    )


def _common_logprobs(old: ProbeAnswer, new: ProbeAnswer) -> tuple[float, ...]:
    """The log-probabilities of `old` up to the first token that is another in `new`."""
    pairs = enumerate(zip(old.tokens, new.tokens, strict=False))
    end = next((n for n, (a, b) in pairs if a != b), len(old.tokens))
    return old.logprobs[:end]
