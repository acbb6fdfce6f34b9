"""vLLM's /metrics page, as text, to a `Sample`: which series, and how rows add up over engines."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final, Self, TextIO, cast

from specdeck.engine.errors import BadPage, NotAnEngine
from specdeck.engine.metrics.sample import Histogram, Sample
from specdeck.engine.protocol.codec import K_MOST

# Names as data: vLLM 0.26 to 0.33 publish the same ones, and a later rename is one more
# spelling in a tuple here. Each tuple lists spellings, the newest first.
COUNTERS: Final[dict[str, tuple[str, ...]]] = {
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "drafted": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total",),
    "generated": ("vllm:generation_tokens_total",),
    "prompt": ("vllm:prompt_tokens_total",),
    "preemptions": ("vllm:num_preemptions_total",),
    "prefix_queries": ("vllm:prefix_cache_queries_total",),
    "prefix_hits": ("vllm:prefix_cache_hits_total",),
    "cpu_watched": ("specdeck:cpu_watched_seconds",),
    "core_ran": ("specdeck:core_cpu_seconds",),
    "core_waited": ("specdeck:core_cpu_waiting_seconds",),
    "worker_ran": ("specdeck:worker_cpu_seconds",),
    "worker_waited": ("specdeck:worker_cpu_waiting_seconds",),
    "cpu_throttled": ("specdeck:cpu_throttled_seconds",),
}
"""Counters that only rise while the engine lives; summed over data-parallel engines."""

PER_POSITION: Final[dict[str, tuple[str, ...]]] = {
    "accepted_per_position": ("vllm:spec_decode_num_accepted_tokens_per_pos_total",),
    "drafted_per_position": ("specdeck:draft_tokens_per_position_total",),
}
"""Counters with a `position` label; the second one is specdeck's plugin's own."""

GAUGES: Final[dict[str, tuple[str, ...]]] = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
}
"""Gauges that add up over data-parallel engines."""

FRACTIONS: Final[dict[str, tuple[str, ...]]] = {
    "kv_cache_usage": ("vllm:kv_cache_usage_perc",),
}
"""Gauges from 0 to 1; the fullest data-parallel engine counts, since it preempts first."""

HISTOGRAMS: Final[dict[str, tuple[str, ...]]] = {
    "ttft": ("vllm:time_to_first_token_seconds",),
    "itl": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
}

PROCESS_START: Final = "process_start_time_seconds"
"""Unix time; absent when several API server processes share one page."""


@dataclass(frozen=True, slots=True)
class PageRow:
    """One line: who it is about, and how much."""

    model: str | None
    engine: str | None
    """The data-parallel engine's index, as text."""
    position: str | None
    bound: str | None
    """A bucket's `le`."""
    value: float

    @classmethod
    def of(cls, labels: dict[str, str], value: float) -> Self:
        """The row with `labels`; raises ValueError for a count below zero, or beyond any engine."""
        if value < 0 or _LARGEST < value < math.inf:
            raise ValueError(f"a count of {value:g}")
        get = labels.get
        return cls(get("model_name"), get("engine"), get("position"), get("le"), value)


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of each series."""

    rows: dict[str, list[PageRow]]

    def first(self, spellings: Iterable[str]) -> list[PageRow]:
        """The rows of the first spelling that is there; none when none is."""
        return next((self.rows[name] for name in spellings if name in self.rows), [])

    def of(self, model: str | None) -> Table:
        """What is about `model`, and what is about no model in particular."""
        kept = {
            name: [row for row in rows if row.model in (model, None)]
            for name, rows in self.rows.items()
        }
        return Table({name: rows for name, rows in kept.items() if rows})

    def places(self, name: str) -> set[tuple[str | None, str | None, str | None]]:
        """The models, engines and positions that the series `name` speaks of."""
        return {(row.model, row.engine, row.position) for row in self.rows[name]}


def add_up(rows: Sequence[PageRow]) -> float | None:
    """The sum over `rows`; None without any, or when one of them is not a number."""
    return math.fsum(row.value for row in rows) if rows and _finite(rows) else None


def highest(rows: Sequence[PageRow]) -> float | None:
    """The largest of `rows`; None without any, or when one of them is not a number."""
    return max(row.value for row in rows) if rows and _finite(rows) else None


def positions(rows: Sequence[PageRow]) -> tuple[float, ...] | None:
    """The sums for position 0, 1, …; None without any.

    Raises ValueError when a position is missing, be it for one engine only, and for more of
    them than any draft has.
    """
    if not rows or not _finite(rows):
        return None
    sums: dict[int, list[float]] = {}
    for row in rows:
        sums.setdefault(int(row.position or ""), []).append(row.value)
    if len(sums) > K_MOST:
        raise ValueError(f"a draft of {len(sums)} positions")
    ordered = [sums.get(position, []) for position in range(len(sums))]
    if len({len(values) for values in ordered}) != 1:
        raise ValueError("a position is missing")
    return tuple(math.fsum(values) for values in ordered)


def histogram(rows: Sequence[PageRow]) -> Histogram | None:
    """The buckets of `rows`, summed over engines; None without any.

    Raises ValueError when an engine's last bucket is missing or counts fall along the
    bounds: both mean that lines were lost.
    """
    if not rows or not _finite(rows):
        return None
    engines: dict[tuple[str | None, str | None], dict[float, float]] = {}
    for row in rows:
        buckets = engines.setdefault((row.model, row.engine), {})
        bound = float(row.bound or "")
        if math.isnan(bound) or _LARGEST < abs(bound) < math.inf or bound == -math.inf:
            raise ValueError("a histogram has a bound that is no number of seconds")
        buckets[bound] = buckets.get(bound, 0.0) + row.value
    bounds = tuple(sorted(next(iter(engines.values()))))
    for buckets in engines.values():
        if math.inf not in buckets:
            raise ValueError("a histogram has no +Inf bucket")
        if tuple(sorted(buckets)) != bounds:
            raise ValueError("a histogram's buckets differ between engines")
    counts = tuple(math.fsum(buckets[bound] for buckets in engines.values()) for bound in bounds)
    if any(later < earlier for earlier, later in pairwise(counts)):
        raise ValueError("a histogram's counts fall along its buckets")
    return Histogram(bounds, counts)


def _finite(rows: Sequence[PageRow]) -> bool:
    return all(math.isfinite(row.value) for row in rows)


_BUCKET: Final = "_bucket"
_SCALARS: Final = {**COUNTERS, **GAUGES, **FRACTIONS}
_PLAIN: Final = (
    PROCESS_START,
    *(name for group in (_SCALARS, PER_POSITION) for name in sum(group.values(), ())),
)
_BUCKETED: Final = sum(HISTOGRAMS.values(), ())
_WANTED: Final = "|".join(
    (*(name + "[{ ]" for name in _PLAIN), *(name + _BUCKET + r"\{" for name in _BUCKETED))
)
"""How the lines begin that are worth parsing; what follows a name closes it, so that
`num_requests_waiting` does not bring `num_requests_waiting_by_reason` along."""
_FIRST_ROW: Final = re.compile(f"((?:{_WANTED}).*)")
_NEXT_ROW: Final = re.compile(f"\n((?:{_WANTED}).*)")

MOST_LINES: Final = 200_000
"""A data-parallel rank has 380 lines, and a page of six megabytes room for 170 ranks."""
MOST_ROWS: Final = 20_000
"""Lines that are parsed: each rank has 60 of them, and 2 more for each position of a draft."""
MOST_CHARACTERS: Final = 4_000_000
"""Of those lines together: a long name of a model makes them 200 long."""
_LONGEST_LINE: Final = 2_000
_MOST_ESCAPES: Final = 64
_MOST_LABELS: Final = 64
"""Backslashes and labels in a line: the stock parser goes over what is left after each."""
_LARGEST: Final = 1e18
"""A count that no engine lives to see; it can still be multiplied into other units."""
_LATEST: Final = 1e11
"""Unix time of a start that calendars know."""
_LARGE: Final = 200_000
"""Characters of a page that is parsed beside the event loop."""


async def read_page(text: str, *, t: float, at: float) -> Sample:
    """`parse`, without holding the event loop up over a large page."""
    if len(text) < _LARGE:
        return parse(text, t=t, at=at)
    return await asyncio.to_thread(parse, text, t=t, at=at)


def parse(text: str, *, t: float, at: float) -> Sample:
    """What the page `text`, read at Unix time `t` and monotonic time `at`, says.

    Data-parallel engines are summed. Of several models the one that generated most is
    meant. A page that was cut is refused where that shows; where it does not, the
    figures that the cut may have touched are None.

    Raises BadPage for a page that is cut, damaged or larger than any engine's, NotAnEngine
    for one without any of vLLM's series.
    """
    _check(text, cut=not text.endswith("\n"))
    try:
        table = _table(_wanted_lines(text))
        _drop_unproven(table, _name(text[text.rfind("\n", 0, -1) + 1 : -1]))
        model = _model(table)
        return _sample(table.of(model), t=t, at=at, model=model)
    except (ValueError, IndexError, OverflowError) as error:
        # The stock parser raises IndexError for some nonsense and empty messages for other.
        raise BadPage(
            f"the metrics page is damaged: {str(error)[:80] or 'a malformed line'}"
        ) from error


def _wanted_lines(text: str) -> Iterator[str]:
    """The lines that are worth parsing, one at a time: a page cut up whole takes its size again.

    Raises ValueError for more of them than any engine writes.
    """
    if text.count("\n") > MOST_LINES:
        raise ValueError(f"more than {MOST_LINES} lines")
    first = _FIRST_ROW.match(text)
    characters = 0
    for rows, row in enumerate(chain((first,) if first else (), _NEXT_ROW.finditer(text)), 1):
        begin, end = row.span(1)
        characters += end - begin
        if rows > MOST_ROWS or characters > MOST_CHARACTERS:
            raise ValueError(f"more than {MOST_ROWS} rows, or {MOST_CHARACTERS} characters in them")
        if end - begin > _LONGEST_LINE:
            raise ValueError(f"a line of more than {_LONGEST_LINE} characters")
        line = row[1]
        if line.count("\\") > _MOST_ESCAPES or line.count("=") > _MOST_LABELS:
            raise ValueError("a line with too many labels or escapes")
        yield line


def _check(text: str, *, cut: bool) -> None:
    if "\nvllm:" not in text and not text.startswith("vllm:"):
        if cut and text.startswith("# HELP "):
            raise BadPage("the metrics page is cut short")
        raise NotAnEngine("the metrics page has none of vLLM's series")
    if cut:
        raise BadPage("the metrics page is cut short: its last line has no end")


def _table(lines: Iterable[str]) -> Table:
    from prometheus_client.parser import text_fd_to_metric_families

    rows: dict[str, list[PageRow]] = {}
    # Any lines will do for its file.
    for family in text_fd_to_metric_families(cast(TextIO, lines)):
        # A family's name loses `_total` where the type is known; a sample's never does.
        for sample in family.samples:
            rows.setdefault(sample.name, []).append(PageRow.of(sample.labels, float(sample.value)))
    return Table(rows)


def _name(line: str) -> str:
    """The series that `line` belongs to; a histogram's three kinds of line are one series.

    >>> _name('vllm:ttft_seconds_bucket{le="1.0"} 3.0'), _name("vllm:ttft_seconds_sum 3.0")
    ('vllm:ttft_seconds_bucket', 'vllm:ttft_seconds_bucket')
    >>> _name("# HELP vllm:ttft_seconds Time")
    '#'
    """
    name = line.partition("{")[0].partition(" ")[0]
    for end in ("_count", "_sum"):
        name = name.removesuffix(end) + _BUCKET if name.endswith(end) else name
    return name


def _drop_unproven(table: Table, last: str) -> None:
    """Removes the page's last series unless the others prove that nothing of it is missing.

    A page cut between two lines looks whole, and only the series it ends with can be
    short of an engine or of a position.
    """
    rows = table.rows.get(last)
    if rows is None or last == PROCESS_START:
        return
    per_position = sum(PER_POSITION.values(), ())
    peers = [
        name
        for name in table.rows
        if name not in (last, PROCESS_START) and (last not in per_position or name in per_position)
    ]
    if not any(table.places(last) == table.places(name) for name in peers):
        del table.rows[last]


def _model(table: Table) -> str | None:
    models = {row.model for rows in table.rows.values() for row in rows if row.model is not None}
    if len(models) < 2:
        return next(iter(models), None)
    generated = table.first(COUNTERS["generated"])
    if not generated:
        raise ValueError("several models, and no count of what they generated")
    rows: dict[str, list[PageRow]] = {model: [] for model in models}
    for row in generated:
        if row.model is not None:
            rows[row.model].append(row)
    totals = {model: add_up(own) or 0.0 for model, own in rows.items()}
    return max(sorted(totals), key=totals.__getitem__)


def _sample(table: Table, *, t: float, at: float, model: str | None) -> Sample:
    engines = {row.engine for rows in table.rows.values() for row in rows} - {None}
    plain: dict[str, Any] = {
        **{name: add_up(table.first(s)) for name, s in COUNTERS.items()},
        **{name: add_up(table.first(s)) for name, s in GAUGES.items()},
        **{name: highest(table.first(s)) for name, s in FRACTIONS.items()},
    }
    if all(value is None for value in plain.values()):
        raise ValueError("it has none of the series that specdeck reads")
    shaped: dict[str, Any] = {
        **{name: positions(table.first(s)) for name, s in PER_POSITION.items()},
        **{
            name: histogram(table.first([spelling + _BUCKET for spelling in s]))
            for name, s in HISTOGRAMS.items()
        },
    }
    start = add_up(table.first([PROCESS_START]))
    return Sample(
        t=t,
        at=at,
        model=model,
        engines=max(1, len(engines)),
        process_start=start if start is None or start < _LATEST else None,
        **plain,
        **shaped,
    )
