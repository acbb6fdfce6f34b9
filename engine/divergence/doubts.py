"""What makes an upgrade gate's measurement no evidence, whatever its figures are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from specdeck.engine.divergence.baseline import Block
from specdeck.engine.divergence.verdict import IDLE
from specdeck.engine.protocol.messages import EngineState
from specdeck.engine.text import format_changes


@dataclass(frozen=True, slots=True)
class Doubt:
    """One engine that was not measured as the figures have it."""

    kind: Literal["replaced", "changed", "refused", "empty", "shared"]
    """`replaced`: another process answers at its URL than before, whatever it serves; `changed`:
    its knobs were turned, or its breaker moved; `refused`, `empty`: it would not answer, or
    answered without a token; `shared`: it served others meanwhile."""
    engine: str
    """Its URL."""
    count: int = 0
    """Requests that it refused, or answered so, while its speed was measured; blocks of them that
    it shared with others."""
    asked: int = 0
    """Requests of that time, or blocks."""
    before: Mapping[str, str | int] = field(default_factory=dict)
    """Its knobs before it was measured, where they were changed."""
    after: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """For one line.

        >>> Doubt("replaced", "http://e:1").line
        'http://e:1 was restarted or replaced while it was measured'
        >>> Doubt("refused", "http://e:1", 125, 250).line
        'http://e:1 refused 125 of 250 requests while it was measured'
        >>> Doubt("empty", "http://e:1", 125, 250).line
        'http://e:1 answered 125 of 250 requests without a token while it was measured'
        >>> Doubt("shared", "http://e:1", 12, 16).line
        'http://e:1 served others in 12 of 16 blocks while it was measured'
        >>> Doubt("changed", "http://e:1", before={"k": 8}, after={"k": 3}).line
        'http://e:1 was changed while it was measured: k 8 → 3'
        >>> Doubt("changed", "http://e:1", before={"k": 8}, after={"k": 8}).line
        'http://e:1 was changed while it was measured: to and fro'
        """
        share = f"{self.count} of {self.asked} requests"
        why = {
            "replaced": "was restarted or replaced",
            "changed": "was changed",
            "refused": f"refused {share}",
            "empty": f"answered {share} without a token",
            "shared": f"served others in {self.count} of {self.asked} blocks",
        }[self.kind]
        said = f"{self.engine} {why} while it was measured"
        if self.kind != "changed":
            return said
        return f"{said}: {format_changes(self.before, self.after, moved_only=True) or 'to and fro'}"


def doubt_answers(engine: str, refused: int, empty: int, asked: int) -> Iterator[Doubt]:
    """The doubts of an engine, a URL, that left more than a tenth of the requests unanswered.

    A check of as many empty answers is inconclusive as well, whatever the baseline's are.
    """
    if refused > IDLE * asked:
        yield Doubt("refused", engine, refused, asked)
    if empty > IDLE * asked:
        yield Doubt("empty", engine, empty, asked)


def doubt_blocks(engine: str, blocks: Sequence[Block]) -> Iterator[Doubt]:
    """The doubt of an engine, a URL, that served others in more than a tenth of the blocks: both
    speed and acceptance are of everybody's requests then."""
    shared = sum(block.is_shared for block in blocks)
    if shared > IDLE * len(blocks):
        yield Doubt("shared", engine, shared, len(blocks))


def doubt_changes(engine: str, before: EngineState, after: EngineState) -> Doubt | None:
    """The doubt of an engine, a URL, that served in two ways; None where its knobs stood still.

    Where its policy has k is its way of serving, and no turn of a knob. The breaker moves by
    itself as well, but the engine drafts nothing then. A restart counts versions anew.
    """
    was, now = _pick_knobs(before), _pick_knobs(after)
    is_restarted = before.instance != after.instance
    is_still = was == now and (is_restarted or before.version == after.version)
    return None if is_still else Doubt("changed", engine, before=was, after=now)


def _pick_knobs(state: EngineState) -> dict[str, str | int]:
    """What stands still in an engine that nobody turns, of every data-parallel rank."""
    knobs: dict[str, str | int] = {
        "k": state.k_set, "mode": state.mode, "fallback": state.fallback,
        "policy": state.policy, "breaker": state.breaker,
    }  # fmt: skip
    for rank in state.ranks:
        of_rank = {"mode": rank.mode, "policy": rank.policy, "breaker": rank.breaker}
        knobs |= {f"rank {rank.rank} {name}": value for name, value in of_rank.items()}
    return knobs
