"""Makes the members of an incident file of what was collected, and writes it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from specdeck.engine.blackbox.history import History
from specdeck.engine.blackbox.slice import write_slice
from specdeck.engine.blackbox.summary import Extent
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.incident.archive import MANIFEST, PAGE, RECORDING, write_archive
from specdeck.engine.incident.chart import Chart, ChartMark, LocalTime, Point, draw_chart
from specdeck.engine.incident.collect import describe_log
from specdeck.engine.incident.material import Material, Span
from specdeck.engine.incident.moves import group_moves
from specdeck.engine.incident.page import write_page
from specdeck.engine.incident.redaction import Redactor
from specdeck.engine.scratch import scratch_folder
from specdeck.engine.text import format_duration, oneline

SCHEMA: Final = 1
"""Of the manifest; raised when a member changes its meaning."""
_LARGEST_RECORDING: Final = 14_000_000
"""Bytes of the recording, as its file; compressed it is hardly smaller."""
_MOST_TEXT: Final = 16_000_000
"""Characters of the states in it, each as often as it changes. An engine's have a few thousand and
change once in minutes; one that lies has a new one each second, and each is looked through."""
_LARGEST_JSON: Final = 1_500_000
"""Bytes of one member of JSON."""
_MOST_MARKS: Final = 60
_SHORTEST_S: Final = 60.0
"""A recording that is cut is not cut below this."""


@dataclass(frozen=True, slots=True)
class Written:
    """An incident file."""

    path: Path
    size: int
    """Bytes."""
    members: tuple[str, ...]
    readings: int
    """In its recording."""
    missing: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "file": str(self.path), "bytes": self.size, "members": list(self.members),
            "readings": self.readings, "missing": dict(self.missing),
        }  # fmt: skip


def write_incident(
    made: Material,
    path: Path,
    *,
    history: History | None,
    redactor: Redactor,
    force: bool = False,
    local: LocalTime = time.localtime,
    on_progress: Callable[[str], None] = lambda what: None,
) -> Written:
    """Writes the file at `path`.

    Raises UsageError where there is one already, unless `force`, and OSError where it cannot be
    written.
    """
    with scratch_folder("specdeck-incident") as folder:
        members: dict[str, bytes | Path] = {}
        readings = 0
        if history is not None and made.readings:
            on_progress("the recording")
            target = folder / RECORDING
            try:
                readings, kept = _cut_recording(history, target, made.span, redactor)
            except (SpecdeckError, OSError) as error:
                words = error.line() if isinstance(error, SpecdeckError) else str(error)
                made.missing[RECORDING] = redactor.hide(oneline(words))[:300]
            else:
                members[RECORDING] = target
                if kept.start > made.span.start:
                    made.notes.append(
                        f"the recording holds the last {format_duration(kept.seconds)} alone, as"
                        " more is too large"
                    )
        else:
            made.missing.setdefault(RECORDING, made.missing.get("readings", "nothing is recorded"))
        members |= _make_members(made, local)
        names = [*members, MANIFEST]
        members[PAGE] = write_page(made, names, local).encode()
        members[MANIFEST] = _as_json(_manifest(made, [*names, PAGE], readings))
        size = write_archive(path, members, force=force)
    return Written(path, size, tuple(members), readings, dict(sorted(made.missing.items())))


def _cut_recording(
    history: History, target: Path, span: Span, redactor: Redactor
) -> tuple[int, Span]:
    """Writes the slice, of as long a time as fits, and says of which; the end is kept."""
    end = min(span.end, history.last + 1.0)
    start = _find_start(history, span.start, end)
    while True:
        count = write_slice(
            history, target, start, end,
            change_text=redactor.hide_said, change_value=redactor.hide_texts,
        )  # fmt: skip
        size = target.stat().st_size
        if size <= _LARGEST_RECORDING or end - start <= _SHORTEST_S:
            return count, Span(start, end)
        target.unlink()
        share = 0.9 * _LARGEST_RECORDING / size
        start = min(end - _SHORTEST_S, end - (end - start) * share)


def _find_start(history: History, start: float, end: float) -> float:
    """From when on the states up to `end` have no more than `_MOST_TEXT` characters."""
    changes: list[tuple[float, int]] = []
    template = ""
    for row, _ in history.rows(start, end):
        if row.template != template:
            template = row.template
            changes.append((row.t, len(template)))
    left, kept = _MOST_TEXT, end
    for t, size in reversed(changes):
        left -= size
        if left < 0:
            return max(start, kept)
        kept = t
    return start


def _make_members(made: Material, local: LocalTime) -> dict[str, bytes | Path]:
    found: dict[str, bytes | Path] = {}

    def add(name: str, value: Any) -> None:
        if value is None:
            return
        data = _as_json(value)
        if len(data) > _LARGEST_JSON:
            made.missing[name] = f"{len(data) / 1e6:.1f} MB are too many"
        else:
            found[name] = data

    if made.columns and made.readings:
        for name, chart in (("acceptance.svg", _chart(made, "acceptance")),
                            ("tokens.svg", _chart(made, "tokens"))):  # fmt: skip
            found[name] = draw_chart(chart, local).encode()
    if made.diagnosis is not None:
        case = None if made.case is None else made.case.as_json()
        add("why.json", {**made.diagnosis.as_json(), "case": case})
    add("cohorts.json", None if made.kinds is None else made.kinds.as_json())
    add("audit.json", [one.as_json() for one in made.moves])
    add("checks.json", list(made.checks))
    add(
        "fingerprint.json",
        None
        if made.fingerprint is None and not made.fingerprints
        else {"last": made.fingerprint, "seen": list(made.fingerprints)},
    )
    add("facts.json", made.facts)
    add(
        "state.json",
        None if made.state is None else {"state": made.state, "tuning": made.tuning},
    )
    if made.config is not None:
        text = yaml.safe_dump(made.config, sort_keys=False, allow_unicode=True, width=100)
        found["config.yaml"] = text.encode()
    if made.log is not None:
        found["engine.log"] = made.log.text.encode()
    return found


def _chart(made: Material, which: str) -> Chart:
    is_acceptance = which == "acceptance"
    points = []
    for column in made.columns:
        extent: Extent | None = column.acceptance if is_acceptance else column.tokens
        middle = (column.start + column.end) / 2
        points.append(
            None if extent is None else Point(middle, extent.low, extent.high, extent.mean)
        )
    marks = [
        ChartMark(one.t, one.label, bad=one.tone == "bad")
        for one in made.events
        if one.label and made.span.start <= one.t <= made.span.end
    ]
    known = {round(one.t / 5.0) for one in marks}
    marks += [
        ChartMark(one.t, _label(one.after))
        for one in (run.first for run in group_moves(made.moves))
        if made.span.start <= one.t <= made.span.end
        and not {round(one.t / 5.0) + n for n in (-1, 0, 1)} & known
    ]
    marks += [ChartMark(t, "restart", bad=True) for t in made.restarts]
    figure = "acceptance" if is_acceptance else "tokens_per_second"
    same = [one for one in made.falls if one.figure == figure]
    pivot = made.falls[0].t if made.falls else made.span.end if made.pivot is None else made.pivot
    marks = sorted(marks, key=lambda one: abs(one.t - pivot))[:_MOST_MARKS]
    fall = min(same, key=lambda one: abs(one.t - pivot), default=None)
    word = None
    if fall is not None:
        clock = "" if is_acceptance else " tokens/s"
        was, now = (
            (f"{fall.before:.0%}", f"{fall.after:.0%}")
            if is_acceptance
            else (f"{fall.before:,.0f}", f"{fall.after:,.0f}")
        )
        clock = ", first tokens" if fall.is_of_first else clock
        word = f"{was} → {now}{clock}"
    return Chart(
        "Acceptance: accepted over drafted tokens" if is_acceptance else "Generated tokens/s",
        "%" if is_acceptance else "tokens/s",
        made.span.start, made.span.end, points, marks, made.downs,
        None if fall is None or word is None else (fall.t, word),
    )  # fmt: skip


def _label(knobs: Mapping[str, Any]) -> str:
    return " ".join(f"{name} {value}" for name, value in list(knobs.items())[:1])


def _manifest(made: Material, names: list[str], readings: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "engine": made.url,
        "name": made.name,
        "written": round(made.written, 3),
        "answered": made.up,
        "span": {"start": made.span.start, "end": made.span.end},
        "readings": readings,
        "falls": [one.as_json() for one in made.falls],
        "load_ends": [one.as_json() for one in made.load_ends],
        "slides": [one.as_json() for one in made.slides],
        "settled": made.settled,
        "dips": [one.as_json() for one in made.dips],
        "stalls": [one.as_json() for one in made.stalls],
        "coverage": {figure: one.as_json() for figure, one in made.coverage.items()},
        "fall_s": None if made.onset is None else made.onset.seconds,
        "stretches": [one.as_json() for one in made.stretches],
        "settings": made.settings,
        "downs": made.downs,
        "restarts": made.restarts,
        "events": [asdict(one) for one in made.events],
        "log": describe_log(made),
        "versions": made.versions,
        "members": sorted([*names]),
        "missing": dict(sorted(made.missing.items())),
        "notes": made.notes,
    }


def _as_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=True) + "\n").encode()
