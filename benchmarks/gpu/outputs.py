"""Greedy outputs held against each other, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.engines import middle
from benchmarks.gpu.report import Report

NEAR = 0.125
"""Nats between the two likeliest tokens up to which bfloat16 may have either."""


@dataclass(frozen=True, slots=True)
class Output:
    """One greedy answer."""

    tokens: tuple[int, ...]
    margins: tuple[float | None, ...] = ()
    """Nats by which each token was ahead of the next likeliest; empty where nobody asked."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Flight:
    """What streams brought while something was done to their engine."""

    outputs: list[tuple[int, Output]]
    """With the number of the prompt that each answers."""
    failed: list[str]
    """Requests that the engine did not answer as it should."""

    def check(self, report: Report, name: str = "") -> None:
        """What must hold of it on any machine."""
        negative = count_negative([output for _, output in self.outputs])
        report.check(f"{name}no request failed", not self.failed, "; ".join(self.failed[:3]))
        report.check(f"{name}no token id below 0", not negative, str(negative or ""))


@dataclass(frozen=True, slots=True)
class Differences:
    """Outputs held against what they should be, token by token."""

    outputs: int
    margins: tuple[float | None, ...]
    """For each output that differs, how far the likeliest token was ahead where it first does."""

    @property
    def differ(self) -> int:
        """Outputs that are not what they should be."""
        return len(self.margins)

    def as_cell(self) -> str:
        """For a table.

        >>> Differences(8, ()).as_cell(), Differences(8, (0.05, 0.5, None)).as_cell()
        ('0 of 8', '3 of 8 (margin up to 0.500; 1 above 0.125)')
        """
        known = [margin for margin in self.margins if margin is not None]
        if not known:
            return f"{self.differ} of {self.outputs}"
        far = sum(margin > NEAR for margin in known)
        return (
            f"{self.differ} of {self.outputs} (margin up to {max(known):.3f}; {far} above {NEAR})"
        )


def compare(wanted: Sequence[Output], found: Sequence[tuple[int, Output]]) -> Differences:
    """Outputs with the number of the prompt that each answers, against those of all prompts.

    >>> wanted = [Output((1, 2, 3), (0.5, 0.25, 0.75))]
    >>> compare(wanted, [(0, Output((1, 2, 3))), (0, Output((1, 9, 9)))])
    Differences(outputs=2, margins=(0.25,))
    """
    margins = [
        _margin_at_first(wanted[number], output)
        for number, output in found
        if output.tokens != wanted[number].tokens
    ]
    return Differences(len(found), tuple(margins))


def compare_all(wanted: Sequence[Output], found: Sequence[Output]) -> Differences:
    """Outputs of the same prompts in the same order."""
    return compare(wanted, list(enumerate(found)))


def _margin_at_first(wanted: Output, found: Output) -> float | None:
    pairs = zip(wanted.tokens, found.tokens, strict=False)
    first = next((at for at, (a, b) in enumerate(pairs) if a != b), None)
    return None if first is None or first >= len(wanted.margins) else wanted.margins[first]


def with_margins(output: Output, told: Output) -> Output:
    """`output` with the margins of `told`, the same but for what asking for them may change.

    They hold as far as the tokens are equal, and for the first that is not.

    >>> with_margins(Output((1, 2, 3)), Output((1, 9, 9), (0.5, 0.25, 0.75))).margins
    (0.5, 0.25)
    """
    pairs = zip(output.tokens, told.tokens, strict=False)
    same = next((at + 1 for at, (a, b) in enumerate(pairs) if a != b), len(output.tokens))
    return Output(output.tokens, told.margins[:same], output.text)


def count_negative(outputs: Sequence[Output]) -> int:
    """Token ids below 0, which no vocabulary has: placeholders that were handed out."""
    return sum(token < 0 for output in outputs for token in output.tokens)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie.

    >>> quantile([3.0, 1.0, 2.0], 0.5), quantile([1.0, 2.0, 3.0, 4.0], 0.99)
    (2.0, 4.0)
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def milliseconds(values: Sequence[float]) -> str:
    """The median and its count, of seconds; a dash for none.

    >>> milliseconds([0.004, 0.005, 0.1]), milliseconds([])
    ('5.00 (3)', '–')
    """
    return f"{middle(list(values)) * 1000:.2f} ({len(values)})" if values else "–"
