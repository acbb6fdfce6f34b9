"""What a black box has recorded as a table: counters, gauges and the figures between two rows."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from specdeck.engine.blackbox.history import History
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Histogram, Sample, quantile
from specdeck.engine.metrics.window import Window
from specdeck.engine.protocol.messages import EngineState
from specdeck.engine.text import printable

Value = float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class _Row:
    """What one line is made of."""

    reading: Reading
    window: Window | None
    """The work since the line before."""


def _of_sample(name: str) -> Callable[[_Row], Value]:
    def read(row: _Row) -> Value:
        sample: Sample | None = row.reading.sample
        value: Value = None if sample is None else getattr(sample, name)
        return value

    return read


def _of_state(name: str) -> Callable[[_Row], Value]:
    def read(row: _Row) -> Value:
        state: EngineState | None = row.reading.state
        value: Value = None if state is None else getattr(state, name)
        return value

    return read


def _of_window(name: str) -> Callable[[_Row], Value]:
    def read(row: _Row) -> Value:
        value: Value = None if row.window is None else getattr(row.window, name)
        return value

    return read


def _quantile(name: str, q: float) -> Callable[[_Row], Value]:
    def read(row: _Row) -> Value:
        histogram: Histogram | None = None if row.window is None else getattr(row.window, name)
        return None if histogram is None else quantile(histogram, q)

    return read


def _positions(row: _Row) -> Value:
    rates = None if row.window is None else row.window.acceptance_per_position
    if rates is None:
        return None
    return " ".join("" if rate is None else f"{rate:.4f}" for rate in rates) or None


def _time(row: _Row) -> Value:
    found = datetime.fromtimestamp(row.reading.t, UTC)
    return f"{found:%Y-%m-%dT%H:%M:%S}.{found.microsecond // 1000:03}Z"


def _error(row: _Row) -> Value:
    return None if row.reading.error is None else type(row.reading.error).__name__


COLUMNS: Final[dict[str, Callable[[_Row], Value]]] = {
    "time_utc": _time,
    "t_unix_s": lambda row: row.reading.t,
    "up": lambda row: int(row.reading.up),
    "restarted": lambda row: int(row.reading.restarted),
    "error": _error,
    "drafts_total": _of_sample("drafts"),
    "drafted_tokens_total": _of_sample("drafted"),
    "accepted_tokens_total": _of_sample("accepted"),
    "generated_tokens_total": _of_sample("generated"),
    "prompt_tokens_total": _of_sample("prompt"),
    "preemptions_total": _of_sample("preemptions"),
    "prefix_queried_tokens_total": _of_sample("prefix_queries"),
    "prefix_hit_tokens_total": _of_sample("prefix_hits"),
    "running_requests": _of_sample("running"),
    "waiting_requests": _of_sample("waiting"),
    "kv_cache_usage_ratio": _of_sample("kv_cache_usage"),
    "k": _of_state("k"),
    "mode": _of_state("mode"),
    "fallback": _of_state("fallback"),
    "policy": _of_state("policy"),
    "breaker": _of_state("breaker"),
    "window_s": _of_window("seconds"),
    "tokens_per_s": _of_window("tokens_per_second"),
    "acceptance_ratio": _of_window("acceptance_rate"),
    "acceptance_ratio_by_position": _positions,
    "mean_acceptance_length_tokens": _of_window("mean_acceptance_length"),
    "observed_k_tokens": _of_window("draft_tokens_per_draft"),
    "output_from_drafts_ratio": _of_window("output_from_drafts"),
    "prefix_hit_ratio": _of_window("prefix_hit_rate"),
    "ttft_p50_s": _quantile("ttft", 0.5),
    "ttft_p99_s": _quantile("ttft", 0.99),
    "itl_p50_s": _quantile("itl", 0.5),
    "itl_p99_s": _quantile("itl", 0.99),
}
"""Names with their units, and what stands under them. `_total` counts since the engine's start;
what has a window is of the time since the row before, and empty across a restart."""


def write_rows(history: History, start: float, end: float, every: float | None) -> Iterator[str]:
    """Lines of CSV, the names first: a row a reading, or one for each `every` seconds.

    What is not known is empty. A row of some seconds is their last reading.
    """
    yield _line(list(COLUMNS))
    if every is None:
        for reading in history.readings(start, end):
            yield _row(_Row(reading, reading.window))
        return
    before: float | None = None
    for reading in _last_of_each(history.readings(start, end), every):
        window = None if before is None else history.window(before, reading.t)
        yield _row(_Row(reading, window if reading.up else None))
        before = reading.t


def _last_of_each(readings: Iterator[Reading], every: float) -> Iterator[Reading]:
    """The last reading of each stretch of so many seconds, counted from 1970."""
    last: Reading | None = None
    for reading in readings:
        if last is not None and math.floor(last.t / every) != math.floor(reading.t / every):
            yield last
        last = reading
    if last is not None:
        yield last


def _row(row: _Row) -> str:
    return _line([_cell(read(row)) for read in COLUMNS.values()])


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        if not math.isfinite(value):
            return ""
        return str(int(value)) if value == int(value) and abs(value) < 2**53 else f"{value:.10g}"
    if isinstance(value, str):
        text = printable(value)
        # A spreadsheet takes what begins so for a formula.
        return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
    return str(value)


def _line(cells: list[str]) -> str:
    made = io.StringIO()
    csv.writer(made, lineterminator="").writerow(cells)
    return made.getvalue()
