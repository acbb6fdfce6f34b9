"""The first section of an incident's page: what fell, for whom, and what was before it."""

from __future__ import annotations

from typing import Final

from specdeck.engine.blackbox.falls import Fall, Figure, read_mean
from specdeck.engine.incident.case import HELD
from specdeck.engine.incident.case_words import (
    DIMENSIONS,
    describe_case,
    describe_dip,
    describe_fall,
    describe_stall,
    describe_who,
)
from specdeck.engine.incident.dips import TOGETHER_S, find_near
from specdeck.engine.incident.kinds import ASKED
from specdeck.engine.incident.markdown import Clock, escape, format_acceptance
from specdeck.engine.incident.material import Material
from specdeck.engine.incident.moves import Move, Run, describe_run, group_moves
from specdeck.engine.text import UNKNOWN, format_count, format_duration
from specdeck.engine.why.words import TITLES, describe_cause

_FIGURES: Final[dict[Figure, str]] = {
    "acceptance": "acceptance",
    "tokens_per_second": "tokens/s",
}
NEAR_S: Final = 180.0
"""Seconds before a fall in which a change may be its cause."""
_MOST_NEAR: Final = 5
"""Changes shortly before the fall."""
_AT_ONCE_S: Final = 2.0
"""A dip that begins so near a fall of the speed has its second."""
_MOST_STALLS: Final = 3
"""The longest."""
_NEW_SHARE: Final = 0.05
"""Of the requests: a kind that was not asked for before."""


class InShort:
    """What an incident comes to."""

    def __init__(self, made: Material, clock: Clock) -> None:
        self._made, self._clock, self._local = made, clock, clock.local

    def list_lines(self) -> list[str]:
        """The section, a fact a line."""
        made = self._made
        found = [*self._falls(), *self._passing(), *self._likeliest(), *self._quiet(), *self._age()]
        if made.restarts:
            found.append(f"- The engine was restarted at {self._clock.list_times(made.restarts)}.")
        for first, last in made.downs[-3:]:
            is_last = made.is_down_at_end and last == made.downs[-1][1]
            until = "to the end of the recording" if is_last else f"until {self._clock(last)}"
            found.append(f"- It did not answer from {self._clock(first)} {until}.")
        found += [f"- Shortly before: {one}" for one in self._list_near()]
        found += self._new_traffic()
        up = {True: "It answered", False: "It did not answer", None: "It was not asked"}[made.up]
        found.append(f"- {up} when this was written, at {self._clock(made.written)}.")
        return found

    def _falls(self) -> list[str]:
        """Those of acceptance and what fell with the first one; of the others when they were."""
        made = self._made
        if not made.falls:
            return [f"- {self._describe_no_fall()}"]
        alone = [one.t for one in made.falls if one is not made.fall and self._has_held(one)]
        told = [one for one in made.falls if one.t not in alone]
        found = [f"- {self._clock(one.t)} {escape(self.describe_fall(one))}." for one in told]
        if alone:
            found.append(
                f"- Tokens/s fell at {self._clock.list_times(alone)}, while acceptance did not."
            )
        return found

    def _describe_no_fall(self) -> str:
        """Which figures did not fall, and of which nothing is known in this time."""
        known: list[str] = []
        unknown: list[str] = []
        for figure, word in _FIGURES.items():
            means = [read_mean(column, figure) for column in self._made.columns]
            (unknown if all(one is None for one in means) else known).append(word)
        if not known:
            return "Whether acceptance or tokens/s fell is unknown: neither was recorded then."
        if unknown:
            return (
                f"{known[0].capitalize()} did not fall for good in this time; whether"
                f" {unknown[0]} fell is unknown: it was not recorded then."
            )
        return "Neither acceptance nor tokens/s fell for good in this time."

    def _passing(self) -> list[str]:
        """What went by: acceptance that came back, unless a fall has it, and stalls."""
        made = self._made
        beside = [find_near(made.dips, one.t, TOGETHER_S) for one in made.falls]
        rows = [(one.start, describe_dip(one)) for one in made.dips if one not in beside]
        longest = sorted(made.stalls, key=lambda one: -one.seconds)[:_MOST_STALLS]
        rows += [(one.start, describe_stall(one, self._clock)) for one in longest]
        found = [f"- {self._clock(t)} {escape(text)}." for t, text in sorted(rows)]
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
                f" ({escape(TITLES[first.name])})."
            ]
        is_first = cause is diagnosis.causes[0]
        known = None if case is None or not is_first else describe_case(case, self._clock)
        words = known or "; ".join(describe_cause(cause, self._local))
        return [f"- The likeliest cause: {escape(words)}."]

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
                accepted = format_acceptance(kind.after)
                found.append(
                    f"- New since then: {DIMENSIONS[kind.by]} {escape(kind.word)}, {after} of"
                    f" {now_all} finished requests, {accepted} accepted."
                )
        return found

    def describe_fall(self, fall: Fall) -> str:
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

    def list_near_moves(self) -> list[Move]:
        """The changes shortly before the fall."""
        pivot = self._made.fall.t if self._made.fall is not None else None
        if pivot is None:
            return []
        return [one for one in self._made.moves if pivot - NEAR_S <= one.t <= pivot + 5.0]

    def _list_near(self) -> list[str]:
        """The last changes before the fall, those of what is asked for among them."""
        rows = [(one.first.t, self._run(one)) for one in group_moves(self.list_near_moves())]
        fall = self._made.fall
        if fall is not None:
            rows += [
                (one.t, f"{self._clock(one.t)} {escape(one.text)}")
                for one in self._made.events
                if one.kind == "load" and one.text and fall.t - NEAR_S <= one.t <= fall.t + 5.0
            ]
        return [text for _, text in sorted(rows)[-_MOST_NEAR:]]

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
        made, moves = self._made, self.list_near_moves()
        told = [*made.restarts, *(one.t for one in made.events), *(t for _, t in made.downs)]
        pivot = 0.0 if made.fall is None else made.fall.t
        return bool(moves) or any(pivot - NEAR_S <= t <= pivot + 5.0 for t in told)

    def _run(self, run: Run) -> str:
        """A change before the fall; of a sweep under way what it had done by then."""
        move = run.first
        if move.origin == "sweep" and len(run.moves) > 1:
            visits = format_count(run.visits, "move")
            return f"{self._clock(move.t)} {escape(move.who) or UNKNOWN} swept k, {visits} by then"
        changes = describe_run(run)
        who = escape(move.who) or UNKNOWN
        origin = f" ({escape(move.origin)})" if move.origin and move.origin != "operator" else ""
        reason = f", because: {escape(run.reason)}" if run.reason else ""
        return f"{self._clock(move.t)} {who}{origin} set {escape(changes)}{reason}"
