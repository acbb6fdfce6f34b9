"""A trial in words: under way, or how it has ended."""

from __future__ import annotations

from specdeck.console.widgets.cells import Tone
from specdeck.console.widgets.format import oneline
from specdeck.engine.protocol.tuning import TrialTuning
from specdeck.engine.text import format_duration


def describe_trial(trial: TrialTuning) -> tuple[str, Tone]:
    """A trial on one line, and whether that is good news.

    >>> one = TrialTuning("changed", "ann", {"k": 5}, {"k": 3}, 60.0, 0.0, 41.2, 12.0)
    >>> describe_trial(one)[0]
    'k 5 → 3: measuring it, 41 s of work left; reverted in 12 s unless renewed'
    """
    what = _knobs(trial)
    if not trial.over:
        doing = "measuring the baseline" if trial.state == "baseline" else "measuring it"
        left = (
            ""
            if trial.seconds_left is None
            else f", {format_duration(trial.seconds_left)} of work left"
        )
        lease = trial.lease_left_s
        back = "" if lease is None else f"; reverted in {format_duration(lease)} unless renewed"
        return f"{what}: {doing}{left}{back}", "accent"
    tone: Tone = "good" if trial.state == "kept" else "warn"
    ended = "never made" if trial.state == "abandoned" else trial.state
    if trial.comparison is not None:
        return f"{what} {ended}: {trial.comparison}", tone
    return f"{what} {ended}: {oneline(trial.reason or 'no reason given')}", tone


def _knobs(trial: TrialTuning) -> str:
    """What is tried.

    >>> _knobs(TrialTuning("kept", "ann", {"k": 5}, {"k": 3, "policy": "fixed"}, 60.0, 0.0))
    'k 5 → 3, policy fixed'
    """
    return ", ".join(
        f"{name} {trial.before[name]} → {value}" if name in trial.before else f"{name} {value}"
        for name, value in trial.after.items()
    )
