"""The drafts of a whole step, entered for all of its requests at once.

A function that runs once for each draft costs more of a large batch than all else that specdeck
does in a step. What it would be told is in what vLLM hands over with the step: which requests had
drafts, and how many tokens came out for each. A usual step, whose drafts are all of one length,
is one row of bytes: for each request a number that stands for the two lengths. Rows are kept
until there are a few, and then go to the requests by column.

Nothing here is guessed: vLLM sums each step up by itself, and a row that does not come to the
same sums is not entered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from operator import iadd
from typing import NamedTuple

_DEEPEST = 20
"""The largest k_max for which one byte can tell both lengths of a draft."""
_NONE = 255
"""Of a request that had no draft in a step."""
_STRANGE = 254
"""Of one that was given more tokens than its draft allows."""
_ROWS = 8
"""Rows that are kept; more save little."""
_SPREAD = 32
"""Of one request in this many the log is entered into its tally with each lot of rows."""


class Sums(NamedTuple):
    """What vLLM counted in a step, or what a row comes to."""

    drafts: int
    drafted: int
    accepted: int


class _Pending(NamedTuple):
    """A step that vLLM is accounting for."""

    drafts: Mapping[str, Sequence[int]]
    lengths: bytes
    """Tokens that came out, by the rows of the batch."""
    k: int
    """The length of the drafts, if they have one."""


class StepTallies:
    """The rows of one scheduler's steps; `tallies` are those that they end up in.

    >>> tallies = {}
    >>> steps = StepTallies(3, tallies)
    >>> for name in "ab":
    ...     steps.open(name)
    >>> steps.begin(["a", "b"], {"a": [7, 7], "b": [7, 7]}, [[1, 2, 3], [1]])
    True
    >>> steps.enter(Sums(drafts=2, drafted=4, accepted=2))
    True
    >>> steps.fold()
    >>> tallies["a"]  # one draft of two tokens, two accepted
    [0, 0, 1, 0, 0, 0, 1, 0]
    """

    def __init__(self, k_max: int, tallies: dict[str, list[int]]) -> None:
        self._tallies = tallies
        self._size = 2 * (k_max + 1)
        self._accepted_from = k_max + 1
        self._codes = [_make_codes(k) for k in range(k_max + 1)] if k_max <= _DEEPEST else []
        self._seen_ks: list[int] = []
        """Lengths of drafts there were."""
        self._logs: dict[str, bytearray] = {}
        """Of unfinished requests, what is still to be entered into their tallies."""
        self._ids: list[str] = []
        self._columns: list[bytearray] = []
        """The logs by the rows of the last batch."""
        self._slices: list[slice] = []
        self._rows: list[bytes] = []
        self._pending: _Pending | None = None
        self._turn = self._unfolded = 0

    def open(self, request_id: str) -> None:
        """Takes a request; one that is not taken keeps its steps from being entered."""
        self._logs.setdefault(request_id, bytearray())

    def close(self, request_id: str) -> None:
        """Enters all that a request had into its tally, and lets go of it."""
        if request_id in self._logs:
            self._flush()
            self._fold(request_id, self._logs.pop(request_id))
            self._ids = []  # its row is another one's from now on

    def clear(self) -> None:
        """Lets go of everything."""
        self._logs.clear()
        self._ids, self._columns, self._rows, self._pending = [], [], [], None

    def begin(
        self,
        ids: Sequence[str],
        drafts: Mapping[str, Sequence[int]],
        sampled: Sequence[Sequence[int]],
    ) -> bool:
        """Looks at a step before vLLM accounts for it, which shortens what came out.

        Whether `enter` can tell whose its drafts were: not where a request of it has ended.
        """
        if not self._codes or len(ids) != len(sampled):
            return False
        if ids != self._ids:
            self._flush()
            columns = list(map(self._logs.get, ids))
            if None in columns:
                self._ids = []
                return False
            self._ids = list(ids)
            self._columns = columns  # type: ignore[assignment]
            if len(self._slices) != len(ids):
                self._slices = [slice(row, None, len(ids)) for row in range(len(ids))]
        self._pending = _Pending(drafts, bytes(map(len, sampled)), len(next(iter(drafts.values()))))
        return True

    def enter(self, counted: Sums) -> bool:
        """Enters the step that began if it comes to what vLLM `counted`; whether it did."""
        pending, self._pending = self._pending, None
        assert pending is not None
        drafts, lengths, k = pending
        row, rows = lengths.translate(self._codes[k]), len(lengths)
        if len(drafts) != rows:
            codes = bytearray(row)
            for at in [at for at, name in enumerate(self._ids) if name not in drafts]:
                codes[at] = _NONE
            row = bytes(codes)
        none = row.count(_NONE)
        entered = rows - none
        accepted = sum(row) - none * _NONE - entered * _first(k)
        if counted == (entered, k * entered, accepted) and _STRANGE not in row:
            if k not in self._seen_ks:
                self._seen_ks.insert(0, k)
            self._rows.append(row)
            if len(self._rows) >= _ROWS:
                self._flush()
            return True
        return self._enter_each(drafts, lengths, counted)

    def _enter_each(
        self, drafts: Mapping[str, Sequence[int]], lengths: bytes, counted: Sums
    ) -> bool:
        """The same where drafts are of several lengths."""
        found = [
            (name, len(draft), length - 1)
            for name, length in zip(self._ids, lengths, strict=True)
            if length and (draft := drafts.get(name))
        ]
        sums = Sums(len(found), sum([d for _, d, _ in found]), sum([a for _, _, a in found]))
        if sums != counted or any(accepted > drafted for _, drafted, accepted in found):
            return False
        for name, drafted, accepted in found:
            tally = self._tally(name)
            tally[drafted] += 1
            tally[self._accepted_from + accepted] += 1
        return True

    def fold(self) -> None:
        """Enters everything into the tallies."""
        self._flush()
        for name, log in self._logs.items():
            self._fold(name, log)

    def _flush(self) -> None:
        """Gives the rows to the requests, each its column."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        columns = self._columns
        if len(rows) == 1:
            deque(map(bytearray.append, columns, rows[0]), maxlen=0)
        else:
            joined = b"".join(rows)
            deque(map(iadd, columns, map(joined.__getitem__, self._slices)), maxlen=0)
        self._unfolded += len(rows)
        if self._unfolded < _ROWS:
            return
        self._unfolded = 0
        turn = self._turn = (self._turn + 1) % _SPREAD
        for name, log in zip(self._ids[turn::_SPREAD], columns[turn::_SPREAD], strict=False):
            self._fold(name, log)

    def _fold(self, name: str, log: bytearray) -> None:
        """Enters what a request had into its tally."""
        left = len(log) - log.count(_NONE)
        if left:
            tally = self._tally(name)
            for k in self._seen_ks:
                first = _first(k)
                for accepted in range(k + 1):
                    count = log.count(first + accepted)
                    if count:
                        tally[k] += count
                        tally[self._accepted_from + accepted] += count
                        left -= count
                if not left:
                    break
        log.clear()

    def _tally(self, name: str) -> list[int]:
        tally = self._tallies.get(name)
        if tally is None:
            tally = self._tallies[name] = [0] * self._size
        return tally


def _first(k: int) -> int:
    """The number of a draft of k tokens of which none was accepted; one more for each that was.

    >>> [_first(k) for k in (0, 1, 2, 20)]
    [0, 1, 3, 210]
    """
    return k * (k + 1) // 2


def _make_codes(k: int) -> bytes:
    """What a number of tokens that came out stands for, where drafts have k of them."""
    accepted = [_first(k) + number for number in range(k + 1)]
    return bytes([_NONE, *accepted, *[_STRANGE] * (255 - len(accepted))])
