"""Probes of engines that exist as numbers: noise of a known size, and changes of known probes.

As in `noisy_arms`, an answer goes one way or the other at each *close call*, where two logits lie
`margin` apart and every ask adds noise of its own; after another token the text is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log

import numpy as np

from specdeck.engine.fingerprint.behaviour import (
    Behaviour,
    Probe,
    ProbeAnswer,
    probes_to_ask,
    settle,
)
from tests.support.noisy_arms import SIGMA

ARMS = ("serving", "target-only")
PROBES = TOKENS = 16
_WIDEST = 5 * SIGMA
_PARTS = 0.5642 * 2 / 10
"""The chance that two asks part at one close call."""


@dataclass(frozen=True, slots=True)
class NoisyProbes:
    """An engine's close calls, the same at every look."""

    calls: Mapping[Probe, tuple[tuple[int, float], ...]]
    """Of each probe, the places and their margins."""
    replaced: Mapping[Probe, int] = field(default_factory=dict)
    """Where a probe has another token, always."""
    shift: float = 0.0
    """Of every log-probability, in nats."""
    slips: float = 0.0
    """How often an answer has another token from its first on."""
    shakes: float = SIGMA / 3
    """How far log-probabilities differ from ask to ask: a standard deviation, in nats."""

    def ask(self, probe: Probe, random: np.random.Generator) -> ProbeAnswer:
        """One answer."""
        tokens = list(range(TOKENS))
        logprobs = -0.5 + self.shift + self.shakes * random.normal(size=TOKENS)
        for place, margin in self.calls[probe]:
            if margin + random.normal(0.0, SIGMA) > 0:
                tokens[place:] = [1000 + n + 100 * place for n in range(place, TOKENS)]
                break
        at = self.replaced.get(probe, TOKENS)
        if self.slips and random.random() < self.slips:
            at = 0
        tokens[at:] = [token + 100_000 for token in tokens[at:]]
        return ProbeAnswer(tuple(tokens), tuple(map(float, logprobs)))

    def look(
        self, random: np.random.Generator, beside: Behaviour | None = None
    ) -> tuple[Behaviour, int]:
        """What a probe of its behaviour brings, and how many further answers that took."""
        runs = {
            arm: [[self.ask((arm, n), random) for n in range(PROBES)] for _ in range(3)]
            for arm in ARMS
        }
        found = settle(runs, ())
        further: dict[Probe, list[ProbeAnswer]] = {}
        while wanted := probes_to_ask(found, beside):
            for probe in wanted:
                further.setdefault(probe, []).append(self.ask(probe, random))
            found = settle(runs, (), further)
        return found, sum(map(len, further.values()))


def noisy_probes(repeat: float, random: np.random.Generator) -> NoisyProbes:
    """An engine whose answers to one probe differ from ask to ask so often."""
    calls = {}
    for probe in ((arm, n) for arm in ARMS for n in range(PROBES)):
        count = random.poisson(-log(1 - repeat) / _PARTS)
        places = random.integers(TOKENS, size=count).tolist()
        margins = random.uniform(-_WIDEST, _WIDEST, count).tolist()
        calls[probe] = tuple(sorted(zip(places, margins, strict=True)))
    return NoisyProbes(calls)
