"""What makes an upgrade gate's measurement no evidence, whatever its figures are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from specdeck.engine.divergence.verdict import IDLE


@dataclass(frozen=True, slots=True)
class Doubt:
    """One engine that was not measured as the figures have it."""

    kind: Literal["replaced", "refused", "empty"]
    """`replaced`: another process answers at its URL than before, whatever it serves; `refused`,
    `empty`: it would not answer, or answered without a token."""
    engine: str
    """Its URL."""
    count: int = 0
    """Requests that it refused, or answered so, while its speed was measured."""
    asked: int = 0
    """Requests of that time."""

    @property
    def line(self) -> str:
        """For one line.

        >>> Doubt("replaced", "http://e:1").line
        'http://e:1 was restarted or replaced while it was measured'
        >>> Doubt("refused", "http://e:1", 125, 250).line
        'http://e:1 refused 125 of 250 requests while it was measured'
        >>> Doubt("empty", "http://e:1", 125, 250).line
        'http://e:1 answered 125 of 250 requests without a token while it was measured'
        """
        share = f"{self.count} of {self.asked} requests"
        why = {
            "replaced": "was restarted or replaced",
            "refused": f"refused {share}",
            "empty": f"answered {share} without a token",
        }[self.kind]
        return f"{self.engine} {why} while it was measured"


def doubt_answers(engine: str, refused: int, empty: int, asked: int) -> Iterator[Doubt]:
    """The doubts of an engine, a URL, that left more than a tenth of the requests unanswered.

    A check of as many empty answers is inconclusive as well, whatever the baseline's are.
    """
    if refused > IDLE * asked:
        yield Doubt("refused", engine, refused, asked)
    if empty > IDLE * asked:
        yield Doubt("empty", engine, empty, asked)
