"""What to try, and for how long."""

from __future__ import annotations

import math

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from specdeck.console.state.engine_state import Track
from specdeck.console.state.pending import Want
from specdeck.engine.control.protocol import MODES, POLICIES

_USUAL_S, _MOST_S = 60.0, 3600.0


class TrialDialog(ModalScreen[Want | None]):
    """Asks for a k, a policy or a mode, and seconds; None leaves things as they are."""

    CSS_PATH = "trial.tcss"
    BINDINGS = [("escape", "dismiss", "Leave it")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-medium")]

    def __init__(self, track: Track) -> None:
        super().__init__()
        self.track = track

    def compose(self) -> ComposeResult:
        """Two fields, and what will happen."""
        with Vertical(id="dialog"):
            yield Label("Try it on the live traffic", id="question", markup=False)
            yield Label(
                "The engine measures as it is, makes the change, measures again, then keeps it "
                "if it is faster and takes it back otherwise, or when this console goes away.",
                id="explanation",
                markup=False,
            )
            yield Label("k, goodput, threshold, target-only or speculate", classes="name")
            yield Input(suggested(self.track), id="what", compact=True)
            yield Label("seconds of work to measure after the change", classes="name")
            yield Input(f"{_seconds(self.track):g}", id="seconds", compact=True)
            yield Label("", id="refusal", markup=False)
            yield Label("enter begins   tab next field   esc leaves it", id="keys", markup=False)

    def on_mount(self) -> None:
        """The first field is the one to think about."""
        self.query_one("#what", Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Begin, unless something makes no sense."""
        words, seconds = (self.query_one(name, Input).value for name in ("#what", "#seconds"))
        try:
            self.dismiss(want(words, seconds, self.track))
        except ValueError as error:
            self.query_one("#refusal", Label).update(str(error))


def suggested(track: Track) -> str:
    """The k of which most is expected, if it is another one; else the one below.

    >>> suggested(Track("a", "http://a"))
    '0'
    """
    state, tuning = track.known, track.tuning
    if state is None:
        return "0"
    if tuning is not None:
        known = [each for each in tuning.outlook if each.tokens_per_second is not None]
        best = max(known, key=lambda each: each.tokens_per_second or 0.0, default=None)
        if best is not None and best.k != state.k:
            return str(best.k)
    return str(state.k - 1 if state.k else min(1, state.k_max))


def _seconds(track: Track) -> float:
    """The engine's own default."""
    for parameter in track.tuning.parameters if track.tuning else ():
        if parameter.name == "trial.seconds" and isinstance(parameter.value, int | float):
            return float(parameter.value)
    return _USUAL_S


def want(words: str, seconds: str, track: Track) -> Want:
    """What the two fields ask for; raises ValueError with the reason.

    >>> want("3", "60", Track("a", "http://a")).k
    3
    >>> want("goodput", "soon", Track("a", "http://a"))
    Traceback (most recent call last):
    ValueError: 'soon' is no number of seconds from 1 to 3600
    """
    lasts = _number(seconds)
    if lasts is None or not 1 <= lasts <= _MOST_S:
        raise ValueError(f"{seconds.strip()!r} is no number of seconds from 1 to {_MOST_S:.0f}")
    text = words.strip().lower()
    for policy in POLICIES:
        if text == policy:
            return Want(policy=policy, trial_s=lasts, reason="trial")
    for mode in MODES:
        if text == mode:
            return Want(mode=mode, trial_s=lasts, reason="trial")
    if not (text.isascii() and text.isdecimal() and len(text) < 4):
        raise ValueError(f"{words.strip()!r} is neither a k nor a policy nor a mode")
    k = int(text)
    if track.known is not None and k > track.known.k_max:
        raise ValueError(f"k_max is {track.known.k_max}: the engine's buffers are sized by it")
    return Want(k=k, trial_s=lasts, reason="trial")


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
