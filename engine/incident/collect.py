"""Collects what can be had of an engine: from itself, and from what this machine remembers.

An engine that is down, or gone, is the usual case. Each source may fail alone; what it would have
given is named with the reason.
"""

from __future__ import annotations

import asyncio
import math
import platform
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.falls import (
    FIGURES,
    NEWEST_S,
    REACH_S,
    Fall,
    Figure,
    compare_sides,
    is_end_of_load,
    is_of_deeper_drafts,
    list_drops,
)
from specdeck.engine.blackbox.gaps import Coverage, GapWatch, list_drops_across, place_at_gap
from specdeck.engine.blackbox.history import MOST_COLUMNS, History
from specdeck.engine.blackbox.load_end import count_requests
from specdeck.engine.blackbox.summary import MINUTE_S
from specdeck.engine.client.command_options import NO_OPTIONS, CommandOptions
from specdeck.engine.config import yaml_source
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.incident.case import make_case
from specdeck.engine.incident.collapse import find_fall
from specdeck.engine.incident.dips import TOGETHER_S, Dip, list_dips
from specdeck.engine.incident.engine_log import clean_log, read_tail
from specdeck.engine.incident.figures import STRETCH_S, Stretch, measure, read_settings
from specdeck.engine.incident.kinds import compare_kinds, explain
from specdeck.engine.incident.live import Live, ask_engine
from specdeck.engine.incident.material import Material, Span
from specdeck.engine.incident.moves import Move, join_moves, list_changes
from specdeck.engine.incident.onset import NEAR_S, Point, find_onset
from specdeck.engine.incident.redaction import Redactor
from specdeck.engine.incident.slides import Slide, find_slide
from specdeck.engine.incident.stalls import Stall, StallWatch
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.protocol.messages import LastChange
from specdeck.engine.store import fingerprints as fingerprint_store
from specdeck.engine.store.audit import Action, AuditLog
from specdeck.engine.store.checks import GREEDY, SAMPLED, Checks
from specdeck.engine.text import oneline
from specdeck.engine.why.past import NOTHING, Heard

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.store.database import Store

_T = TypeVar("_T")
COLUMNS: Final = 180
"""Of the charts, and of what falls are looked for in."""
_NARROWEST_S: Final = 2.0
MOST_EVENTS: Final = 1_000
_MOST_CHECKS: Final = 10
_MOST_ACTIONS: Final = 2_000
_MOST_DOWNS: Final = 200
_MOST_FURTHER: Final = 4
"""Falls beside the first one."""
_LEAST_SLOWER: Final = 0.1
"""Of what it was, by which the speed fell with acceptance."""
_ASIDE_S: Final = REACH_S
"""Seconds before and after a fall that is not the first one that are told."""
_ELSEWHERE: Final = "specdeck runs no such engine on this machine: they are where it was started"
_SETTLED_S: Final = 60.0
"""Before a fall: what was set earlier than that was in force when all was well."""
_BEFORE_S: Final = 600.0
"""Changes that were made so long before the span are told: they may be the cause."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where to look; None with a reason in `missing` is what there is not."""

    url: str
    name: str
    client: EngineClient | None = None
    history: History | None = None
    open_store: Callable[[], Store] | None = None
    config: Path | None = None
    log: Path | None = None
    secrets: tuple[str, ...] = ()
    """What is looked for in all that is collected."""
    version: str | None = None
    """specdeck's own."""
    missing: Mapping[str, str] | None = None
    options: CommandOptions = NO_OPTIONS
    """What commands have to be given for the engine."""


async def collect(
    sources: Sources,
    span: Span,
    *,
    wall: Callable[[], float] = time.time,
    on_progress: Callable[[str], None] = lambda what: None,
) -> Material:
    """All that can be had of the span; asks the engine first, while it may still answer."""
    live = None
    if sources.client is not None:
        live = await ask_engine(
            sources.client, wall=wall, on_progress=lambda what: on_progress(f"the engine's {what}")
        )
    return await asyncio.to_thread(
        assemble, sources, span, live, written=wall(), on_progress=on_progress
    )


def assemble(
    sources: Sources,
    span: Span,
    live: Live | None,
    *,
    written: float,
    on_progress: Callable[[str], None] = lambda what: None,
) -> Material:
    """The same with what the engine has said; reads files, and asks nobody."""
    return _Assembly(sources, span, live, written, on_progress).run()


