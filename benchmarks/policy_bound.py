"""What any policy loses at least where text shifts, since a shift shows in drafts alone.

    python -m benchmarks.policy_bound

The policy of this calculation knows both kinds of text, when they last, and what every k costs
and gives. All that it has to learn is that the text has changed. It learns that from the drafts
that a step verifies: with one stream it takes as many as tell the two kinds apart with an error
of 5 % (Wald), with more streams one step. The step after still verifies drafts of the k before,
which the oracle of `benchmarks.policy_regret` has with its first step as well. At k = 0 there are
no drafts, so that it either drafts a little all the time, or tries every so many steps: what is
least of all that is printed. A policy that has to learn what the texts are, too, loses more.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import ceil, log
from statistics import fmean
from typing import NamedTuple

from benchmarks.engines import table
from benchmarks.policy_gpu import K_MAX, PASS_S, TEXTS, target_s
from benchmarks.policy_simulation import RECORDED, easiest_first, records, sizes_of
from tests.support.recorded_steps import read_pools

ERROR = 0.05
_MOST_BETWEEN = 400
"""Steps between two tries at most."""


class Text(NamedTuple):
    """One kind of text at one batch size: by k, seconds of a step and what it commits."""

    seconds: Sequence[float]
    tokens: Sequence[float]
    shares: Sequence[float]
    """Drafts whose token at each position is accepted, of those whose token before it was."""

    def rate(self, k: int) -> float:
        """Tokens per second."""
        return self.tokens[k] / self.seconds[k]

    @property
    def best(self) -> int:
        """The k of the highest rate."""
        return max(range(len(self.seconds)), key=self.rate)


def tell_apart(seen: Text, other: Text, k: int) -> float:
    """Drafts of k tokens that it takes to see that the text is not `other`.

    >>> easy, hard = Text([], [], [0.9, 0.9]), Text([], [], [0.3, 0.3])
    >>> round(tell_apart(hard, easy, 2), 1), round(tell_apart(easy, hard, 2), 1)
    (2.0, 1.8)
    """
    information, reached = 0.0, 1.0
    for p, q in zip(seen.shares[:k], other.shares[:k], strict=True):
        p, q = (min(max(share, 0.01), 0.99) for share in (p, q))
        information += reached * (p * log(p / q) + (1 - p) * log((1 - p) / (1 - q)))
        reached *= p
    wanted = (1 - ERROR) * log((1 - ERROR) / ERROR) + ERROR * log(ERROR / (1 - ERROR))
    return wanted / information if information else float("inf")


def lose_at_shift(text: Text, k: int, before: int, steps: float) -> float:
    """Tokens that so many steps at the k before cost at the begin of a text, against `k`."""
    return max(0.0, steps * text.seconds[before] * (text.rate(k) - text.rate(before)))


def find_least(easy: Text, hard: Text, streams: int, every: float) -> tuple[float, str]:
    """The least regret, as a share, and by what it comes about."""
    oracle = every * (easy.rate(easy.best) + hard.rate(hard.best))
    found = []

    def steps_to_see(text: Text, other: Text, k: int) -> float:
        return ceil(tell_apart(text, other, k)) if streams == 1 else 1.0

    ks = range(len(easy.seconds))
    for high in ks:
        for low in range(1, high + 1):
            lost = every * (easy.rate(easy.best) - easy.rate(high))
            lost += every * (hard.rate(hard.best) - hard.rate(low))
            if high != low:
                lost += lose_at_shift(hard, low, high, steps_to_see(hard, easy, high))
                lost += lose_at_shift(easy, high, low, steps_to_see(easy, hard, low))
            words = f"k={high} always" if high == low else f"k={high}, and {low} on hard text"
            found.append((lost / oracle, words))
        for tried in range(1, high + 1):
            for between in range(4, _MOST_BETWEEN, 4):
                lost = every * (easy.rate(easy.best) - easy.rate(high))
                lost += every * (hard.rate(hard.best) - hard.rate(0))
                lost += lose_at_shift(hard, 0, high, steps_to_see(hard, easy, high))
                waits = between / 2 + steps_to_see(easy, hard, tried)
                lost += min(lose_at_shift(easy, high, 0, waits), every * easy.rate(high))
                tries = every / (between * hard.seconds[0])
                each = hard.seconds[tried] * hard.rate(0) - hard.tokens[tried]
                lost += tries * max(0.0, each) * steps_to_see(easy, hard, tried)
                found.append((lost / oracle, f"k={high}, or 0 and {tried} every {between} steps"))
    return min(found)


def read_recorded() -> dict[tuple[str, int], Text]:
    """The texts that were recorded on the demo engine."""
    pools = easiest_first(read_pools(records(RECORDED)))
    found = {}
    for (name, streams), cell in pools.items():
        deepest = [fmean(at) for at in zip(*[step[0] for step in cell.drafts[-1]], strict=True)]
        pairs = zip([streams, *deepest], deepest, strict=False)
        shares = [here / before if before else 0.0 for before, here in pairs]
        tokens = [cell.rate(streams, k) * cell.seconds[k] for k in range(len(cell.seconds))]
        found[name, streams] = Text(cell.seconds, tokens, shares)
    sizes = sizes_of(pools)
    return {key: text for key, text in found.items() if key[1] in sizes}


def make_gpu(name: str, streams: int) -> Text:
    """A text of the synthetic GPU."""
    (share,) = TEXTS[name]
    ks = range(K_MAX + 1)
    seconds = [target_s(streams * (1 + k)) + PASS_S * max(1, k) for k in ks]
    tokens = list(accumulate(streams * share**k for k in ks))
    return Text(seconds, tokens, [share] * K_MAX)


def main() -> None:
    """Prints the least regret of every load whose text shifts."""
    rows = []
    recorded = read_recorded()
    names = list(dict.fromkeys(name for name, _ in recorded))
    for streams in sorted({streams for _, streams in recorded}):
        for every in (10, 3, 1):
            least = find_least(recorded[names[0], streams], recorded[names[-1], streams],
                               streams, every)  # fmt: skip
            rows.append(["recorded", str(streams), f"{every} s", f"{least[0]:.1%}", least[1]])
    for streams in (1, 8, 32, 64):
        for every in (10, 3, 1):
            least = find_least(make_gpu("easy", streams), make_gpu("hard", streams), streams, every)
            rows.append(["synthetic GPU", str(streams), f"{every} s", f"{least[0]:.1%}", least[1]])
    print(table(["steps", "streams", "text shifts every", "regret at least", "with"], rows))


if __name__ == "__main__":
    main()
