"""vLLM's /metrics page, as text, to a `Sample`.

The stock parser takes some 8 ms for a page of 50 KB, nine tenths of it for series that
nobody here reads: a plain filter by name goes before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from specdeck.engine.errors import BadPage, NotAnEngine
from specdeck.engine.metrics import names
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.series import Row, Table, added, fullest, histogram, positions

_BUCKET: Final = "_bucket"
_SCALARS: Final = {**names.COUNTERS, **names.GAUGES, **names.FRACTIONS}
_PLAIN: Final = (
    names.PROCESS_START,
    *(name for group in (_SCALARS, names.PER_POSITION) for name in sum(group.values(), ())),
)
_BUCKETED: Final = sum(names.HISTOGRAMS.values(), ())
_WANTED: Final = (
    *(name + end for name in _PLAIN for end in "{ "),
    *(name + _BUCKET + "{" for name in _BUCKETED),
)
"""How the lines begin that are worth parsing; what follows a name closes it, so that
`num_requests_waiting` does not bring `num_requests_waiting_by_reason` along."""


def parse(text: str, *, t: float, at: float) -> Sample:
    """What the page `text`, read at Unix time `t` and monotonic time `at`, says.

    Data-parallel engines are summed. Of several models the one that generated most is
    meant. A page that was cut is refused where that shows; where it does not, the
    figures that the cut may have touched are None.

    Raises BadPage for a page that is cut or damaged, NotAnEngine for one without any
    of vLLM's series.
    """
    lines = text.split("\n")
    _check(text, cut=lines.pop() != "")
    try:
        table = _table(line for line in lines if line.startswith(_WANTED))
        _drop_unproven(table, _name(lines[-1]))
        model = _model(table)
        return _sample(table.of(model), t=t, at=at, model=model)
    except (ValueError, IndexError, OverflowError) as error:
        # The stock parser raises IndexError for some nonsense and empty messages for other.
        raise BadPage(
            f"the metrics page is damaged: {str(error)[:80] or 'a malformed line'}"
        ) from error


def _check(text: str, *, cut: bool) -> None:
    if "\nvllm:" not in text and not text.startswith("vllm:"):
        if cut and text.startswith("# HELP "):
            raise BadPage("the metrics page is cut short")
        raise NotAnEngine("the metrics page has none of vLLM's series")
    if cut:
        raise BadPage("the metrics page is cut short: its last line has no end")


def _table(lines: Iterable[str]) -> Table:
    from prometheus_client.parser import text_string_to_metric_families

    rows: dict[str, list[Row]] = {}
    for family in text_string_to_metric_families("\n".join(lines)):
        # A family's name loses `_total` where the type is known; a sample's never does.
        for sample in family.samples:
            rows.setdefault(sample.name, []).append(Row.of(sample.labels, float(sample.value)))
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
    if rows is None or last == names.PROCESS_START:
        return
    per_position = sum(names.PER_POSITION.values(), ())
    peers = [
        name
        for name in table.rows
        if name not in (last, names.PROCESS_START)
        and (last not in per_position or name in per_position)
    ]
    if not any(table.places(last) == table.places(name) for name in peers):
        del table.rows[last]


def _model(table: Table) -> str | None:
    models = {row.model for rows in table.rows.values() for row in rows if row.model is not None}
    if len(models) < 2:
        return next(iter(models), None)
    generated = table.first(names.COUNTERS["generated"])
    if not generated:
        raise ValueError("several models, and no count of what they generated")
    totals = {model: added([r for r in generated if r.model == model]) or 0.0 for model in models}
    return max(sorted(totals), key=totals.__getitem__)


def _sample(table: Table, *, t: float, at: float, model: str | None) -> Sample:
    engines = {row.engine for rows in table.rows.values() for row in rows} - {None}
    plain: dict[str, Any] = {
        **{name: added(table.first(s)) for name, s in names.COUNTERS.items()},
        **{name: added(table.first(s)) for name, s in names.GAUGES.items()},
        **{name: fullest(table.first(s)) for name, s in names.FRACTIONS.items()},
    }
    if all(value is None for value in plain.values()):
        raise ValueError("it has none of the series that specdeck reads")
    shaped: dict[str, Any] = {
        **{name: positions(table.first(s)) for name, s in names.PER_POSITION.items()},
        **{
            name: histogram(table.first([spelling + _BUCKET for spelling in s]))
            for name, s in names.HISTOGRAMS.items()
        },
    }
    return Sample(
        t=t,
        at=at,
        model=model,
        engines=max(1, len(engines)),
        process_start=added(table.first([names.PROCESS_START])),
        **plain,
        **shaped,
    )