class _Assembly:
    def __init__(
        self,
        sources: Sources,
        span: Span,
        live: Live | None,
        written: float,
        on_progress: Callable[[str], None],
    ) -> None:
        self._sources, self._span, self._live = sources, span, live
        self._on_progress = on_progress
        self._redactor = Redactor(sources.secrets)
        self._changes: list[LastChange] = []
        self._last: Reading | None = None
        self._told: Reading | None = None
        """The last one with the plugin's word: an engine that hangs still tells its counters."""
        self._counted: float | None = None
        """Unix time of the last one whose figures are known."""
        self._asked: float | None = None
        """The same of the last one that had requests, or did not tell whether it had."""
        hide = self._redactor.hide
        self._made = Material(hide(sources.url), hide(sources.name), span, written)
        self._made.missing.update(self._hide_reasons(sources.missing or {}))

    def run(self) -> Material:
        made, live = self._made, self._live
        made.up = None if live is None else live.up
        if live is not None:
            made.missing.update(self._hide_reasons(live.missing))
        if self._sources.history is not None:
            self._try("recording", lambda: self._read_history(_require(self._sources.history)))
        self._on_progress("the store")
        self._read_store()
        self._read_words()
        if self._sources.history is not None:
            self._on_progress("cohorts and causes")
            self._try("cohorts", lambda: self._read_kinds(_require(self._sources.history)))
        self._on_progress("config and log")
        self._read_config()
        self._read_log()
        self._name_versions()
        return made

    def _hide_reasons(self, missing: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        return ((name, self._redactor.hide(reason)[:300]) for name, reason in missing.items())

    def _try(self, name: str, read: Callable[[], _T]) -> _T | None:
        """What `read` brings; None, and the reason, where it fails."""
        try:
            return read()
        except (SpecdeckError, OSError, sqlite3.Error, ValueError) as error:
            words = error.line() if isinstance(error, SpecdeckError) else str(error)
            self._made.missing[name] = self._redactor.hide(oneline(words))[:300]
            return None

    def _read_history(self, history: History) -> None:
        made, span = self._made, self._span
        self._on_progress("the recording")
        columns = max(3, min(COLUMNS, int(span.seconds / _NARROWEST_S)))
        made.columns = history.overview(span.start, span.end, columns)
        self._walk(history)
        busy = span if self._asked is None else Span(span.start, self._asked)
        drops = _list_drops(history, span, made.stalls, made.coverage)
        ends = [one for one in drops if is_end_of_load(history, one)]
        made.load_ends = tuple(sorted(ends, key=lambda one: one.t))
        listed = [one for one in drops if one not in made.load_ends]
        made.falls = _find_falls(history, span, busy, listed, made.coverage)
        made.settled = _find_settled(history, span, self._counted)
        made.slides = tuple(_list_slides(history, span, busy, made.settled, made))
        made.dips = _list_dips(history, span, made.falls)
        if made.fall is not None and made.fall.since is None:
            made.onset = find_onset(list(_list_points(history, made.fall)), made.fall)
        made.events = tuple(map(self._clean_event, history.events(*_edges(span), MOST_EVENTS)))
        if not made.readings:
            made.missing["readings"] = "nothing was recorded in this time"
            return
        made.pivot = _find_pivot(made, self._last)
        made.stretches, moments = _measure(history, span, made.turn or made.pivot, made.pivot)
        made.further = tuple(_measure_further(history, span, made.falls))
        made.settings = {
            label: self._redactor.hide_texts(found)
            for label, t in moments.items()
            if (found := read_settings(history.last_state(t - MINUTE_S, t)))
        }
        if history.damage is not None:
            made.notes.append(self._redactor.hide(history.damage))

    def _walk(self, history: History) -> None:
        """Once over the readings: changes, restarts, and when the engine did not answer."""
        made, downs, since = self._made, [], None
        restarts, last_t = [], None
        stalls = StallWatch()
        watches = {figure: GapWatch(figure, self._span.start) for figure in FIGURES}

        def walk() -> Iterable[Reading]:
            nonlocal since, last_t
            for reading in history.readings(self._span.start, self._span.end):
                made.readings += 1
                stalls.add(reading)
                for watch in watches.values():
                    watch.add(reading)
                if reading.restarted:
                    restarts.append(reading.t)
                if reading.up and since is not None:
                    downs.append((since, reading.t))
                    since = None
                elif not reading.up and since is None:
                    since = reading.t
                last_t = reading.t
                if reading.up:
                    self._last = reading
                if reading.state is not None:
                    self._told = reading
                if reading.window is not None and reading.window.generated is not None:
                    self._counted = reading.t
                if reading.up and count_requests(reading) != 0:
                    self._asked = reading.t
                yield reading

        self._changes = list_changes(walk())
        if since is not None and last_t is not None:
            downs.append((since, max(last_t, since)))
        made.is_down_at_end = since is not None
        made.downs, made.restarts = tuple(downs[-_MOST_DOWNS:]), tuple(restarts)
        stalls.end()
        made.stalls = tuple(stalls.found)
        end = min(self._span.end, made.written)
        made.coverage = {figure: watch.end(end) for figure, watch in watches.items()}

    def _read_store(self) -> None:
        if self._sources.open_store is None:
            self._join_moves(())
            return
        url = self._sources.url
        actions: tuple[Action, ...] = ()
        found = self._try("audit.json", self._sources.open_store)
        if found is not None:
            with found as store:
                listed = self._try(
                    "audit.json", lambda: AuditLog(store).actions(url, _MOST_ACTIONS)
                )
                actions = listed or ()
                checks = self._try("checks.json", lambda: self._list_checks(store))
                self._made.checks = checks or ()
                moments = self._try(
                    "fingerprint.json",
                    lambda: fingerprint_store.moments(store, url=url, limit=20),
                )
                self._read_fingerprint([one.data for one in moments or ()])
                self._made.notes += map(self._redactor.hide, store.left_out)
        self._join_moves(actions)

    def _join_moves(self, actions: tuple[Action, ...]) -> None:
        span = self._span
        if self._live is not None and self._live.state is not None:
            last = self._live.state.last_change
            if last is not None and (not self._changes or self._changes[-1] != last):
                self._changes.append(last)
        until = max(span.end, self._made.written) if self._live is not None else span.end
        moves = join_moves(self._sources.url, self._changes, actions, span.start - _BEFORE_S, until)
        self._made.moves = tuple(map(self._clean_move, moves))

    def _list_checks(self, store: Store) -> tuple[Mapping[str, Any], ...]:
        runs = [
            (kind, run)
            for kind in (GREEDY, SAMPLED)
            for run in Checks(store).history(self._sources.url, _MOST_CHECKS, kind)
        ]
        return tuple(
            self._redactor.hide_in(
                {
                    "kind": kind, "t": run.t, "finished": run.finished, "facts": run.facts,
                    "totals": run.totals, "summary": run.summary,
                }
            )
            for kind, run in sorted(runs, key=lambda one: one[1].t)
        )  # fmt: skip

    def _read_fingerprint(self, seen: list[dict[str, Any]]) -> None:
        """The engine's own, or else the last one that was noted here."""
        made = self._made
        recorded = {} if self._live is None else self._live.facts or {}
        source: dict[str, Any] | None = None
        if recorded:
            source = {**recorded, "t": self._live.t if self._live else None}
        elif seen:
            source = seen[0]
            made.notes.append("facts and fingerprint are the last ones that were noted here")
        if source is not None:
            made.facts = self._clean_facts(source.get("facts"))
            made.fingerprint = self._redactor.hide_in(
                {name: one for name, one in source.items() if name != "facts"}
            )
            made.missing.pop("facts", None)
        elif "facts" not in made.missing:
            made.missing["facts"] = "the engine was not asked, and none was noted here"
        history = self._sources.history
        documents = [] if history is None else [*_documents(history, "fingerprint", self._span)]
        made.fingerprints = tuple(
            self._redactor.hide_in({"t": t, **document}) for t, document in documents
        )

    def _clean_facts(self, facts: Any) -> Mapping[str, Any] | None:
        if not isinstance(facts, Mapping):
            return None
        # Variables and settings are anybody's words; the rest is versions, digests and figures.
        return {
            str(name): self._redactor.hide_settings(one)
            if name in ("environment", "config")
            else self._redactor.hide_in(one)
            for name, one in facts.items()
        }

    def _read_words(self) -> None:
        """State and tuning: the engine's own of now, or the last ones that were recorded."""
        made, live, history = self._made, self._live, self._sources.history
        state = None if live is None else live.state
        if state is None and self._told is not None:
            state = self._told.state
            made.told = self._told.t
        if self._last is not None and self._last.sample is not None:
            made.model = self._redactor.hide(self._last.sample.model or "") or None
        if state is not None:
            made.state = self._redactor.hide_texts(state.as_json())
            made.settings["now" if live is not None and live.state is not None else "last"] = {
                name: made.state[name] for name in read_settings(state)
            }
        if live is not None and live.tuning is not None:
            made.tuning = self._redactor.hide_texts(live.tuning.as_json())
        elif history is not None:
            found = history.document_at("tuning", self._span.end)
            if found is not None:
                made.tuning = self._redactor.hide_texts(found)
                made.missing.pop("tuning", None)

    def _read_kinds(self, history: History) -> None:
        made, live = self._made, self._live
        if made.pivot is None:
            return
        cohorts = None if live is None else live.cohorts
        if self._span.end < made.written - STRETCH_S:
            cohorts = None  # what was long ago is not told by now
        made.kinds, looks = compare_kinds(
            history, self._span.start, made.turn or made.pivot, self._span.end, cohorts
        )
        if not looks:
            made.missing.setdefault(
                "cohorts.json", "no finished requests were recorded: an engine without the plugin, "
                "or too short a recording"
            )  # fmt: skip
            return
        is_now = cohorts is not None and looks[-1] is cohorts
        heard = NOTHING
        if live is not None and is_now:
            lines = () if live.requests is None else live.requests.finished
            state = live.state
            if state is not None and state.instance != looks[-1].instance:
                state = None  # of another life than the requests
            heard = Heard(live.sample, state, steps=live.steps or (), lines=lines)
        facts = None if made.facts is None else {"facts": made.facts}
        end = max(looks[-1].t, min(self._span.end, history.last))
        try:
            made.diagnosis = explain(
                made.kinds, looks, history, end, tuning=made.tuning, facts=facts, heard=heard,
            )  # fmt: skip
            if made.diagnosis is not None:
                made.diagnosis = replace(made.diagnosis, options=self._hide_options())
        except Exception as error:  # noqa: BLE001  # a file without causes is better than none
            made.missing["why.json"] = self._redactor.hide(f"{type(error).__name__}: {error}")[:300]
        first = next(iter(made.diagnosis.causes), None) if made.diagnosis is not None else None
        if first is not None and made.kinds.are_apart and not made.is_later(first):
            is_acceptance = made.fall is not None and made.fall.figure == "acceptance"
            onset = made.onset if is_acceptance else None
            since = made.fall.t if made.fall is not None and is_acceptance else None
            made.case = make_case(first, made.kinds, since, onset)

    def _hide_options(self) -> CommandOptions:
        """The options of commands; where a token lies is no secret, what is in a path may be."""
        hide, options = self._redactor.hide, self._sources.options
        return CommandOptions(tuple(map(hide, options.reading)), tuple(map(hide, options.steering)))

    def _read_config(self) -> None:
        if self._sources.config is None:
            self._made.missing.setdefault("config.yaml", _ELSEWHERE)
            return
        path = self._sources.config

        # Within the bounds of a config: aliases of aliases would have no end.
        self._made.config = self._try(
            "config.yaml", lambda: self._redactor.hide_settings(yaml_source.read(path).data)
        )

    def _read_log(self) -> None:
        if self._sources.log is None:
            self._made.missing.setdefault("engine.log", _ELSEWHERE)
            return
        path = self._sources.log
        self._made.log = self._try(
            "engine.log", lambda: _clean_tail(*read_tail(path), self._redactor)
        )

    def _name_versions(self) -> None:
        state = self._made.state or {}
        self._made.versions = {
            "specdeck": self._sources.version,
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "vllm": state.get("vllm"),
            "plugin": state.get("plugin"),
        }

    def _clean_event(self, event: BoxEvent) -> BoxEvent:
        hide = self._redactor.hide_said

        def known(text: str | None) -> str | None:
            return None if text is None else hide(text)

        return replace(
            event, text=hide(event.text), label=known(event.label), origin=known(event.origin),
            who=known(event.who), reason=known(event.reason),
        )  # fmt: skip

    def _clean_move(self, move: Move) -> Move:
        redactor = self._redactor
        return replace(
            move, who=redactor.hide_said(move.who), before=redactor.hide_texts(move.before),
            after=redactor.hide_texts(move.after), undo=redactor.hide(move.undo),
            reason=None if move.reason is None else redactor.hide_said(move.reason),
        )  # fmt: skip


def _require(history: History | None) -> History:
    assert history is not None
    return history


def _clean_tail(text: str, cut: bool, redactor: Redactor) -> Any:
    return clean_log(text, redactor, cut=cut)


def _edges(span: Span) -> tuple[float, float]:
    return span.start, span.end


def _documents(history: History, kind: str, span: Span) -> list[tuple[float, dict[str, Any]]]:
    before = history.documents(kind, -math.inf, math.nextafter(span.start, -math.inf), 1)
    return [*before, *history.documents(kind, span.start, span.end)]


def _list_drops(
    history: History,
    span: Span,
    stalls: Sequence[Stall],
    coverage: Mapping[Figure, Coverage],
) -> list[Fall]:
    """What a console lists, what is lower after a gap, and the ends of the load.

    A fall of the speed that a stall tells of, which was over before the record's end, is none.
    """
    over = [one.start for one in stalls if one.end < history.last - 1.0]
    listed = [
        place_at_gap(history, one, coverage)
        for one in list_drops(history, span.start, span.end)
        if one.figure == "acceptance" or not _is_beside(one.t, over)
    ]
    for one in list_drops_across(history, coverage):
        if not any(_is_same(one, other) for other in listed):
            listed.append(one)
    return listed


def _find_falls(
    history: History,
    span: Span,
    busy: Span,
    listed: Sequence[Fall],
    coverage: Mapping[Figure, Coverage],
) -> tuple[Fall, ...]:
    """The one that it is about first, then the greatest others by time.

    The first is the greatest fall of acceptance that is `listed`; else a smaller one that stands
    out of the span, or one of the speed, which load alone moves: of that a smaller one is looked
    for as long as anything was asked for.
    """
    spans: dict[Figure, Span] = {"acceptance": span, "tokens_per_second": busy}
    first: Fall | None = None
    for figure, known in spans.items():
        same = [one for one in listed if one.figure == figure]
        first = first or max(same, key=_weigh, default=None)
        if first is None and (small := _find_small_fall(history, known, figure)) is not None:
            small = place_at_gap(history, small, coverage)
            is_none = is_end_of_load(history, small) or is_of_deeper_drafts(history, small)
            first = None if is_none else small
    if first is None:
        return ()
    further = sorted((one for one in listed if one is not first), key=_weigh, reverse=True)
    rest = list(further[:_MOST_FURTHER])
    if first.figure == "acceptance" and (speed := _find_speed(history, first)) is not None:
        rest.append(speed)
    return (first, *sorted(rest, key=lambda one: one.t))


def _weigh(fall: Fall) -> tuple[bool, float]:
    """How much a fall says, to be compared: one while nothing was drafted may be of other work that
    came after it, and stands behind all others."""
    return fall.silence != "unknown", fall.share


def _is_same(across: Fall, fall: Fall) -> bool:
    """Whether what was lost across a gap is a fall that was found beside the gap, or the speed that
    went with acceptance."""
    is_near = across.earliest - REACH_S <= fall.t <= across.t + REACH_S
    return is_near and fall.figure in (across.figure, "acceptance")


def _is_beside(t: float, times: Iterable[float]) -> bool:
    """Whether one of some falls is so near a moment that both are one."""
    return any(abs(one - t) <= TOGETHER_S for one in times)


def _find_settled(history: History, span: Span, counted: float | None) -> float | None:
    """From when on a fall in the span is not seen yet, where figures are known up to `counted`;
    None where enough of the record comes after the span."""
    if counted is None:
        return None
    settled = (history.last if history.last > span.end else counted) - NEWEST_S
    return settled if settled < span.end else None


def _list_slides(
    history: History, span: Span, busy: Span, settled: float | None, made: Material
) -> Iterator[Slide]:
    """Those of the span that no fall tells of; one of the speed beside one of acceptance, or where
    nothing fell, as it goes with both. The speed slides as long as anything is asked for."""
    end = span.end if settled is None else min(span.end, settled)
    acceptance = find_slide(history, "acceptance", span.start, end, made.falls)
    if acceptance is not None:
        yield acceptance
    if acceptance is not None or not made.falls:
        told = (*made.falls, *made.load_ends)
        end = min(end, busy.end)
        speed = find_slide(history, "tokens_per_second", span.start, end, told)
        if speed is not None:
            yield speed


def _list_dips(history: History, span: Span, falls: Sequence[Fall]) -> tuple[Dip, ...]:
    """The greatest by time; one that a fall of acceptance tells of already is none."""
    of_acceptance = [one.t for one in falls if one.figure == "acceptance"]
    found = [
        dip
        for dip in list_dips(history, span.start, span.end)
        if not _is_beside(dip.start, of_acceptance)
    ]
    found.sort(key=lambda dip: (dip.before - dip.low) * dip.seconds, reverse=True)
    return tuple(sorted(found[:_MOST_FURTHER], key=lambda dip: dip.start))


def _find_speed(history: History, fall: Fall) -> Fall | None:
    """How the speed fell as acceptance did; None where it did not."""
    figures = compare_sides(history, "tokens_per_second", fall.t, fall.since)
    if figures is None or figures[1] > figures[0] * (1 - _LEAST_SLOWER):
        return None
    speed = replace(fall, figure="tokens_per_second", before=figures[0], after=figures[1])
    return None if is_end_of_load(history, speed) else speed


def _find_small_fall(history: History, span: Span, figure: Figure) -> Fall | None:
    """By the minute at most, and again in the seconds around the column that it was found in."""
    if span.seconds < _NARROWEST_S:
        return None
    width = min(max(_NARROWEST_S, span.seconds / COLUMNS), MINUTE_S)
    count = max(3, min(MOST_COLUMNS, int(span.seconds / width)))
    fall = find_fall(history.overview(span.start, span.end, count), figure)
    width = span.seconds / count
    if fall is None or width <= _NARROWEST_S:
        return fall
    start, end = max(span.start, fall.t - 8 * width), min(span.end, fall.t + 8 * width)
    count = int((end - start) / _NARROWEST_S)
    near = find_fall(history.overview(start, end, count), figure) if count >= 8 else None
    return fall if near is None else replace(fall, t=near.t)


def _list_points(history: History, fall: Fall) -> Iterator[Point]:
    """The figure of a fall, reading by reading around it."""
    for reading in history.readings(fall.t - NEAR_S, fall.t + NEAR_S):
        window = reading.window
        if window is None or not window.seconds:
            continue
        start = reading.t - window.seconds
        if fall.figure == "tokens_per_second":
            if window.tokens_per_second is not None:
                yield Point(start, reading.t, window.tokens_per_second, window.seconds)
        elif fall.is_of_first:
            if window.drafts and window.accepted_per_position:
                share = window.accepted_per_position[0] / window.drafts
                yield Point(start, reading.t, share, window.drafts)
        elif window.acceptance_rate is not None and window.drafted:
            yield Point(start, reading.t, window.acceptance_rate, window.drafted)


def _measure_further(
    history: History, span: Span, falls: Sequence[Fall]
) -> Iterator[tuple[Fall, Stretch, Stretch]]:
    """What the engine did around falls of the speed beside which acceptance did not fall."""
    of_acceptance = [one.t for one in falls if one.figure == "acceptance"]
    for fall in falls:
        if fall.figure == "acceptance" or _is_beside(fall.t, of_acceptance):
            continue
        start, end = max(span.start, fall.earliest - _ASIDE_S), min(span.end, fall.t + _ASIDE_S)
        before, after = ("before", start, fall.earliest), ("after", fall.t, end)
        yield fall, measure(history, *before), measure(history, *after)


def _find_pivot(made: Material, last: Reading | None) -> float:
    """The moment that before and after are told around: the fall, or the engine's end, or the
    last minutes where neither is."""
    if made.falls:
        return made.falls[0].t
    if made.dips:
        return max(made.dips, key=lambda one: one.before - one.low).start
    if made.is_down_at_end:
        return made.downs[-1][0]
    if made.stalls:
        return max(made.stalls, key=lambda one: one.seconds).start
    end = made.span.end if last is None else last.t
    return max(made.span.start + (end - made.span.start) / 2, end - STRETCH_S)


def _measure(
    history: History, span: Span, turn: float, pivot: float
) -> tuple[tuple[Stretch, ...], dict[str, float]]:
    """What the engine did up to `turn`, from `pivot` on and at the end, and the moments whose
    settings are told."""
    before = (max(span.start, turn - STRETCH_S), turn)
    after = (pivot, min(span.end, pivot + STRETCH_S))
    stretches = [measure(history, "before", *before), measure(history, "after", *after)]
    moments = {"before": max(before[0], turn - _SETTLED_S), "after": after[1]}
    if span.end - after[1] > 60.0:
        stretches.append(measure(history, "end", max(after[1], span.end - STRETCH_S), span.end))
        moments["end"] = span.end
    return tuple(one for one in stretches if one.readings), moments


def describe_log(made: Material) -> Mapping[str, Any] | None:
    """How much of the log is in the file."""
    log = made.log
    if log is None:
        return None
    return {name: one for name, one in asdict(log).items() if name in ("withheld", "cut")} | {
        "lines": len(log.lines)
    }
