"""A synthetic GPU for `benchmarks.policy_simulation`: what steps take and accept, by constants.

No engine was measured. The constants are those of a mid-sized model on one large GPU: the
weights have to be read in every step, whatever it holds (the floor); beyond some 240 tokens
the arithmetic takes longer than that; up to the largest CUDA graph a step is padded to the
next size that was captured; every drafted position is one pass of the drafter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from math import exp, lgamma, log, log1p
from random import Random
from typing import NamedTuple

from benchmarks.policy_regret import Load

from specdeck.engine.policy.step import Step

K_MAX = 7
FLOOR_S = 0.012
"""Of a step that is bound by memory."""
TOKEN_S = 0.000_05
"""Of each token, where a step is bound by arithmetic."""
PASS_S = 0.000_8
"""Of one pass of the drafter. With k = 0 there is one as well: it stays in step."""
SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Tokens for which a graph was captured, as vLLM chooses them by default."""
BUDGET = 2048
"""The most tokens of a step, prompts included."""
PROMPT = (128, 672)
"""The shortest and the longest prompt, tokens; all lengths between are as likely."""
NOISE, HICCUP, HICCUP_TIMES = 0.03, 0.005, 2.5

TEXTS: dict[str, tuple[float, ...]] = {
    "easy": (0.9,),
    "middling": (0.6,),
    "hard": (0.3,),
    "half": (0.95, 0.3),
}
"""Share of drafted tokens accepted, given the ones before, by groups of requests as large."""


class Segment(NamedTuple):
    """A stretch of load."""

    text: str
    requests: int
    seconds: float
    prompts: float = 0.0
    """The share of steps that carry a prompt, whatever k is."""
    answer: float | None = None
    """Mean tokens of an answer after which its seat takes the next prompt; None for no end.

    Prompts follow the tokens handed out then, so there are more in a step of a deeper k.
    """
    jitter: float = 0.0
    """By how much the number of requests varies, as a share."""


def target_s(tokens: int) -> float:
    """Seconds of the target's forward pass.

    >>> [round(1e3 * target_s(tokens), 2) for tokens in (1, 200, 241, 256, 257, 1000)]
    [12.0, 12.0, 12.4, 12.8, 13.6, 50.0]
    """
    padded = SIZES[bisect_left(SIZES, tokens)] if tokens <= SIZES[-1] else tokens
    return max(FLOOR_S, TOKEN_S * padded)


class GpuEngine:
    """Plays steps of a segment; every k meets the same text, noise and prompts by step number."""

    k_max = K_MAX

    def __init__(self) -> None:
        self.t = 0.0
        self._verified = 0
        self._same = False
        self._waiting: list[int] = []

    def begin(self, segment: Segment, seed: str) -> None:
        """Goes on with `segment`; equal seeds give equal chances at equal step numbers."""
        self._segment = segment
        self._random = Random(seed)
        self._size = segment.requests
        self._drawn = self._decoding = self._ready = 0
        self._carried: list[int] = []

    def requests(self) -> int:
        """How many requests the next step has."""
        segment, draw = self._segment, self._random.random
        if segment.jitter and self._drawn % 4 == 0:
            low, high = 1 - segment.jitter, 1 + segment.jitter
            self._size = round(segment.requests * (low + (high - low) * draw()))
        self._drawn += 1
        self._carried = []
        if segment.prompts:
            come = draw() < segment.prompts
            prompt = _prompt(draw())
            self._carried = [prompt] if come else []
            self._decoding, self._ready = self._size, len(self._carried)
            return self._size + self._ready
        self._decoding = self._size - len(self._waiting)
        free, self._ready = BUDGET - self._decoding * (1 + self._verified), 0
        while self._waiting and free > 0:
            chunk = min(free, self._waiting[0])
            free -= chunk
            self._carried.append(chunk)
            self._waiting[0] -= chunk
            if not self._waiting[0]:
                del self._waiting[0]
                self._ready += 1
        return self._decoding + len(self._carried)

    def step(self, requests: int, k: int) -> Step:
        """The step of so many requests at `k`."""
        segment, random = self._segment, self._random
        verified, self._verified = self._verified, k
        settled, self._same = verified == k, verified == k
        noise = exp(random.gauss(0, NOISE))
        if random.random() < HICCUP:
            noise *= HICCUP_TIMES
        decoding = self._decoding
        shares = TEXTS[segment.text]
        accepted = [0] * K_MAX
        for group, share in enumerate(shares):
            here = decoding * (group + 1) // len(shares) - decoding * group // len(shares)
            for position in range(K_MAX):
                chance = random.random()
                if position < verified and here:
                    here = bisect_left(_chances(here, share), chance)
                    accepted[position] += here
        prompt = sum(self._carried)
        drafted = decoding * verified
        tokens = decoding + drafted + prompt
        seconds = (target_s(tokens) + PASS_S * max(1, k)) * noise
        total = sum(accepted)
        committed = decoding + total + self._ready
        if segment.answer:
            ended = bisect_left(_chances(committed, 1 / segment.answer), random.random())
            for _ in range(min(ended, decoding)):
                self._waiting.append(_prompt(random.random()))
        self.t += seconds
        return Step(
            0, self.t, requests, tokens, k, decoding if verified else 0, drafted, total,
            seconds, committed, tuple(accepted), max(0, prompt - len(self._carried)), verified,
            settled,
        )  # fmt: skip


def _prompt(chance: float) -> int:
    return int(PROMPT[0] + chance * (PROMPT[1] - PROMPT[0]))


_CHANCES: dict[tuple[int, float], list[float]] = {}


def _chances(count: int, share: float) -> list[float]:
    """The distribution function of the binomial distribution."""
    found = _CHANCES.get((count, share))
    if found is None:
        good, bad, all_of = log(share), log1p(-share), lgamma(count + 1)
        found = list(
            accumulate(
                exp(all_of - lgamma(n + 1) - lgamma(count - n + 1) + n * good + (count - n) * bad)
                for n in range(count + 1)
            )
        )
        found[-1] = 1.0
        _CHANCES[count, share] = found
    return found


def loads(seconds: float) -> Iterator[Load]:
    """The cells of the table, steady ones of so many seconds."""
    for text in TEXTS:
        for size in (1, 8, 32, 64, 128, 256):
            if text != "half" or size > 1:
                for share in (0.0, 0.5, 0.95, 1.0):
                    name = f"{text} {size}, {share:.0%} prompts"
                    yield Load(name, [Segment(text, size, seconds, share)])
    for size, answer in ((256, 150), (256, 40), (64, 150), (64, 30), (12, 12)):
        for text in ("easy", "hard"):
            name = f"{text} {size} seats, answers of {answer}"
            yield Load(name, [Segment(text, size, seconds, answer=answer)])
    for text in ("easy", "hard", "half"):
        yield Load(f"{text} 100 ± 10 %", [Segment(text, 100, seconds, jitter=0.1)])
    for every in (1, 3, 10):
        for size in (1, 8, 32, 64):
            both = [Segment(text, size, every) for text in ("easy", "hard")]
            times = int(seconds / every / 2)
            yield Load(f"easy/hard {size}, each {every} s", both * times, shifting=every == 1)
        sizes = [Segment("middling", size, every) for size in (8, 128, 32, 256)]
        yield Load(f"batch 8/128/32/256, each {every} s", sizes * max(1, int(seconds / every / 4)))
