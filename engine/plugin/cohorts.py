"""Finished requests in a bounded number of cells, by the kind of request.

There are more kinds than anybody could keep: whoever sends requests chooses most of what makes
one. So 512 are told apart at a time, and one that was not seen for longest is folded when another
comes: of what was folded, each dimension keeps its words, of which there are few. Nothing is lost
from any sum by that. An adapter's name is the only word that somebody thought up; the 16 most
seen are told apart, the rest are one word.

A request's drafts come as a *tally*: how many drafts had each length, then how many had each
number of accepted tokens. Entering one takes two additions, and positions follow from it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Any, NamedTuple

from specdeck.engine.protocol.cohorts import (
    DIMENSIONS,
    MOST_ADAPTERS,
    MOST_CELLS,
    NONE,
    OTHER,
    Cohort,
    CohortCell,
    CohortCounts,
    Cohorts,
    CohortWord,
)

Key = tuple[str, ...]
"""The words of a cohort, in the order of the dimensions; a tuple is the quickest to make."""

_ADAPTER = DIMENSIONS.index("adapter")
_LONGEST_NAME = 64
_WATCHED = 64
"""Adapters without a word of their own whose requests are counted, to see who deserves one."""
_CLEARLY = 2
"""A newcomer takes an adapter's word when it was seen so many times as often, so that two that
are seen alike do not fold each other's cells by turns."""

EMPTY_PROMPT = "0"


