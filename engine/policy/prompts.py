"""How many prompt tokens steps carry, and how that would change with k.

A step that answers more tokens ends more answers, and where requests wait, each makes room
for the next prompt: prompts follow the tokens handed out. Where as many prompts come as may
be computed, or no more than clients send, a step carries as many at any k. Which of the two
it is shows when k is another one for a few steps: the prompt tokens of these are compared with
those of the steps before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log1p, sqrt

from specdeck.engine.policy.cost import NO_PROMPTS, Prompts
from specdeck.engine.policy.step import Step

_MEMORY_STEPS = 96.0
_FEWEST = 0.004
"""The share of steps with prompts below which there are as good as none."""
_MOST = 0.98
"""The share that stands for all: how many prompts come at once cannot be told from it."""
_SHORTEST = 4
"""Steps of a stretch at one k that is compared with what was before."""
_LAG = 2
"""Settled steps whose prompts are those of answers that ended at the k before."""
_KNOWN_STEPS = 24
"""Those before it that it is compared with, at least, whatever their k was: where many k's are
tried, none of them lasts as long."""
_KNOWN_MEMORY = 96.0
"""Steps after which those count a third: load drifts."""
_LONGEST = 192
_RECENT_S = 30.0
_MOST_WEIGHT = 8.0
"""What one comparison says at most, as an inverse squared error: load drifts as well."""
_FOLLOWS = 0.7
_FOLLOWS_ERROR2 = 0.5**2
"""What is taken of `follows` before anything was seen, and the squared error of it."""
_FORGETS = 0.03
"""What a comparison replaces of those before, if it says as much as a squared error of 1."""
_BY_CHANCE = 2.0
"""Standard errors by which a comparison may lie beyond what is possible: others are cut there."""


class _Stretch:
    """Steps in a row that verified drafts of one length, those just after the turn left out.

    Or all of such stretches, of any length of drafts, as far as they are not yet forgotten.
    """

    __slots__ = ("accepted", "committed", "ended", "prompt", "squares", "steps", "verified")

    def __init__(self, verified: int) -> None:
        self.verified = verified
        self.steps = self.prompt = self.squares = self.committed = self.accepted = 0.0
        self.ended = 0.0

    def add(self, step: Step) -> None:
        """Counts a step."""
        self.steps += 1
        self.prompt += step.prefill
        self.squares += step.prefill * step.prefill
        self.committed += step.committed
        self.accepted += step.accepted
        self.ended = step.t

    def join(self, later: _Stretch) -> None:
        """Counts the steps of another one as well; those before fade."""
        keep = exp(-later.steps / _KNOWN_MEMORY)
        self.steps = keep * self.steps + later.steps
        self.prompt = keep * self.prompt + later.prompt
        self.squares = keep * self.squares + later.squares
        self.committed = keep * self.committed + later.committed
        self.accepted = keep * self.accepted + later.accepted
        self.ended = later.ended

    @property
    def mean(self) -> float:
        """Prompt tokens of a step."""
        return self.prompt / self.steps

    @property
    def variance(self) -> float:
        """Of the prompt tokens of a step, as that of steps that come by chance."""
        return self.squares / self.steps - self.mean**2

    @property
    def tokens(self) -> float:
        """Committed tokens of a request in a step; 0 where only prompts were computed."""
        return self.committed / max(1, self.committed - self.accepted)


class PromptMix:
    """Watches the steps of one engine.

    >>> def step(verified, prompt):
    ...     return Step(1, 0.0, 8, 8 + prompt, 3, 8, 24, 8, 0.02, 16, (8, 0, 0), prompt, verified)
    >>> mix = PromptMix()
    >>> mix.kinds(2.0)
    ((1.0, 0),)
    >>> mix.add([step(3, prompt) for prompt in (0, 300) * 100])
    >>> [(round(share, 2), prompt) for share, prompt in mix.kinds(mix.tokens)]
    [(0.5, 0), (0.5, 304)]
    >>> round(mix.mean)
    150
    """

    def __init__(self) -> None:
        self.tokens = 1.0
        """Committed tokens of a request in a step, of late."""
        self.mean = 0.0
        """Prompt tokens of a step, of late."""
        self._steps = self._share = self._squares = 0.0
        self._stretch = _Stretch(-1)
        self._known = _Stretch(-1)
        self._turned = 0
        """Settled steps since k turned."""
        self._seen = self._weight = 0.0
        self._shape: tuple[float, float, float, float] | None = None
        """What `kinds` is found from at any number of tokens; None until somebody asks."""
        self.version = 0
        """Counts what may have changed `kinds`; it stands still while there are no prompts."""

    @property
    def any(self) -> bool:
        """Whether there are prompts worth a thought in the steps of late."""
        return self._share > 0

    @property
    def follows(self) -> float:
        """By which power of the tokens handed out the prompts of a step grow: 0 to 1."""
        found = (_FOLLOWS / _FOLLOWS_ERROR2 + self._seen) / (1 / _FOLLOWS_ERROR2 + self._weight)
        return max(0.0, min(1.0, found))

    def add(self, steps: Sequence[Step]) -> None:
        """Takes in successive steps."""
        loads = [step.prefill for step in steps]
        count, prompt = len(loads), sum(loads)
        if not prompt and not self._share:
            return
        self.version += 1
        self._shape = None
        keep = exp(-count / _MEMORY_STEPS)
        steps_before, self._steps = self._steps * keep, self._steps * keep + count
        old = steps_before / self._steps
        self._share = old * self._share + sum([load > 0 for load in loads]) / self._steps
        self.mean = old * self.mean + prompt / self._steps
        self._squares = old * self._squares + sum([load * load for load in loads]) / self._steps
        if tokens := _tokens(steps):  # parts of a long prompt hand out none, and tell nothing
            self.tokens = old * self.tokens + (1 - old) * tokens
        if not prompt and self._share < _FEWEST:
            self._share = self.mean = self._squares = 0.0
        for step in steps:
            self._follow(step)

    def _follow(self, step: Step) -> None:
        """Holds each stretch, once it is over, against all those before it."""
        present = self._stretch
        if step.verified != present.verified or present.steps >= _LONGEST:
            if present.steps >= _SHORTEST:
                self._compare(present)
            if step.verified != present.verified:
                self._turned = 0
            present = self._stretch = _Stretch(step.verified)
        if step.settled:
            self._turned += 1
            if self._turned > _LAG:
                present.add(step)

    def _compare(self, present: _Stretch) -> None:
        before = self._known
        if present.ended - before.ended > _RECENT_S:
            before = self._known = _Stretch(-1)
        known = before.steps >= _KNOWN_STEPS and before.prompt and before.committed
        if known and present.committed:
            differs = before.mean * (present.tokens / before.tokens - 1)
            variance = before.variance * (1 / present.steps + 1 / before.steps)
            if variance > 0:
                weight = min(_MOST_WEIGHT, differs * differs / variance)
                if weight:
                    slack, keep = _BY_CHANCE / sqrt(weight), 1 - _FORGETS * min(1.0, weight)
                    moved = (present.mean - before.mean) / differs
                    self._seen = keep * self._seen + weight * max(-slack, min(1 + slack, moved))
                    self._weight = keep * self._weight + weight
        self._known.join(present)

    def kinds(self, tokens: float) -> Prompts:
        """The kinds of steps there are where a step hands out so many tokens to a request."""
        if not self._share:
            return NO_PROMPTS
        if self._shape is None:
            self._shape = self._find_shape()
        follows, chance, mean, deviation = self._shape
        ratio: float = (tokens / self.tokens) ** follows
        events = chance * ratio
        share = 1 - exp(-events) if self._share < _MOST or ratio < 1 else self._share
        prompt = self.mean * ratio / share
        spread = deviation * prompt / mean
        if spread < 0.1 * prompt:
            laden: Prompts = ((share, _round(prompt)),)
        else:
            laden = ((share / 2, _round(prompt - spread)), (share / 2, _round(prompt + spread)))
        return laden if share > 0.999 else ((1 - share, 0), *laden)

    def _find_shape(self) -> tuple[float, float, float, float]:
        """`follows`, how many prompts come to a step, and the mean and deviation of one."""
        mean = self.mean / self._share
        deviation = sqrt(max(0.0, self._squares / self._share - mean * mean))
        return self.follows, -log1p(-min(self._share, _MOST)), mean, deviation


def _tokens(steps: Sequence[Step]) -> float:
    """Committed tokens of a request in a step: those that would have been without drafts are 1.

    0 where no request was handed any.
    """
    committed = sum([step.committed for step in steps])
    return committed / max(1, committed - sum([step.accepted for step in steps]))


def _round(prompt: float) -> int:
    """A prompt to a sixteenth part, so that few of them are worked out."""
    whole = max(1, round(prompt))
    grain = 1 << max(0, whole.bit_length() - 5)
    return max(1, round(whole / grain) * grain)
