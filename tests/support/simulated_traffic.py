"""An engine's traffic, simulated: requests of several kinds, their drafts, the scheduler's steps.

Requests differ as real ones do: each has an acceptance of its own, drawn around that of its kind,
so that its tokens resemble each other. Steps wander with the machine. What is planted is a function
of request and time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from specdeck.engine.plugin.cohorts import cached_word, length_word
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.cohorts import (
    Cohort,
    CohortCell,
    CohortCounts,
    Cohorts,
    no_counts,
    sum_counts,
)
from specdeck.engine.protocol.requests import RequestLine
from specdeck.engine.why.evidence import Baseline, Evidence
from specdeck.engine.why.gather import make_evidence
from specdeck.engine.why.step_profile import profile_steps
from tests.support.engine_state import engine_state

K = 5
T0 = 1_000_000.0
URL = "http://engine"


@dataclass(frozen=True, slots=True)
class Request:
    """What a request brings along."""

    prompt: int
    cached: int = 0
    output: int = 64
    adapter: str = "none"
    structured: str = "none"
    sampled: bool = False
    preemptions: int = 0


Draw = Callable[[Random], Request]
Accept = Callable[[Request, float], float]
"""What a kind of request has accepted of a drafted token, at seconds since the beginning."""
Slow = Callable[[float], float]
"""Seconds that a step takes more, at seconds since the beginning."""


def usual(random: Random) -> Request:
    """Mixed traffic in which nothing goes along with anything else."""
    prompt = int(2 ** random.uniform(5, 12))
    return Request(
        prompt=prompt,
        cached=int(prompt * random.choice([0, 0, 0, 0.3, 0.9])),
        output=random.randrange(24, 160),
        adapter=random.choice(["none", "none", "none", "sql"]),
        structured=random.choice(["none", "none", "none", "json", "regex"]),
        sampled=random.random() < 0.4,
    )


def well(request: Request, t: float) -> float:
    """Nothing is wrong."""
    return 0.72


def no_shift(t: float) -> float:
    """Every step takes what it takes."""
    return 0.0


def no_factor(t: float) -> float:
    """The machine is as quick as ever."""
    return 1.0


@dataclass
class Traffic:
    """One engine under load from `T0` on."""

    seed: int
    draw: Draw = usual
    accept: Accept = well
    slow: Slow = no_shift
    factor: Slow = no_factor
    rate: float = 6.0
    """Requests a second."""
    spread: float = 12.0
    """Of a request's acceptance around its kind's: the smaller, the less requests are alike."""
    batch: int = 8
    step_s: float = 0.02
    prefill_s: float = 2e-5
    """A prompt token."""
    k: int = K
    """The most tokens of a draft."""
    k_at: Callable[[float], int] | None = None
    """Tokens of the drafts of a request, at seconds since the beginning; `k` unless given."""
    random: Random = field(init=False)
    cells: dict[Cohort, CohortCounts] = field(default_factory=dict)
    lines: list[RequestLine] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    looks: list[Cohorts] = field(default_factory=list)
    t: float = 0.0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def run(self, seconds: float, *, pieces: int = 12) -> Traffic:
        """Goes on for so long, with a look at the beginning and after each piece."""
        if not self.looks:
            self.looks.append(self.tell())
        for _ in range(pieces):
            ends = self.t + seconds / pieces
            number = self._poisson(self.rate * seconds / pieces)
            at = sorted(self.random.uniform(self.t, ends) for _ in range(number))
            for when in at:
                self._finish(self.draw(self.random), when)
            self._step(self.t, ends)
            self.t = ends
            self.looks.append(self.tell())
        return self

    def forget(self) -> Traffic:
        """Begins to watch anew: the engine goes on."""
        self.looks = [self.looks[-1]]
        self.lines, self.steps = [], []
        return self

    def _poisson(self, mean: float) -> int:
        left, number = mean, 0
        while (left := left - self.random.expovariate(1.0)) > 0:
            number += 1
        return number

    def _finish(self, request: Request, t: float) -> None:
        mean = min(0.98, max(0.005, self.accept(request, t)))
        own = self.random.betavariate(mean * self.spread, (1 - mean) * self.spread)
        k = self.k if self.k_at is None else self.k_at(t)
        drafts, accepted, left = 0, [0] * self.k, request.output
        while left > 0:
            drafts += k > 0
            run = 0
            while run < k and self.random.random() < own:
                accepted[run] += 1
                run += 1
            left -= run + 1
        cohort = Cohort(
            length_word(request.prompt), cached_word(request.cached, request.prompt),
            length_word(request.output), request.adapter, request.structured,
            "sampled" if request.sampled else "greedy", "no", "length",
        )  # fmt: skip
        counts = CohortCounts(
            1, request.prompt, request.output, request.preemptions, drafts,
            (drafts,) * k + (0,) * (self.k - k), tuple(accepted),
        )  # fmt: skip
        had = self.cells.get(cohort, no_counts(self.k))
        self.cells[cohort] = sum_counts((had, counts), self.k)
        self.lines.append(RequestLine(
            len(self.lines), "length", 1.0, request.prompt, request.output, None, drafts,
            drafts * k, sum(accepted), request.preemptions, cohort.cached, cohort.adapter,
            cohort.structured, cohort.temperature, ended=T0 + t,
        ))  # fmt: skip
        self._pending = getattr(self, "_pending", 0) + request.prompt - request.cached
        self._pending += request.preemptions * (request.prompt + request.output // 2)

    def _step(self, start: float, end: float) -> None:
        t, wave = start, 0.0
        pending = getattr(self, "_pending", 0)
        share = pending / max(1.0, (end - start) / self.step_s)
        while t < end:
            wave = 0.9 * wave + self.random.gauss(0, 0.01)
            requests = max(1, self.batch + self.random.choice([-1, 0, 0, 0, 1]))
            prefill = 0
            if pending > 0 and self.random.random() < 0.25:
                prefill = min(pending, int(share * 4) + 1)
                pending -= prefill
            noise = self.random.lognormvariate(wave, 0.06)
            seconds = self.step_s * (1 + 0.01 * (requests - self.batch)) * noise
            seconds = (seconds + prefill * self.prefill_s) * self.factor(t) + self.slow(t)
            t += seconds
            self.steps.append(Step(
                len(self.steps), 500.0 + t, requests, requests * (1 + self.k) + prefill, self.k,
                requests, requests * self.k, requests * 2, seconds, requests * 3, (), prefill,
            ))  # fmt: skip
        self._pending = 0

    def tell(self) -> Cohorts:
        """The reply of `GET cohorts` now."""
        total = sum_counts(self.cells.values(), self.k)
        return Cohorts(
            "one", T0 + self.t, tuple(CohortCell(h, c) for h, c in self.cells.items()), (),
            no_counts(self.k), total.drafts, total.drafted_per_position,
            total.accepted_per_position,
        )  # fmt: skip

    def evidence(self, baseline: Baseline | None = None, **changes: object) -> Evidence:
        """What `gather` makes of it."""
        preempted = [line for line in self.lines if line.preemptions]
        found = make_evidence(
            URL, self.looks, self.lines[-600:], state=engine_state(started=T0, k=self.k),
            steps=self.steps[-4096:], baseline=baseline, t=T0 + self.t,
        )  # fmt: skip
        counted: Mapping[str, object] = {"preemptions": sum(x.preemptions for x in preempted)}
        return replace(found, **{**counted, **changes})  # type: ignore[arg-type]

    def as_baseline(self) -> Baseline:
        """What `--save` would keep."""
        found = self.evidence()
        return Baseline("file", found.span, found.spread, profile_steps(found.steps), found.facts)
