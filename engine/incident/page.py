"""The page of an incident: the story in order, for somebody who was not there.

Markdown that is read as text as well. Every word of an engine's or a person's is escaped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from specdeck.engine.client.command_options import NO_OPTIONS
from specdeck.engine.incident.case_words import (
    DIMENSIONS,
    describe_case,
    describe_dip,
    describe_stall,
    list_evidence,
    list_unchanged,
    name_outside,
)
from specdeck.engine.incident.dips import TOGETHER_S, find_near
from specdeck.engine.incident.engine_sections import EngineSections
from specdeck.engine.incident.figures import Stretch
from specdeck.engine.incident.hypotheses import list_hypotheses
from specdeck.engine.incident.in_short import InShort
from specdeck.engine.incident.kinds import Kind
from specdeck.engine.incident.markdown import (
    Clock,
    LocalTime,
    escape,
    explain_missing,
    format_acceptance,
    format_rows,
)
from specdeck.engine.incident.material import Material
from specdeck.engine.incident.moves import describe_run, find_try, group_moves
from specdeck.engine.protocol.cohorts import CohortCounts
from specdeck.engine.protocol.messages import TOKEN_VARIABLE
from specdeck.engine.store.audit import OUTCOMES
from specdeck.engine.text import (
    UNKNOWN,
    format_count,
    format_duration,
    oneline,
)
from specdeck.engine.why.causes import RESTING, Cause, RuledOut, format_command, trial_of
from specdeck.engine.why.ranking import Diagnosis
from specdeck.engine.why.words import (
    TITLES,
    describe_baseline,
    describe_cause,
    describe_look,
    describe_ruled_out,
    describe_together,
    list_untold,
)

_T = TypeVar("_T")

_MOST_EVENTS: Final = 120
_MOST_MOVES: Final = 60
_MOST_KINDS: Final = 8
"""Of one dimension."""
_MEMBERS: Final = {
    "acceptance.svg": "acceptance over the span",
    "tokens.svg": "tokens/s over the span",
    "manifest.json": "versions, span, what could not be had and why",
    "why.json": "causes, what is ruled out, what cannot be told",
    "cohorts.json": "finished requests by kind, before and after",
    "audit.json": "changes with their undo commands",
    "checks.json": "divergence checks of this engine",
    "fingerprint.json": "names of the serving path, and what was seen of them",
    "facts.json": "the facts behind them",
    "state.json": "the engine's last word of itself, and its policy and breaker",
    "config.yaml": "what it was started from",
    "engine.log": "the end of its log",
    "recording.db": "every second of the span: `specdeck replay FILE`",
}


def write_page(made: Material, members: Iterable[str], local: LocalTime = time.localtime) -> str:
    """The page; `members` are the names of what lies beside it."""
    return _Page(made, tuple(members), local).write()


class _Page:
    def __init__(self, made: Material, members: tuple[str, ...], local: LocalTime) -> None:
        self._made, self._members, self._local = made, members, local
        self._clock = Clock(made.span, local)
        self._short = InShort(made, self._clock)

    def write(self) -> str:
        made, engine = self._made, EngineSections(self._made, self._clock)
        parts = [
            f"# Incident: {escape(made.name)}", "", self._when(), "",
            "## In short", "", *self._short.list_lines(), "",
            "## Charts", "", *self._charts(), "",
            "## Before and after", "", *self._stretches(), "",
            "## Changes", "", *self._moves(), "",
            "## What happened", "", *self._events(), "",
            "## Why", "", *self._why(), "",
            "## Who suffers", "", *self._kinds(), "",
            "## Settings", "", *engine.list_settings(), "",
            "## Policy and breaker", "", *engine.list_policy(), "",
            "## The engine", "", *engine.list_engine(), "",
            "## Checks", "", *engine.list_checks(), "",
            "## Its log", "", *engine.list_log(), "",
            "## What is in this file", "", *self._contents(), "",
        ]  # fmt: skip
        return "\n".join(parts)

    def _when(self) -> str:
        made = self._made
        first, last = (
            time.strftime("%Y-%m-%d %H:%M:%S", self._local(t))
            for t in (made.span.start, made.span.end)
        )
        zone = time.strftime("UTC%z", self._local(made.span.end))
        return (
            f"{first} to {last} ({format_duration(made.span.seconds)}); times are {zone}, those of"
            " the machine that wrote this. Keys, prompts and answers are not in this file."
        )

    def _charts(self) -> list[str]:
        if "acceptance.svg" not in self._members:
            return [explain_missing(self._made, "recording", "nothing was recorded")]
        return [
            "![acceptance](acceptance.svg)", "",
            "![tokens per second](tokens.svg)", "",
            "The band is the least and the most of each column, the line its mean; red is an engine"
            " that does not answer, violet lines are changes, the dashed one is the fall.",
        ]  # fmt: skip

    def _stretches(self) -> list[str]:
        stretches = self._made.stretches
        if not stretches:
            return [
                explain_missing(
                    self._made, "recording", self._made.missing.get("readings", "not recorded")
                )
            ]
        heads = [f"{one.label} ({self._clock(one.start)}–{self._clock(one.end)})"
                 for one in stretches]  # fmt: skip
        rows = [
            [label, *(form(one) for one in stretches)]
            for label, form in _ROWS
            if any(form(one) != UNKNOWN for one in stretches)
        ]
        return format_rows(["figure", *heads], rows)

    def _moves(self) -> list[str]:
        runs = group_moves(self._made.moves)
        if not runs:
            return ["None is known: neither the engine told of one, nor is one in the audit log of"
                    " the machine that wrote this."]  # fmt: skip
        rows = []
        chosen = _choose(runs, [run.first.t for run in runs], self._made.pivot, _MOST_MOVES)
        for run in chosen:
            one = run.last if run.first.before == run.first.after else run.first
            changes = describe_run(run)
            if one.outcome in OUTCOMES:
                changes += f" ({OUTCOMES[one.outcome]})"
            observed = UNKNOWN if one.observed_k is None else f"{one.observed_k:.2f}"
            undo = f"`{oneline(one.undo).replace('`', '')}`" if one.undo else UNKNOWN
            rows.append([
                self._clock(one.t), escape(one.who) or UNKNOWN, escape(one.origin or UNKNOWN),
                escape(changes), observed, escape(run.reason or UNKNOWN), undo.replace("|", "\\|"),
            ])  # fmt: skip
        left = len(runs) - len(rows)
        more = []
        if left:
            more = [f"Those nearest to the fall; {left} others are in audit.json.", ""]
        elif any(len(run.moves) > 1 for run in runs):
            more = ["Each single move of a sweep or a trial is in audit.json.", ""]
        return [
            *more,
            *format_rows(["time", "who", "origin", "change", "k seen", "reason", "undo"], rows),
        ]

    def _events(self) -> list[str]:
        """The fall that it is about first, then by time what was told of and what else fell."""
        made = self._made
        told = [one for one in made.events if one.text]
        shown = _choose(told, [one.t for one in told], made.pivot, _MOST_EVENTS)
        rows = [(one.t, escape(one.text), one.tone == "bad") for one in shown]
        rows += [
            (one.t, escape(self._short.describe_fall(one)), one.figure == "acceptance")
            for one in made.falls
            if one is not made.fall
        ]
        rows += [(one.start, escape(describe_stall(one, self._clock)), True) for one in made.stalls]
        beside = [find_near(made.dips, one.t, TOGETHER_S) for one in made.falls]
        rows += [
            (one.start, escape(describe_dip(one)), True) for one in made.dips if one not in beside
        ]
        words = "the load ended: no request ran or waited any more"
        rows += [(one.t, words, False) for one in made.load_ends]
        rows.sort(key=lambda row: row[0])
        if made.fall is not None:
            rows.insert(0, (made.fall.t, escape(self._short.describe_fall(made.fall)), True))
        if not rows:
            return [explain_missing(self._made, "recording", "no event was recorded")]
        lines = [
            f"- {self._clock(t)} {f'**{text}**' if is_bad else text}" for t, text, is_bad in rows
        ]
        left = len(told) - len(shown)
        if left:
            lines.append(f"- … {format_count(left, 'more event')} in the recording")
        return lines

    def _why(self) -> list[str]:
        made, diagnosis = self._made, self._made.diagnosis
        if diagnosis is None:
            why = made.missing.get("why.json") or made.missing.get("cohorts.json")
            return [f"Not told: {escape(why or 'no finished requests were recorded')}"]
        looked = describe_look(diagnosis.looked, self._local)
        lines = [f"Judged from {escape(looked)}."]
        if (baseline := describe_baseline(diagnosis, self._local)) is not None:
            lines.append(f"Compared {escape(baseline)}.")
        if diagnosis.causes and not made.has_worsened:
            lines.append("Nothing fell in this time: what follows costs speed, and made no fall.")
        lines.append("")
        for number, cause in enumerate(diagnosis.causes, start=1):
            lines += self._cause(number, cause, diagnosis)
        if (together := describe_together(diagnosis.causes)) is not None:
            lines += ["", f"{escape(together[:1].upper() + together[1:])}."]
        if not diagnosis.causes:
            lines.append("No cause was found.")
        if any("specdeck set" in diagnosis.command(cause) for cause in diagnosis.causes):
            words = f"in the file that is named, or in {TOKEN_VARIABLE}"
            lines += ["", f"Commands that change the engine need its admin token: {words}."]
        if diagnosis.ruled_out:
            lines += ["", "Ruled out:", ""]
            lines += [f"- {escape(self._ruled_out(one))}" for one in diagnosis.ruled_out]
        if diagnosis.untold:
            lines += ["", "Cannot be told:", ""]
            lines += [f"- {escape(one)}" for one in list_untold(diagnosis.untold)]
        return lines

    def _ruled_out(self, one: RuledOut) -> str:
        case = self._made.case
        if one.name == "draft_of_another_target" and case is not None:
            # Those that the first cause is about were left aside.
            return f"{TITLES[one.name]}: first tokens of {name_outside(case)} are accepted"
        return describe_ruled_out(one)

    def _cause(self, number: int, cause: Cause, diagnosis: Diagnosis) -> list[str]:
        """A cause: what speaks for it, what may be behind it, what to try."""
        made, case = self._made, self._made.case if number == 1 else None
        title, *rest = describe_cause(cause, self._local)
        known = None if case is None else describe_case(case, self._clock)
        lines = [f"{number}. **{escape(known or title)}**"]
        figures = [f"   - {escape(one)}" for one in rest]
        if known is not None:
            figures = [f"   - as `specdeck why` has it: {escape('; '.join((title, *rest)))}"]
        if made.fall is not None and cause.since is not None and made.is_later(cause):
            later = format_duration(cause.since - made.fall.t)
            lines.append(f"   - it began {later} after the fall, and so is not what caused that")
        command = oneline(diagnosis.command(cause)).replace("`", "")
        if case is None:
            return [*lines, *figures, f"   - to try: `{command}`"]
        lines += ["", "   What speaks for it:", ""]
        lines += [f"   - {escape(one)}" for one in list_evidence(case, self._clock)]
        if len(made.stretches) > 1 and not self._short.list_near_moves():
            unchanged = list_unchanged(made.stretches[0], made.stretches[1], made.settings)
            lines += [f"   - {escape(one)}" for one in unchanged]
        lines += figures
        hypotheses = list_hypotheses(case)
        if hypotheses:
            lines += ["", "   What may be behind it (guesses: what is recorded does not tell them"
                      " apart), and what would tell:", ""]  # fmt: skip
        for one in hypotheses:
            issue = "" if one.issue is None else f" (met in {one.issue})"
            lines.append(f"   - {escape(one.fault + issue)}; {escape(one.test)}")
            if one.command is not None:
                lines.append(f"     - `{self._command(one.command)}`")
        first = "   - first, so that less is lost meanwhile: requests whose drafts are all rejected"
        if trial_of(cause) == RESTING:
            tell = "   - then what tells the guesses apart; and the engine's log of that second"
            last = (
                "   - last, as it interrupts every request: a restart; if acceptance comes back"
                " with it, the fault is in what the engine keeps in memory, and not in its files"
            )
            first += f" draft no more: `{command}`{self._describe_try()}"
            return [*lines, "", "   To try:", "", first, tell, last]
        return [*lines, "", "   To try:", "", f"   - `{command}`"]

    def _describe_try(self) -> str:
        """When that was tried already, and what became of it."""
        made = self._made
        knobs = dict(word.split("=") for word in RESTING.split())
        found = find_try(made.moves, knobs, made.fall.t if made.fall is not None else 0.0)
        if found is None:
            return ""
        if found.back is None:
            return f"; it was set at {self._clock(found.t)}"
        when = f"{self._clock(found.t)} and taken back at {self._clock(found.back)}"
        return f"; it was tried at {when}, as the changes above tell"

    def _command(self, command: str) -> str:
        diagnosis = self._made.diagnosis
        options = NO_OPTIONS if diagnosis is None else diagnosis.options
        return oneline(format_command(command, self._made.url, options)).replace("`", "")

    def _kinds(self) -> list[str]:
        kinds = self._made.kinds
        if kinds is None or (kinds.before is None and kinds.after is None):
            why = self._made.missing.get("cohorts.json") or self._made.missing.get("cohorts")
            return [f"Not told: {escape(why or 'no finished requests were recorded')}"]
        spans = [
            UNKNOWN if one is None else f"{self._clock(one.start)}–{self._clock(one.end)}"
            for one in (kinds.before, kinds.after)
        ]
        lines = [
            f"Requests that finished before ({spans[0]}) and after ({spans[1]}), by one word of"
            " each kind; where acceptance fell most stands first, and kinds of few requests last.",
            "",
        ]  # fmt: skip
        rows = []
        by: dict[str, list[Kind]] = {}
        for kind in kinds.list():
            by.setdefault(kind.by, []).append(kind)
        totals = [one.total.requests if one is not None else 0
                  for one in (kinds.before, kinds.after)]  # fmt: skip
        for dimension, listed in by.items():
            if len(listed) == 1 and dimension not in ("temperature", "structured", "prompt"):
                continue  # all requests are alike in it
            for kind in listed[:_MOST_KINDS]:
                loss, move = kind.loss, kind.move
                points = "few requests" if kind.few else UNKNOWN
                if move is None or move.depth is None:
                    shares = format_acceptance(kind.before), format_acceptance(kind.after)
                else:
                    shares = f"{move.before:.0%} of {move.of}", f"{move.after:.0%}"
                rows.append([
                    DIMENSIONS.get(dimension, dimension), escape(kind.word),
                    _requests(kind.before, totals[0]), _requests(kind.after, totals[1]),
                    *shares,
                    points if loss is None else f"{-loss * 100:+.0f}",
                ])  # fmt: skip
        head = ["kind", "is", "requests before", "after", "accepted before", "after", "points"]
        return [*lines, *format_rows(head, rows)]

    def _contents(self) -> list[str]:
        made = self._made
        lines = [f"- `{name}`: {_MEMBERS[name]}" for name in _MEMBERS if name in self._members]
        if made.missing:
            lines += ["", "What could not be had:", ""]
            lines += [f"- {escape(names)}: {escape(why)}" for names, why in made.list_missing()]
        lines += [f"- {escape(note)}" for note in made.notes]
        versions = ", ".join(f"{name} {one}" for name, one in made.versions.items() if one)
        lines += [
            "", f"Written by {escape(versions)}.", "",
            "`specdeck replay FILE` opens the recording; `specdeck export FILE -o counters.csv`"
            " makes a table of it.",
        ]  # fmt: skip
        return lines


def _choose(
    events: Sequence[_T], times: Sequence[float], pivot: float | None, most: int
) -> list[_T]:
    """At most so many, those nearest to the moment that the story is about, by their `times`."""
    if len(events) <= most:
        return list(events)
    at = times[-1] if pivot is None else pivot
    nearest = sorted(range(len(events)), key=lambda n: abs(times[n] - at))[:most]
    return [events[n] for n in sorted(nearest)]


def _requests(counts: CohortCounts | None, total: int) -> str:
    if counts is None:
        return "0"
    return f"{counts.requests} ({counts.requests / total:.0%})" if total else str(counts.requests)


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1%}"


def _number(value: float | None, digits: int = 2) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def _ms(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value * 1e3:,.1f} ms"


def _positions(values: Sequence[float | None] | None) -> str:
    if not values:
        return UNKNOWN
    return " ".join(UNKNOWN if value is None else f"{value * 100:.0f}" for value in values)


_ROWS: Final[tuple[tuple[str, Callable[[Stretch], str]], ...]] = (
    ("acceptance", lambda one: _share(one.acceptance)),
    ("accepted by position, %", lambda one: _positions(one.acceptance_per_position)),
    ("tokens/s", lambda one: _number(one.tokens_per_second, 1)),
    ("tokens a round commits", lambda one: _number(one.mean_acceptance_length)),
    ("k seen", lambda one: _number(one.observed_k)),
    ("output from drafts", lambda one: _share(one.output_from_drafts)),
    ("time to first token, p50", lambda one: _ms(one.ttft_p50_s)),
    ("time to first token, p99", lambda one: _ms(one.ttft_p99_s)),
    ("between tokens, p50", lambda one: _ms(one.itl_p50_s)),
    ("between tokens, p99", lambda one: _ms(one.itl_p99_s)),
    ("running requests", lambda one: _number(one.running, 1)),
    ("waiting requests", lambda one: _number(one.waiting, 1)),
    ("KV cache in use", lambda one: _share(one.kv_cache_usage)),
    ("prefix cache hits", lambda one: _share(one.prefix_hit_rate)),
    ("preemptions", lambda one: _number(one.preemptions, 0)),
    ("seconds measured", lambda one: _number(one.seconds, 0)),
    ("readings without an answer", lambda one: f"{one.down} of {one.readings}"),
)