def _words_by_bits() -> tuple[str, ...]:
    """The word of a number by how many bits it has: powers of four hold two of them each."""
    bounds = [4**power for power in range(10)]
    words = [EMPTY_PROMPT, *(f"{low}-{low * 4 - 1}" for low in bounds[:-1]), f"{bounds[-1]}+"]
    return tuple(words[min((bits + 1) // 2, len(words) - 1)] for bits in range(64))


_BY_BITS = _words_by_bits()
_SHARES = ("1-24%", "25-49%", "50-74%", "75-100%")


def length_word(tokens: int) -> str:
    """The word of a number of tokens, by powers of four.

    >>> [length_word(n) for n in (0, 1, 3, 4, 255, 256, 5000, 10**6)]
    ['0', '1-3', '1-3', '4-15', '64-255', '256-1023', '4096-16383', '262144+']
    """
    return _BY_BITS[min(tokens.bit_length(), 63)]


def cached_word(cached: int | None, tokens: int) -> str:
    """The word of a share of a prompt of so many `tokens`; None where it is not known.

    >>> [cached_word(n, 100) for n in (None, 0, 1, 25, 99, 100)]
    ['other', '0%', '1-24%', '25-49%', '75-100%', '75-100%']
    """
    if cached is None or tokens <= 0:
        return OTHER
    return "0%" if cached <= 0 else _SHARES[min(3, cached * 4 // tokens)]


def safe_word(name: str) -> str:
    """`name` as a word that a terminal and a metrics page take, and none of our own.

    >>> safe_word("sql-v2"), safe_word("a\\x1b[2Jb\\ud800"), safe_word("none"), safe_word("")
    ('sql-v2', 'a?[2Jb?', "'none'", "''")
    >>> len(safe_word("w" * 1000))
    64
    """
    word = "".join(each if each.isprintable() else "?" for each in name[:_LONGEST_NAME])
    return f"'{word}'" if word in (NONE, OTHER, "") else word


class Cell:
    """What the requests of one cohort did."""

    __slots__ = ("output_tokens", "preemptions", "prompt_tokens", "requests", "tally")

    def __init__(self, size: int) -> None:
        self.requests = self.prompt_tokens = self.output_tokens = self.preemptions = 0
        self.tally = [0] * size

    def add(self, other: Cell) -> None:
        """Takes in what those of another did."""
        self.requests += other.requests
        self.prompt_tokens += other.prompt_tokens
        self.output_tokens += other.output_tokens
        self.preemptions += other.preemptions
        self.tally = list(map(add, self.tally, other.tally))

    def row(self) -> list[int]:
        """As the engine core tells it: in no more words than it takes."""
        return [
            self.requests, self.prompt_tokens, self.output_tokens, self.preemptions, *self.tally
        ]  # fmt: skip


class Positions(NamedTuple):
    """What a tally says by position."""

    drafts: int
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]


def read_tally(tally: Sequence[int], k_max: int) -> Positions:
    """Drafts that had each position, and those accepted there.

    >>> read_tally([1, 0, 2, 1, 1, 1], 2)  # one without tokens, two of two; 0, 1 and 2 accepted
    Positions(drafts=3, drafted=(2, 2), accepted=(2, 1))
    """
    lengths, accepted = tally[: k_max + 1], tally[k_max + 1 :]
    had = [sum(lengths[position:]) for position in range(1, k_max + 1)]
    taken = [sum(accepted[position:]) for position in range(1, k_max + 1)]
    return Positions(sum(lengths), tuple(had), tuple(taken))


class CohortCells:
    """The cells of one scheduler's finished requests."""

    def __init__(self, k_max: int, *, most: int = MOST_CELLS) -> None:
        self._k_max = k_max
        self._most = most
        self.size = 2 * (k_max + 1)
        """Of a tally."""
        self._cells: OrderedDict[Key, Cell] = OrderedDict()
        """Seen last at the end."""
        self._folded: dict[tuple[str, str], Cell] = {}
        self._adapters = Adapters()

    def name_adapter(self, name: str | None) -> str:
        """The word of an adapter, which this sees once more."""
        if name is None:
            return NONE
        word, dropped = self._adapters.see(name)
        if dropped is not None:
            self._merge_adapter(dropped)
        return word

    def find_adapter(self, name: str) -> str:
        """The word of an adapter, without seeing it."""
        return self._adapters.find(name)

    def add(
        self, key: Key, tally: list[int] | None, prompt: int, output: int, preemptions: int
    ) -> None:
        """Enters a request; `tally` is None where nothing was drafted for it."""
        cell = self._cells.get(key)
        if cell is None:
            cell = self._make(key)
        else:
            self._cells.move_to_end(key)
        cell.requests += 1
        cell.prompt_tokens += prompt
        cell.output_tokens += output
        cell.preemptions += preemptions
        if tally is not None:
            cell.tally = list(map(add, cell.tally, tally))

    def add_drafts(self, key: Key, tally: list[int]) -> None:
        """Enters drafts of requests that are counted elsewhere."""
        cell = self._cells.get(key) or self._make(key)
        cell.tally = list(map(add, cell.tally, tally))

    def cells(self) -> list[list[Any]]:
        """The words and the row of each cell, for `read_cohorts`."""
        return [[*key, *cell.row()] for key, cell in self._cells.items()]

    def list_folded(self) -> list[list[Any]]:
        """Dimension, word and row of what is not told apart."""
        return [[*pair, *cell.row()] for pair, cell in self._folded.items()]

    def _make(self, key: Key) -> Cell:
        if len(self._cells) >= self._most:
            self._fold(*self._cells.popitem(last=False))
        cell = self._cells[key] = Cell(self.size)
        return cell

    def _fold(self, key: Key, cell: Cell) -> None:
        for pair in zip(DIMENSIONS, key, strict=True):
            kept = self._folded.get(pair)
            if kept is None:
                kept = self._folded[pair] = Cell(self.size)
            kept.add(cell)

    def _merge_adapter(self, word: str) -> None:
        """Makes the requests of an adapter that has lost its word those of `other`."""
        for key in [key for key in self._cells if key[_ADAPTER] == word]:
            cell = self._cells.pop(key)
            merged = (*key[:_ADAPTER], OTHER, *key[_ADAPTER + 1 :])
            kept = self._cells.get(merged)
            if kept is None:
                self._cells[merged] = cell
            else:
                kept.add(cell)
        by = DIMENSIONS[_ADAPTER]
        gone = self._folded.pop((by, word), None)
        if gone is not None:
            self._folded.setdefault((by, OTHER), Cell(self.size)).add(gone)


class Adapters:
    """Which adapters have a word of their own: those seen most, as far as memory may tell."""

    def __init__(self, most: int = MOST_ADAPTERS) -> None:
        self._most = most
        self._words: dict[str, str] = {}
        self._seen: dict[str, int] = {}
        """Requests of adapters with a word, and of some without."""

    def see(self, name: str) -> tuple[str, str | None]:
        """The word of `name`, seen once more, and a word that nobody has any more, if one went.

        >>> adapters = Adapters(most=1)
        >>> [adapters.see(name) for name in ("a", "b", "b", "b")]
        [('a', None), ('other', None), ('other', None), ('b', 'a')]
        """
        word = self._words.get(name)
        if word is not None:
            self._seen[name] += 1
            return word, None
        if len(self._words) < self._most:
            self._seen[name] = self._seen.get(name, 0) + 1
            return self._give_word(name), None
        seen = self._watch(name)
        least = _least(self._words, self._seen)
        if seen <= _CLEARLY * self._seen[least]:
            return OTHER, None
        dropped = self._words.pop(least)
        word = self._give_word(name)
        # Names that differ only in what was made safe share a word.
        return word, None if dropped in self._words.values() else dropped

    def find(self, name: str) -> str:
        """The word of `name` at this moment."""
        return self._words.get(name, OTHER)

    def _give_word(self, name: str) -> str:
        word = self._words[name] = safe_word(name)
        return word

    def _watch(self, name: str) -> int:
        """How often `name` was seen; one that comes for another inherits its count."""
        if name not in self._seen and len(self._seen) >= self._most + _WATCHED:
            gone = _least((each for each in self._seen if each not in self._words), self._seen)
            self._seen[name] = self._seen.pop(gone)
        seen = self._seen[name] = self._seen.get(name, 0) + 1
        return seen


def _least(names: Iterable[str], seen: dict[str, int]) -> str:
    return min(names, key=seen.__getitem__)


def read_cohorts(answer: Mapping[str, Any]) -> Cohorts:
    """An engine core's answer, in words; an API server's process has the time for it."""
    k_max, first = answer["k_max"], len(DIMENSIONS)
    return Cohorts(
        answer["instance"],
        answer["t"],
        tuple(
            CohortCell(Cohort(*row[:first]), _read_row(row[first:], k_max))
            for row in answer["cells"]
        ),
        tuple(CohortWord(by, word, _read_row(row, k_max)) for by, word, *row in answer["folded"]),
        _read_row(answer["unfinished"], k_max),
        answer["drafts"],
        tuple(answer["drafted_per_position"]),
        tuple(answer["accepted_per_position"]),
    )


def _read_row(row: Sequence[int], k_max: int) -> CohortCounts:
    requests, prompt, output, preemptions, *tally = row
    return CohortCounts(requests, prompt, output, preemptions, *read_tally(tally, k_max))
