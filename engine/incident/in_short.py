"""The first section of an incident's page: what fell, for whom, and what was before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from specdeck.engine.blackbox.falls import NEWEST_S, Fall, Figure
from specdeck.engine.blackbox.gaps import Coverage
from specdeck.engine.incident.acceptance_move import AcceptanceMove, compare_acceptance
from specdeck.engine.incident.case_words import (
    DIMENSIONS,
    describe_case,
    describe_dip,
    describe_fall,
    describe_silence,
    describe_slide,
    describe_stall,
    describe_who,
)
from specdeck.engine.incident.dips import TOGETHER_S, find_near
from specdeck.engine.incident.kinds import ASKED
from specdeck.engine.incident.markdown import Clock, escape, format_acceptance
from specdeck.engine.incident.material import Material
from specdeck.engine.incident.moves import Move, Run, describe_run, group_moves
from specdeck.engine.incident.outages import list_outages
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
_SAME_S: Final = 1.0
"""An event so soon after a fall has its second."""
_AT_ONCE_S: Final = 2.0
"""A dip that begins so near a fall of the speed has its second."""
_MOST_STALLS: Final = 3
"""The longest."""
_NEARLY_ALL: Final = 0.98
"""Of the time: of a figure that is known for so much of it no gap is told."""
_MOST_GAPS: Final = 3
"""The longest."""
_NEW_SHARE: Final = 0.05
"""Of the requests: a kind that was not asked for before."""


def _begin_sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


class InShort:
    """What an incident comes to."""

    def __init__(self, made: Material, clock: Clock) -> None:
        self._made, self._clock, self._local = made, clock, clock.local

    def list_lines(self) -> list[str]:
        """The section, a fact a line."""
        made = self._made
        worse = [*self._falls(), *self._passing(), *self._likeliest(), *self._quiet(), *self._age()]
        outages = [f"- The engine {one}." for one in list_outages(made, self._clock)]
        # Where nothing became worse the file is about these.
        found = [*worse, *outages] if made.has_worsened else [*outages, *worse]
        found += [f"- Shortly before: {one}" for one in self._list_near()]
        found += self._new_traffic()
        up = {True: "It answered", False: "It did not answer", None: "It was not asked"}[made.up]
        found.append(f"- {up} when this was written, at {self._clock(made.written)}.")
        return found

    def _falls(self) -> list[str]:
        """Slides; falls of acceptance and what fell with the first one; of the others when they
        were."""
        made = self._made
        found = [f"- {_begin_sentence(escape(describe_slide(one)))}." for one in made.slides]
        if not made.falls:
            return [*found, *(f"- {one}." for one in self._describe_no_fall())]
        alone = [
            one.t
            for one in made.falls
            if one is not made.fall and one.since is None and self._has_held(one)
        ]
        told = [one for one in made.falls if one.t not in alone]
        found += [f"- {self._place(one)}." for one in told]
        if alone:
            found.append(
                f"- Tokens/s fell at {self._clock.list_times(alone)}, while acceptance did not."
            )
        return found

    def _place(self, fall: Fall) -> str:
        """A fall with its time; one in a gap has two in its words."""
        text = escape(self.describe_fall(fall))
        if fall.since is not None:
            return _begin_sentence(text)
        return f"{self._clock(fall.t)} {text}"

    def _describe_no_fall(self) -> Iterator[str]:
        """Which figures did not fall as far as they are known, of how much that is, and of which
        time it cannot be told yet."""
        made = self._made
        yield from self._deny_falls()
        if made.settled is not None and any(one.known_s for one in made.coverage.values()):
            seconds, t = format_duration(NEWEST_S), self._clock(made.settled)
            yield f"What fell in the last {seconds} that are known, from {t} on, is too new to tell"

    def _deny_falls(self) -> Iterator[str]:
        """Which figures did not fall, and of how much of the time that is known; those that slid
        are none of them."""
        made = self._made
        known: list[tuple[str, Coverage]] = []
        unknown: list[str] = []
        slid = {one.figure for one in made.slides}
        for figure, word in _FIGURES.items():
            if figure in slid:
                continue
            coverage = made.coverage.get(figure)
            if coverage is None or not coverage.known_s:
                unknown.append(word)
            else:
                known.append((word, coverage))
        if not known:
            if len(unknown) == 1:
                yield f"Whether {unknown[0]} fell is unknown: it was not recorded then"
            elif unknown:
                yield "Whether acceptance or tokens/s fell is unknown: neither was recorded then"
            return
        words = [word for word, _ in known]
        head = f"Neither {' nor '.join(words)} fell for good" if words[1:] else (
            f"{words[0].capitalize()} did not fall for good"
        )  # fmt: skip
        parts = dict.fromkeys(self._describe_part(one) for _, one in known)
        if list(parts) == [""]:
            text = f"{head} in this time"
        elif len(parts) == 1:
            text = f"{head} in what is known of this time: {next(iter(parts))}"
        else:
            each = [f"{word} {self._describe_part(one) or 'all of it'}" for word, one in known]
            text = f"{head} in what is known of this time: {'; '.join(each)}"
        if unknown:
            text += f"; whether {unknown[0]} fell is unknown: it was not recorded then"
        yield text

    def _describe_part(self, coverage: Coverage) -> str:
        """How much of the time a figure is known, and of which it is not; empty of nearly all."""
        whole = self._made.span.seconds
        if coverage.known_s >= _NEARLY_ALL * whole:
            return ""
        longest = sorted(coverage.gaps, key=lambda one: -one.seconds)[:_MOST_GAPS]
        spans = [f"{self._clock(one.start)}–{self._clock(one.end)}"
                 for one in sorted(longest, key=lambda one: one.start)]  # fmt: skip
        if left := len(coverage.gaps) - len(longest):
            spans.append(f"{left} more")
        return (
            f"{format_duration(coverage.known_s)} of {format_duration(whole)}"
            f" (not {', '.join(spans)})"
        )

    def _passing(self) -> list[str]:
        """What went by: acceptance that came back, unless a fall has it, stalls, and load."""
        made = self._made
        beside = [find_near(made.dips, one.t, TOGETHER_S) for one in made.falls]
        rows = [(one.start, describe_dip(one)) for one in made.dips if one not in beside]
        longest = sorted(made.stalls, key=lambda one: -one.seconds)[:_MOST_STALLS]
        rows += [(one.start, describe_stall(one, self._clock)) for one in longest]
        found = [f"- {self._clock(t)} {escape(text)}." for t, text in sorted(rows)]
        if made.load_ends:
            times = self._clock.list_times([one.t for one in made.load_ends])
            found.append(f"- The load ended at {times}: no request ran or waited any more.")
        if left := len(made.stalls) - len(longest):
            found.append(f"- {format_count(left, 'shorter stall')} besides.")
        return found

    def _has_held(self, fall: Fall) -> bool:
        """Whether acceptance was known beside a fall of the speed, and did not fall."""
        made = self._made
        if find_near(made.dips, fall.t, TOGETHER_S) is not None:
            return False
        moves = [compare_acceptance(*sides) for other, *sides in made.further if other is fall]
        return any(one is not None and one.has_held for one in moves)

    def _likeliest(self) -> list[str]:
        diagnosis, has_worsened = self._made.diagnosis, self._made.has_worsened
        if diagnosis is None or (self._made.has_gone and not has_worsened):
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
        if not has_worsened:
            return [f"- What costs speed, though nothing fell: {escape(words)}."]
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
        if not kinds.are_apart:
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
        text += describe_silence(fall, self._clock)
        if is_first and made.case is not None and (who := describe_who(made.case)):
            return f"{text}: {who}"
        if not is_first and made.fall is not None and fall.t == made.fall.t:
            return text if fall.since is not None else f"{text}, at the same second"
        dip = find_near(made.dips, fall.t, TOGETHER_S)
        if dip is not None:
            then = f"at {self._clock(dip.start)} " if abs(dip.start - fall.t) > _AT_ONCE_S else ""
            text += f"; {then}{describe_dip(dip)}"
        for other, before, after in made.further:
            moved = compare_acceptance(before, after) if other is fall else None
            if moved is not None:
                if dip is None:
                    word = "did not fall then" if moved.has_held else "fell as well"
                    text += f"; acceptance {word} ({describe_acceptance(moved)})"
                elif moved.depth is not None and not moved.has_held:  # back by shorter drafts
                    text += f", but {describe_acceptance(moved)}"
                if before.step_s is not None and after.step_s is not None:
                    text += (
                        f", a step took {before.step_s * 1e3:.1f} ms before and"
                        f" {after.step_s * 1e3:.1f} ms after"
                    )
        return text

    def list_near_moves(self) -> list[Move]:
        """The changes shortly before the fall."""
        return [one for one in self._made.moves if self._is_near(one.t)]

    def _is_near(self, t: float) -> bool:
        """Whether a moment is shortly before the fall, or in the time that may have it."""
        fall = self._made.fall
        return fall is not None and fall.earliest - NEAR_S <= t <= fall.t + 5.0

    def _is_before(self, t: float) -> bool:
        fall = self._made.fall
        return fall is not None and t <= fall.t + _SAME_S

    def _list_near(self) -> list[str]:
        """The last changes before the fall, those of what is asked for and what moved k by itself
        among them."""
        rows = [(one.first.t, self._run(one)) for one in group_moves(self.list_near_moves())]
        events = [one for one in self._made.events if one.text and self._is_near(one.t)]
        near = [one for one in events if one.kind == "load"]
        for kind in ("policy", "breaker"):
            # What came after the fall answers it.
            by_itself = [one for one in events if one.kind == kind and self._is_before(one.t)]
            grave = [one for one in by_itself if one.tone == "bad"]  # such as a breaker that opens
            near += (grave or by_itself)[-1:]
        rows += [(one.t, f"{self._clock(one.t)} {escape(one.text)}") for one in near]
        return [text for _, text in sorted(rows)[-_MOST_NEAR:]]

    def _quiet(self) -> list[str]:
        """That nothing is known to have led to the fall, as far back as there is a record."""
        made = self._made
        before = made.stretches[0].seconds if made.stretches else None
        if made.fall is None or before is None or self._near_causes():
            return []
        if made.fall.since is not None:
            return []  # what happened while nothing was known is not known either
        seconds = format_duration(round(min(NEAR_S, before)))
        return [f"- No change, no restart and no event is known of the {seconds} before that."]

    def _age(self) -> list[str]:
        """How long the engine had run when it fell: something that takes its time may be behind."""
        made, started = self._made, (self._made.state or {}).get("started")
        if made.fall is None or not isinstance(started, int | float) or started >= made.fall.t:
            return []
        if started > made.fall.earliest:
            return [f"- The engine was started in that time, at {self._clock(started)}."]
        ran = format_duration(made.fall.t - started)
        return [f"- The engine had run for {ran} by then, since {self._clock(started)}."]

    def _near_causes(self) -> bool:
        """Whether anything is known to have happened shortly before the fall."""
        made, moves = self._made, self.list_near_moves()
        told = [
            *made.restarts,
            *(one.t for one in made.events),
            *(t for one in made.downs for t in one),
        ]
        return bool(moves) or any(map(self._is_near, told))

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


def describe_acceptance(moved: AcceptanceMove) -> str:
    """What was accepted before and after.

    >>> describe_acceptance(AcceptanceMove(0.42, 0.1))
    '42% before, 10% after'
    >>> describe_acceptance(AcceptanceMove(0.8, 0.45, 1))
    'of the first token of drafts, 80% before, 45% after'
    """
    text = f"{moved.before:.0%} before, {moved.after:.0%} after"
    return text if moved.depth is None else f"of {moved.of}, {text}"
