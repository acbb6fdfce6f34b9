"""The sections of an incident's page about the engine: settings, policy, names, checks, its log."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from specdeck.engine.incident.markdown import (
    LONGEST,
    Clock,
    escape,
    explain_missing,
    format_rows,
    shorten,
)
from specdeck.engine.incident.material import Material
from specdeck.engine.text import UNKNOWN, format_count


class EngineSections:
    """What was known of the engine itself; lines of a section each."""

    def __init__(self, made: Material, clock: Clock) -> None:
        self._made, self._clock, self._local = made, clock, clock.local

    def list_settings(self) -> list[str]:
        """What was set before and after, and what of it differs."""
        settings = self._made.settings
        if not settings:
            return [explain_missing(self._made, "state", "the engine's plugin told nothing")]
        names = dict.fromkeys(name for found in settings.values() for name in found)
        rows = []
        for name in names:
            values = [found.get(name) for found in settings.values()]
            words = [escape(shorten(value)) for value in values]
            moved = any(value != values[0] for value in values[1:])
            rows.append([f"**{name}**" if moved else name, *words])
        rows.sort(key=lambda row: not row[0].startswith("**"))
        return ["What differs stands first.", "", *format_rows(["", *settings], rows)]

    def list_policy(self) -> list[str]:
        """Its policy, its breaker and the last moves of k."""
        tuning = self._made.tuning
        if not isinstance(tuning, Mapping):
            return [explain_missing(self._made, "tuning", "the engine's plugin told nothing")]
        rows = [["policy", escape(shorten(tuning.get("policy")))],
                ["its reason", escape(shorten(tuning.get("reason")))]]  # fmt: skip
        breaker = tuning.get("breaker")
        if isinstance(breaker, Mapping):
            for name in ("state", "reason", "cause", "evidence", "acceptance", "gain", "opened",
                         "by", "alarm"):  # fmt: skip
                if breaker.get(name) is not None:
                    rows.append([f"breaker's {name}", escape(shorten(breaker[name]))])
        trial = tuning.get("trial")
        if isinstance(trial, Mapping):
            words = [f"{name} {shorten(trial[name])}" for name in
                     ("state", "who", "before", "after", "verdict", "reason")
                     if trial.get(name) is not None]  # fmt: skip
            rows.append(["last trial", escape("; ".join(words))])
        lines = format_rows(["", ""], rows)
        changes = tuning.get("changes")
        moves = [one for one in changes if isinstance(one, Mapping)] if isinstance(
            changes, Sequence) else []  # fmt: skip
        if moves:
            lines += ["", "The last moves of k:", ""]
            for one in moves[-15:]:
                t = one.get("t")
                clock = self._clock(t) if isinstance(t, int | float) else UNKNOWN
                change = f"k {shorten(one.get('before'))} → {shorten(one.get('after'))}"
                lines.append(
                    f"- {clock} {escape(change)} by {escape(shorten(one.get('who')))}:"
                    f" {escape(shorten(one.get('reason')))}"
                )
        return lines

    def list_engine(self) -> list[str]:
        """What it is, its names, and what it cannot do."""
        made, state = self._made, self._made.state or {}
        rows = [
            ["URL", escape(made.url)],
            ["model", escape(shorten(state.get("model") or made.model))],
        ]
        if made.told is not None:
            rows.append(["last word of its plugin", self._clock(made.told)])
        for name in ("vllm", "method", "k_max", "runner", "plugin", "instance"):
            rows.append([name, escape(shorten(state.get(name)))])
        started = state.get("started")
        if isinstance(started, int | float):
            when = time.strftime("%Y-%m-%d %H:%M:%S", self._local(started))
            rows.append(["plugin took hold", when])
        print_ = made.fingerprint if isinstance(made.fingerprint, Mapping) else {}
        names = print_.get("names")
        if isinstance(names, Mapping):
            rows += [[f"{name}'s name", escape(shorten(one))] for name, one in names.items()]
        lines = format_rows(["", ""], rows)
        if made.fingerprints:
            lines += ["", "Names that were seen, with the pin's verdict:", ""]
            for one in made.fingerprints[-10:]:
                t = one.get("t")
                clock = self._clock(t) if isinstance(t, int | float) else UNKNOWN
                words = [f"{name} {shorten(one[name])}" for name in
                         ("build", "path", "behaviour", "pinned", "differs")
                         if one.get(name) is not None]  # fmt: skip
                lines.append(f"- {clock} {escape(', '.join(words))}")
        refused = [
            one for one in state.get("capabilities", ())
            if isinstance(one, Mapping) and not one.get("available")
        ]  # fmt: skip
        if refused:
            lines += ["", "What it cannot do:", ""]
            lines += [
                f"- {escape(shorten(one.get('name')))}: {escape(shorten(one.get('reason')))}"
                for one in refused
            ]
        return lines

    def list_checks(self) -> list[str]:
        """The divergence checks of it."""
        checks = self._made.checks
        if not checks:
            why = self._made.missing.get("checks.json", "none was made from this machine")
            return [f"None: {escape(why)}"]
        rows = []
        for one in checks[-10:]:
            summary = one.get("summary")
            summary = summary if isinstance(summary, Mapping) else {}
            t = one.get("finished") or one.get("t")
            when = time.strftime("%Y-%m-%d %H:%M", self._local(t)) if t else UNKNOWN
            rows.append([
                when, escape(shorten(one.get("kind"))), escape(shorten(summary.get("verdict"))),
                escape(shorten(summary.get("prompts"))), escape(shorten(summary.get("mismatches"))),
            ])  # fmt: skip
        return format_rows(["finished", "kind", "verdict", "prompts", "differ"], rows)

    def list_log(self) -> list[str]:
        """Its last errors."""
        log = self._made.log
        if log is None:
            return [f"Not here: {escape(self._made.missing.get('engine.log', 'not read'))}"]
        withheld = format_count(log.withheld, "line")
        lines = [
            f"The last {format_count(len(log.lines), 'line')} are in engine.log. {withheld} that"
            " may hold what requests say, or that nobody knows, were left out.",
        ]
        if log.notable:
            lines += ["", "Its last errors:", "", "```"]
            lines += [one.replace("```", "'''")[:LONGEST] for one in log.notable[-12:]]
            lines.append("```")
        else:
            lines.append("It tells of no error.")
        return lines
