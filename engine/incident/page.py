"""The page of an incident: the story in order, for somebody who was not there.

Markdown that is read as text as well. Every word of an engine's or a person's is escaped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from specdeck.engine.blackbox.falls import Fall
from specdeck.engine.client.command_options import NO_OPTIONS
from specdeck.engine.incident.case import HELD
from specdeck.engine.incident.case_words import (
    DIMENSIONS,
    describe_case,
    describe_dip,
    describe_fall,
    describe_stall,
    describe_who,
    list_evidence,
    list_unchanged,
    name_outside,
)
from specdeck.engine.incident.dips import TOGETHER_S, find_near
from specdeck.engine.incident.figures import Stretch
from specdeck.engine.incident.hypotheses import list_hypotheses
from specdeck.engine.incident.kinds import ASKED, Kind
from specdeck.engine.incident.material import Material
from specdeck.engine.incident.moves import Move, Run, group_moves
from specdeck.engine.protocol.cohorts import CohortCounts
from specdeck.engine.protocol.messages import TOKEN_VARIABLE
from specdeck.engine.text import (
    UNKNOWN,
    escape_markdown,
    format_changes,
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
LocalTime = Callable[[float], time.struct_time]

NEAR_S: Final = 180.0
"""Seconds before a fall in which a change may be its cause."""
_MOST_EVENTS: Final = 120
_MOST_MOVES: Final = 60
_MOST_NEAR: Final = 5
"""Changes shortly before the fall, told in short."""
_AT_ONCE_S: Final = 2.0
"""A dip that begins so near a fall of the speed has its second."""
_MOST_STALLS: Final = 3
"""Told in short, the longest."""
_MOST_KINDS: Final = 8
"""Of one dimension."""
_LONGEST: Final = 400

_NEW_SHARE: Final = 0.05
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
        day = {time.strftime("%Y-%m-%d", local(t)) for t in (made.span.start, made.span.end)}
        self._clock_form = "%H:%M:%S" if len(day) == 1 else "%m-%d %H:%M:%S"

    def write(self) -> str:
        made = self._made
        parts = [
            f"# Incident: {_md(made.name)}", "", self._when(), "",
            "## In short", "", *self._short(), "",
            "## Charts", "", *self._charts(), "",
            "## Before and after", "", *self._stretches(), "",
            "## Changes", "", *self._moves(), "",
            "## What happened", "", *self._events(), "",
            "## Why", "", *self._why(), "",
            "## Who suffers", "", *self._kinds(), "",
            "## Settings", "", *self._settings(), "",
            "## Policy and breaker", "", *self._policy(), "",
            "## The engine", "", *self._engine(), "",
            "## Checks", "", *self._checks(), "",
            "## Its log", "", *self._log(), "",
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

    def _short(self) -> list[str]:
        made = self._made
        found = [*self._falls(), *self._passing(), *self._likeliest(), *self._quiet(), *self._age()]
        if made.restarts:
            found.append(f"- The engine was restarted at {self._clocks(made.restarts)}.")
        for first, last in made.downs[-3:]:
            is_last = made.is_down_at_end and last == made.downs[-1][1]
            until = "to the end of the recording" if is_last else f"until {self._clock(last)}"
            found.append(f"- It did not answer from {self._clock(first)} {until}.")
        near = group_moves(self._near_moves())[-_MOST_NEAR:]
        found += [f"- Shortly before: {self._run(one)}" for one in near]
        found += self._new_traffic()
        up = {True: "It answered", False: "It did not answer", None: "It was not asked"}[made.up]
        found.append(f"- {up} when this was written, at {self._clock(made.written)}.")
        return found

    def _falls(self) -> list[str]:
        """Those of acceptance and what fell with the first one; of the others when they were."""
        made = self._made
        if not made.falls:
            return ["- Neither acceptance nor tokens/s fell for good in this time."]
        alone = [one.t for one in made.falls if one is not made.fall and self._has_held(one)]
        told = [one for one in made.falls if one.t not in alone]
        found = [f"- {self._clock(one.t)} {_md(self._fall(one))}." for one in told]
        if alone:
            found.append(f"- Tokens/s fell at {self._clocks(alone)}, while acceptance did not.")
        return found

    def _passing(self) -> list[str]:
        """What went by: acceptance that came back, unless a fall has it, and stalls."""
        made = self._made
        beside = [find_near(made.dips, one.t, TOGETHER_S) for one in made.falls]
        rows = [(one.start, describe_dip(one)) for one in made.dips if one not in beside]
        longest = sorted(made.stalls, key=lambda one: -one.seconds)[:_MOST_STALLS]
        rows += [(one.start, describe_stall(one, self._clock)) for one in longest]
        found = [f"- {self._clock(t)} {_md(text)}." for t, text in sorted(rows)]
        if left := len(made.stalls) - len(longest):
            found.append(f"- {format_count(left, 'shorter stall')} besides.")
        return found

    def _has_held(self, fall: Fall) -> bool:
        """Whether acceptance was known beside a fall of the speed, and did not fall."""
        made = self._made
        if find_near(made.dips, fall.t, TOGETHER_S) is not None:
            return False
        sides = [(before, after) for other, before, after in made.further if other is fall]
        return any(
            before.acceptance is not None
            and after.acceptance is not None
            and after.acceptance >= HELD * before.acceptance
            for before, after in sides
        )

    def _likeliest(self) -> list[str]:
        diagnosis = self._made.diagnosis
        if diagnosis is None:
            return []
        if not diagnosis.causes:
            return ["- What finished requests tell names no cause."]
        case, cause = self._made.case, self._made.likeliest
        if cause is None:
            first = diagnosis.causes[0]
            since = "later" if first.since is None else f"at {self._clock(first.since)}"
            return [
                f"- No cause of that fall was found: what costs most now began {since}"
                f" ({_md(TITLES[first.name])})."
            ]
        is_first = cause is diagnosis.causes[0]
        known = None if case is None or not is_first else describe_case(case, self._clock)
        words = known or "; ".join(describe_cause(cause, self._local))
        return [f"- The likeliest cause: {_md(words)}."]

    def _new_traffic(self) -> list[str]:
        """What is asked for since then and was not before, and how much there is of it."""
        made, found = self._made, []
        if len(made.stretches) > 1:
            was, now = made.stretches[0].running, made.stretches[1].running
            if was is not None and now is not None and not was / 1.5 <= now <= was * 1.5:
                found.append(f"- Running requests went from {was:.1f} to {now:.1f} on average.")
        kinds = made.kinds
        if kinds is None or kinds.before is None or kinds.after is None:
            return found
        was_all, now_all = kinds.before.total.requests, kinds.after.total.requests
        for kind in kinds.list():
            before = 0 if kind.before is None else kind.before.requests
            after = 0 if kind.after is None else kind.after.requests
            is_new = after > _NEW_SHARE * now_all and before < 0.01 * was_all
            if kind.by in ASKED and is_new and was_all:
                accepted = _format_acceptance(kind.after)
                found.append(
                    f"- New since then: {DIMENSIONS[kind.by]} {_md(kind.word)}, {after} of"
                    f" {now_all} finished requests, {accepted} accepted."
                )
        return found

    def _fall(self, fall: Fall) -> str:
        """A fall in words: whom it met, and what went with it."""
        made = self._made
        is_first = fall is made.fall
        text = describe_fall(fall, made.onset if is_first else None)
        if is_first and made.case is not None and (who := describe_who(made.case)):
            return f"{text}: {who}"
        if not is_first and made.fall is not None and fall.t == made.fall.t:
            return f"{text}, at the same second"
        dip = find_near(made.dips, fall.t, TOGETHER_S)
        if dip is not None:
            then = f"at {self._clock(dip.start)} " if abs(dip.start - fall.t) > _AT_ONCE_S else ""
            text += f"; {then}{describe_dip(dip)}"
        for other, before, after in made.further:
            if other is fall and before.acceptance is not None and after.acceptance is not None:
                if dip is None:
                    word = "did not fall then" if self._has_held(fall) else "fell as well"
                    text += (
                        f"; acceptance {word} ({before.acceptance:.0%} before,"
                        f" {after.acceptance:.0%} after)"
                    )
                if before.step_s is not None and after.step_s is not None:
                    text += (
                        f", a step took {before.step_s * 1e3:.1f} ms before and"
                        f" {after.step_s * 1e3:.1f} ms after"
                    )
        return text

    def _near_moves(self) -> list[Move]:
        pivot = self._made.fall.t if self._made.fall is not None else None
        if pivot is None:
            return []
        return [one for one in self._made.moves if pivot - NEAR_S <= one.t <= pivot + 5.0]

    def _quiet(self) -> list[str]:
        """That nothing is known to have led to the fall, as far back as there is a record."""
        made = self._made
        before = made.stretches[0].seconds if made.stretches else None
        if made.fall is None or before is None or self._near_causes():
            return []
        seconds = format_duration(round(min(NEAR_S, before)))
        return [f"- No change, no restart and no event is known of the {seconds} before that."]

    def _age(self) -> list[str]:
        """How long the engine had run when it fell: something that takes its time may be behind."""
        made, started = self._made, (self._made.state or {}).get("started")
        if made.fall is None or not isinstance(started, int | float) or started >= made.fall.t:
            return []
        ran = format_duration(made.fall.t - started)
        return [f"- The engine had run for {ran} by then, since {self._clock(started)}."]

    def _near_causes(self) -> bool:
        """Whether anything is known to have happened shortly before the fall."""
        made, moves = self._made, self._near_moves()
        told = [*made.restarts, *(one.t for one in made.events), *(t for _, t in made.downs)]
        pivot = 0.0 if made.fall is None else made.fall.t
        return bool(moves) or any(pivot - NEAR_S <= t <= pivot + 5.0 for t in told)

    def _run(self, run: Run) -> str:
        """A change before the fall; of a sweep under way what it had done by then."""
        move = run.first
        if move.origin == "sweep" and len(run.moves) > 1:
            visits = format_count(run.visits, "move")
            return f"{self._clock(move.t)} {_md(move.who) or UNKNOWN} swept k, {visits} by then"
        changes = _describe_run(run)
        who = _md(move.who) or UNKNOWN
        origin = f" ({_md(move.origin)})" if move.origin and move.origin != "operator" else ""
        reason = f", because: {_md(run.reason)}" if run.reason else ""
        return f"{self._clock(move.t)} {who}{origin} set {_md(changes)}{reason}"

    def _charts(self) -> list[str]:
        if "acceptance.svg" not in self._members:
            return [self._reason("recording", "nothing was recorded")]
        return [
            "![acceptance](acceptance.svg)", "",
            "![tokens per second](tokens.svg)", "",
            "The band is the least and the most of each column, the line its mean; red is an engine"
            " that does not answer, violet lines are changes, the dashed one is the fall.",
        ]  # fmt: skip

    def _stretches(self) -> list[str]:
        stretches = self._made.stretches
        if not stretches:
            return [self._reason("recording", self._made.missing.get("readings", "not recorded"))]
        heads = [f"{one.label} ({self._clock(one.start)}–{self._clock(one.end)})"
                 for one in stretches]  # fmt: skip
        rows = [
            [label, *(form(one) for one in stretches)]
            for label, form in _ROWS
            if any(form(one) != UNKNOWN for one in stretches)
        ]
        return _table(["figure", *heads], rows)

    def _moves(self) -> list[str]:
        runs = group_moves(self._made.moves)
        if not runs:
            return ["None is known: neither the engine told of one, nor is one in the audit log of"
                    " the machine that wrote this."]  # fmt: skip
        rows = []
        chosen = _choose(runs, [run.first.t for run in runs], self._made.pivot, _MOST_MOVES)
        for run in chosen:
            one = run.last if run.first.before == run.first.after else run.first
            changes = _describe_run(run)
            if one.outcome != "applied":
                changes += f" (outcome {one.outcome})"
            observed = UNKNOWN if one.observed_k is None else f"{one.observed_k:.2f}"
            undo = f"`{oneline(one.undo).replace('`', '')}`" if one.undo else UNKNOWN
            rows.append([
                self._clock(one.t), _md(one.who) or UNKNOWN, _md(one.origin or UNKNOWN),
                _md(changes), observed, _md(run.reason or UNKNOWN), undo.replace("|", "\\|"),
            ])  # fmt: skip
        left = len(runs) - len(rows)
        more = []
        if left:
            more = [f"Those nearest to the fall; {left} others are in audit.json.", ""]
        elif any(len(run.moves) > 1 for run in runs):
            more = ["Each single move of a sweep or a trial is in audit.json.", ""]
        return [
            *more,
            *_table(["time", "who", "origin", "change", "k seen", "reason", "undo"], rows),
        ]

    def _events(self) -> list[str]:
        """The fall that it is about first, then by time what was told of and what else fell."""
        made = self._made
        told = [one for one in made.events if one.text]
        shown = _choose(told, [one.t for one in told], made.pivot, _MOST_EVENTS)
        rows = [(one.t, _md(one.text), one.tone == "bad") for one in shown]
        rows += [
            (one.t, _md(self._fall(one)), one.figure == "acceptance")
            for one in made.falls
            if one is not made.fall
        ]
        rows += [(one.start, _md(describe_stall(one, self._clock)), True) for one in made.stalls]
        beside = [find_near(made.dips, one.t, TOGETHER_S) for one in made.falls]
        rows += [
            (one.start, _md(describe_dip(one)), True) for one in made.dips if one not in beside
        ]
        rows.sort(key=lambda row: row[0])
        if made.fall is not None:
            rows.insert(0, (made.fall.t, _md(self._fall(made.fall)), True))
        if not rows:
            return [self._reason("recording", "no event was recorded")]
        lines = [
            f"- {self._clock(t)} {f'**{text}**' if is_bad else text}" for t, text, is_bad in rows
        ]
        left = len(told) - len(shown)
        if left:
            lines.append(f"- … {format_count(left, 'more event')} in the recording")
        return lines

    def _why(self) -> list[str]:
        diagnosis = self._made.diagnosis
        if diagnosis is None:
            why = self._made.missing.get("why.json") or self._made.missing.get("cohorts.json")
            return [f"Not told: {_md(why or 'no finished requests were recorded')}"]
        lines = [f"Judged from {_md(describe_look(diagnosis.looked))}."]
        if (baseline := describe_baseline(diagnosis, self._local)) is not None:
            lines.append(f"Compared {_md(baseline)}.")
        lines.append("")
        for number, cause in enumerate(diagnosis.causes, start=1):
            lines += self._cause(number, cause, diagnosis)
        if (together := describe_together(diagnosis.causes)) is not None:
            lines += ["", f"{_md(together[:1].upper() + together[1:])}."]
        if not diagnosis.causes:
            lines.append("No cause was found.")
        if any("specdeck set" in diagnosis.command(cause) for cause in diagnosis.causes):
            words = f"in the file that is named, or in {TOKEN_VARIABLE}"
            lines += ["", f"Commands that change the engine need its admin token: {words}."]
        if diagnosis.ruled_out:
            lines += ["", "Ruled out:", ""]
            lines += [f"- {_md(self._ruled_out(one))}" for one in diagnosis.ruled_out]
        if diagnosis.untold:
            lines += ["", "Cannot be told:", ""]
            lines += [f"- {_md(one)}" for one in list_untold(diagnosis.untold)]
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
        lines = [f"{number}. **{_md(known or title)}**"]
        figures = [f"   - {_md(one)}" for one in rest]
        if known is not None:
            figures = [f"   - as `specdeck why` has it: {_md('; '.join((title, *rest)))}"]
        if made.fall is not None and cause.since is not None and made.is_later(cause):
            later = format_duration(cause.since - made.fall.t)
            lines.append(f"   - it began {later} after the fall, and so is not what caused that")
        command = oneline(diagnosis.command(cause)).replace("`", "")
        if case is None:
            return [*lines, *figures, f"   - to try: `{command}`"]
        lines += ["", "   What speaks for it:", ""]
        lines += [f"   - {_md(one)}" for one in list_evidence(case, self._clock)]
        if len(made.stretches) > 1 and not self._near_moves():
            unchanged = list_unchanged(made.stretches[0], made.stretches[1], made.settings)
            lines += [f"   - {_md(one)}" for one in unchanged]
        lines += figures
        hypotheses = list_hypotheses(case)
        if hypotheses:
            lines += ["", "   What may be behind it (guesses: what is recorded does not tell them"
                      " apart), and what would tell:", ""]  # fmt: skip
        for one in hypotheses:
            issue = "" if one.issue is None else f" (met in {one.issue})"
            lines.append(f"   - {_md(one.fault + issue)}; {_md(one.test)}")
            if one.command is not None:
                lines.append(f"     - `{self._command(one.command)}`")
        first = "   - first, so that less is lost meanwhile: requests whose drafts are all rejected"
        if trial_of(cause) == RESTING:
            tell = "   - then what tells the guesses apart; and the engine's log of that second"
            last = (
                "   - last, as it interrupts every request: a restart; if acceptance comes back"
                " with it, the fault is in what the engine keeps in memory, and not in its files"
            )
            return [*lines, "", "   To try:", "", f"{first} draft no more: `{command}`", tell, last]
        return [*lines, "", "   To try:", "", f"   - `{command}`"]

    def _command(self, command: str) -> str:
        diagnosis = self._made.diagnosis
        options = NO_OPTIONS if diagnosis is None else diagnosis.options
        return oneline(format_command(command, self._made.url, options)).replace("`", "")

    def _kinds(self) -> list[str]:
        kinds = self._made.kinds
        if kinds is None or (kinds.before is None and kinds.after is None):
            why = self._made.missing.get("cohorts.json") or self._made.missing.get("cohorts")
            return [f"Not told: {_md(why or 'no finished requests were recorded')}"]
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
                loss = kind.loss
                points = "few requests" if kind.few else UNKNOWN
                rows.append([
                    DIMENSIONS.get(dimension, dimension), _md(kind.word),
                    _requests(kind.before, totals[0]), _requests(kind.after, totals[1]),
                    _format_acceptance(kind.before), _format_acceptance(kind.after),
                    points if loss is None else f"{-loss * 100:+.0f}",
                ])  # fmt: skip
        head = ["kind", "is", "requests before", "after", "accepted before", "after", "points"]
        return [*lines, *_table(head, rows)]

    def _settings(self) -> list[str]:
        settings = self._made.settings
        if not settings:
            return [self._reason("state", "the engine's plugin told nothing")]
        names = dict.fromkeys(name for found in settings.values() for name in found)
        rows = []
        for name in names:
            values = [found.get(name) for found in settings.values()]
            words = [_md(_short(value)) for value in values]
            moved = any(value != values[0] for value in values[1:])
            rows.append([f"**{name}**" if moved else name, *words])
        rows.sort(key=lambda row: not row[0].startswith("**"))
        return ["What differs stands first.", "", *_table(["", *settings], rows)]

    def _policy(self) -> list[str]:
        tuning = self._made.tuning
        if not isinstance(tuning, Mapping):
            return [self._reason("tuning", "the engine's plugin told nothing")]
        rows = [["policy", _md(_short(tuning.get("policy")))],
                ["its reason", _md(_short(tuning.get("reason")))]]  # fmt: skip
        breaker = tuning.get("breaker")
        if isinstance(breaker, Mapping):
            for name in ("state", "reason", "cause", "evidence", "acceptance", "gain", "opened",
                         "by", "alarm"):  # fmt: skip
                if breaker.get(name) is not None:
                    rows.append([f"breaker's {name}", _md(_short(breaker[name]))])
        trial = tuning.get("trial")
        if isinstance(trial, Mapping):
            words = [f"{name} {_short(trial[name])}" for name in
                     ("state", "who", "before", "after", "verdict", "reason")
                     if trial.get(name) is not None]  # fmt: skip
            rows.append(["last trial", _md("; ".join(words))])
        lines = _table(["", ""], rows)
        changes = tuning.get("changes")
        moves = [one for one in changes if isinstance(one, Mapping)] if isinstance(
            changes, Sequence) else []  # fmt: skip
        if moves:
            lines += ["", "The last moves of k:", ""]
            for one in moves[-15:]:
                t = one.get("t")
                clock = self._clock(t) if isinstance(t, int | float) else UNKNOWN
                change = f"k {_short(one.get('before'))} → {_short(one.get('after'))}"
                lines.append(
                    f"- {clock} {_md(change)} by {_md(_short(one.get('who')))}:"
                    f" {_md(_short(one.get('reason')))}"
                )
        return lines

    def _engine(self) -> list[str]:
        made, state = self._made, self._made.state or {}
        rows = [["URL", _md(made.url)], ["model", _md(_short(state.get("model") or made.model))]]
        if made.told is not None:
            rows.append(["last word of its plugin", self._clock(made.told)])
        for name in ("vllm", "method", "k_max", "runner", "plugin", "instance"):
            rows.append([name, _md(_short(state.get(name)))])
        started = state.get("started")
        if isinstance(started, int | float):
            when = time.strftime("%Y-%m-%d %H:%M:%S", self._local(started))
            rows.append(["plugin took hold", when])
        print_ = made.fingerprint if isinstance(made.fingerprint, Mapping) else {}
        names = print_.get("names")
        if isinstance(names, Mapping):
            rows += [[f"{name}'s name", _md(_short(one))] for name, one in names.items()]
        lines = _table(["", ""], rows)
        if made.fingerprints:
            lines += ["", "Names that were seen, with the pin's verdict:", ""]
            for one in made.fingerprints[-10:]:
                t = one.get("t")
                clock = self._clock(t) if isinstance(t, int | float) else UNKNOWN
                words = [f"{name} {_short(one[name])}" for name in
                         ("build", "path", "behaviour", "pinned", "differs")
                         if one.get(name) is not None]  # fmt: skip
                lines.append(f"- {clock} {_md(', '.join(words))}")
        refused = [
            one for one in state.get("capabilities", ())
            if isinstance(one, Mapping) and not one.get("available")
        ]  # fmt: skip
        if refused:
            lines += ["", "What it cannot do:", ""]
            lines += [
                f"- {_md(_short(one.get('name')))}: {_md(_short(one.get('reason')))}"
                for one in refused
            ]
        return lines

    def _checks(self) -> list[str]:
        checks = self._made.checks
        if not checks:
            why = self._made.missing.get("checks.json", "none was made from this machine")
            return [f"None: {_md(why)}"]
        rows = []
        for one in checks[-10:]:
            summary = one.get("summary")
            summary = summary if isinstance(summary, Mapping) else {}
            t = one.get("finished") or one.get("t")
            when = time.strftime("%Y-%m-%d %H:%M", self._local(t)) if t else UNKNOWN
            rows.append([
                when, _md(_short(one.get("kind"))), _md(_short(summary.get("verdict"))),
                _md(_short(summary.get("prompts"))), _md(_short(summary.get("mismatches"))),
            ])  # fmt: skip
        return _table(["finished", "kind", "verdict", "prompts", "differ"], rows)

    def _log(self) -> list[str]:
        log = self._made.log
        if log is None:
            return [f"Not here: {_md(self._made.missing.get('engine.log', 'not read'))}"]
        withheld = format_count(log.withheld, "line")
        lines = [
            f"The last {format_count(len(log.lines), 'line')} are in engine.log. {withheld} that"
            " may hold what requests say, or that nobody knows, were left out.",
        ]
        if log.notable:
            lines += ["", "Its last errors:", "", "```"]
            lines += [one.replace("```", "'''")[:_LONGEST] for one in log.notable[-12:]]
            lines.append("```")
        else:
            lines.append("It tells of no error.")
        return lines

    def _contents(self) -> list[str]:
        made = self._made
        lines = [f"- `{name}`: {_MEMBERS[name]}" for name in _MEMBERS if name in self._members]
        if made.missing:
            lines += ["", "What could not be had:", ""]
            lines += [f"- {_md(names)}: {_md(why)}" for names, why in made.list_missing()]
        lines += [f"- {_md(note)}" for note in made.notes]
        versions = ", ".join(f"{name} {one}" for name, one in made.versions.items() if one)
        lines += [
            "", f"Written by {_md(versions)}.", "",
            "`specdeck replay FILE` opens the recording; `specdeck export FILE -o counters.csv`"
            " makes a table of it.",
        ]  # fmt: skip
        return lines

    def _clock(self, t: float) -> str:
        return time.strftime(self._clock_form, self._local(t))

    def _clocks(self, times: Sequence[float]) -> str:
        shown = ", ".join(map(self._clock, times[-5:]))
        return shown if len(times) <= 5 else f"{shown} and {len(times) - 5} times before"

    def _reason(self, name: str, otherwise: str) -> str:
        return f"Not told: {_md(self._made.missing.get(name, otherwise))}"


def _describe_run(run: Run) -> str:
    """What one change moved; of a sweep what it tried and what it left."""
    if run.first.origin != "sweep" or len(run.moves) == 1:
        moved = [
            words
            for one in run.moves
            if (words := format_changes(one.before, one.after, moved_only=True))
        ]
        return moved[0] if moved else "nothing"
    was, now = run.first.before.get("k"), run.last.after.get("k")
    tried = run.swept or "k after k"
    return f"k {UNKNOWN if was is None else was}, swept {tried} in {run.visits} moves, then {now}"


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


def _format_acceptance(counts: CohortCounts | None) -> str:
    acceptance = None if counts is None else counts.acceptance
    return UNKNOWN if acceptance is None else f"{acceptance:.0%}"


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


def _short(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        value = ", ".join(f"{name} {_short(one)}" for name, one in value.items())
    elif isinstance(value, list | tuple):
        value = ", ".join(_short(one) for one in value)
    text = oneline(str(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _md(text: str) -> str:
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return escape_markdown(shown)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
