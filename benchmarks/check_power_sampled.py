"""What `check --sampled` finds, and how often it accuses an honest engine: simulated, no engine.

    python -m benchmarks.check_power_sampled [--runs 200] [--whole 20]

Draws of a made-up language model (see `tests.support.sampled_draws`) go through the check's own
decision functions: the scores by likelihood for `--runs` checks of each kind, and the whole verdict
with its G-test for `--whole` of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from benchmarks.engines import table
from tests.support.sampled_draws import HONEST, Fault, Language, draw_arms, score_draws

from specdeck.engine.divergence.sampled import (
    ALPHA,
    PromptTest,
    Sampling,
    correct_p_values,
    judge_draws,
    p_value,
    permute,
)
from specdeck.engine.divergence.scoring import Scores

PROMPTS = 20
ROUNDS = int(3 / ALPHA) * (PROMPTS + 1)


@dataclass(frozen=True, slots=True)
class Kind:
    """One line of the table."""

    name: str
    fault: Fault = HONEST
    noise: float = 0.0
    temperature: float = 1.0


KINDS = (
    Kind("honest"),
    Kind("honest, arms round otherwise by 0.1", noise=0.1),
    Kind("honest, arms round otherwise by 0.25", noise=0.25),
    Kind("honest at T = 0.7", temperature=0.7),
    Kind("honest at T = 1.5", temperature=1.5),
    Kind("T = 0.9 for 1.0", Fault(temperature=0.9)),
    Kind("T = 0.95 for 1.0", Fault(temperature=0.95)),
    Kind("T = 0.97 for 1.0", Fault(temperature=0.97)),
    Kind("T = 1.05 for 1.0", Fault(temperature=1.05)),
    Kind("20 % of tokens drafts unchecked", Fault(unchecked=0.2)),
    Kind("10 % of tokens drafts unchecked", Fault(unchecked=0.1)),
    Kind("5 % of tokens drafts unchecked", Fault(unchecked=0.05)),
    Kind("5 % of tokens flat drafts unchecked", Fault(unchecked=0.05, flat=True)),
    Kind("2 % of tokens flat drafts unchecked", Fault(unchecked=0.02, flat=True)),
)


def judge_by_score(scores: Scores) -> str:
    """The verdict's word where the G-test sees nothing."""
    return judge_draws([1.0], [1.0], scores).word


def judge_whole(arms: list[tuple[np.ndarray, np.ndarray]], scores: Scores, seed: int) -> str:
    """The verdict's word with the G-test of each prompt and of all."""
    random = np.random.default_rng(seed)
    sums, controls = np.zeros(ROUNDS + 1), np.zeros(ROUNDS + 1)
    tested: list[PromptTest] = []
    for number in range(PROMPTS):
        serving, reference, again = ([tuple(d) for d in arm[0][number]] for arm in arms)
        one = permute(serving, reference, ROUNDS, random)
        other = permute(again, reference, ROUNDS, random)
        sums += one
        controls += other
        tested.append(PromptTest(number, "", p_value(one), p_value(other)))
    return judge_draws(
        correct_p_values(tested, p_value(sums), control=False),
        correct_p_values(tested, p_value(controls), control=True),
        scores,
    ).word


def measure(kind: Kind, runs: int, whole: int) -> list[str]:
    """The row of one kind."""
    language = Language(1, temperature=kind.temperature)
    by_score: list[str] = []
    with_g: list[str] = []
    seen = ""
    for seed in range(runs):
        arms = draw_arms(
            language, seed, prompts=PROMPTS, fault=kind.fault, noise=kind.noise, asked=Sampling()
        )
        scores = score_draws(language, arms)
        by_score.append(judge_by_score(scores))
        if seed < whole:
            with_g.append(judge_whole(arms, scores, seed))
        if not seed:
            seen = scores.visible(alpha=ALPHA / 2).line()
    return [kind.name, *shares(by_score), *shares(with_g), seen]


def shares(words: list[str]) -> Iterator[str]:
    """How many of the verdicts fail, and how many come to no end."""
    yield f"{words.count('fail')} of {len(words)}"
    yield str(words.count("inconclusive"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--whole", type=int, default=20)
    options = parser.parse_args()
    rows = []
    for kind in KINDS:
        rows.append(measure(kind, options.runs, options.whole))
        print(rows[-1], file=sys.stderr, flush=True)
    head = ["serving arm", "fail by likelihood", "inconclusive", "fail with the G-test",
            "inconclusive", "said to be visible"]  # fmt: skip
    print(table(head, rows))


if __name__ == "__main__":
    main()
