"""What to try, and the parameters of policies, breaker and trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Input, Label, OptionList

from specdeck.console import keys
from specdeck.console.screens.dialogs import LineDialog, Modal
from specdeck.console.screens.tuning.view import explain_silence, format_value
from specdeck.console.state.controller import Controller
from specdeck.console.state.copies import Copyable
from specdeck.console.state.engine_state import Track
from specdeck.console.widgets.format import shorten
from specdeck.console.widgets.options import ItemOption, LineList, read_item
from specdeck.engine.client.command_options import NO_OPTIONS, CommandOptions
from specdeck.engine.errors import UsageError
from specdeck.engine.operations.assignments import format_set, parse_assignments
from specdeck.engine.protocol.messages import MODES, POLICIES, Change, Value
from specdeck.engine.protocol.tuning import Parameter
from specdeck.engine.text import oneline, printable

_TRUTH = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


def format_parameter(parameter: Parameter, width: int, names: int = 0) -> str:
    """One line of the list, where the longest name has `names` characters.

    >>> margin = Parameter("goodput.margin", 0.03, 0.015, "number", doc="The least gain.")
    >>> format_parameter(margin, 60)
    'goodput.margin    0.03 *  The least gain.'
    """
    changed = "*" if parameter.value != parameter.default else " "
    text = (
        f"{parameter.name:<{names}}  {format_value(parameter.value):>6} {changed}  {parameter.doc}"
    )
    return shorten(printable(text), width)


def explain(parameter: Parameter) -> str:
    """What a parameter means and what it can be, whole.

    >>> print(explain(Parameter("a.b", 0.03, 0.015, "number", 0.0, 0.5, doc="The least gain.")))
    The least gain.
    a number from 0 to 0.5; 0.015 at the start
    """
    return "\n".join(filter(None, (printable(parameter.doc or ""), bounds(parameter))))


def bounds(parameter: Parameter) -> str:
    """What it can be.

    >>> bounds(Parameter("a.b", 0.03, 0.015, "number", 0.0, 0.5))
    'a number from 0 to 0.5; 0.015 at the start'
    >>> bounds(Parameter("a.b", None, None, "whole", 1.0, None, optional=True))
    'a whole number from 1 up, or none; none at the start'
    """
    kind = {"whole": "a whole number", "number": "a number", "flag": "yes or no"}.get(
        parameter.kind, " or ".join(parameter.choices)
    )
    if parameter.low is not None:
        kind += f" from {parameter.low:g}"
        kind += " up" if parameter.high is None else f" to {parameter.high:g}"
    elif parameter.high is not None:
        kind += f" up to {parameter.high:g}"
    optional = ", or none" if parameter.optional else ""
    return f"{kind}{optional}; {format_value(parameter.default)} at the start"


def parse_value(parameter: Parameter, text: str) -> Value:
    """What `text` sets it to; raises ValueError with the reason.

    How it goes together with the others is for the engine to say.

    >>> margin = Parameter("goodput.margin", 0.03, 0.015, "number", 0.0, 0.5)
    >>> parse_value(margin, "0.02"), parse_value(margin, "2%")
    (0.02, 0.02)
    >>> parse_value(margin, "0.7")
    Traceback (most recent call last):
    ValueError: 0.7 is not a number from 0 to 0.5
    """
    words = text.strip().lower()
    if words in ("none", "") and parameter.optional:
        return "none"
    found = _value(parameter, words)
    if found is None or not _is_within(parameter, found):
        kind = bounds(parameter).partition(";")[0]
        raise ValueError(f"{text.strip() or 'nothing'} is not {kind}")
    return found


def _value(parameter: Parameter, words: str) -> Value | None:
    if parameter.kind == "flag":
        return _TRUTH.get(words)
    if parameter.kind == "word":
        return words if words in parameter.choices else None
    try:
        if parameter.kind == "whole":
            return int(words)
        if words.endswith("%"):
            return round(float(words[:-1]) / 100, 12)
        return float(words)
    except ValueError:
        return None


def _is_within(parameter: Parameter, found: Value) -> bool:
    if isinstance(found, str | bool):
        return True
    if isinstance(found, float) and not math.isfinite(found):
        return False
    low = parameter.low if parameter.low is not None else -math.inf
    high = parameter.high if parameter.high is not None else math.inf
    return low <= found <= high


_LOOK_S = 1.0


class ParametersScreen(Modal[None]):
    """Lists what the engine lets be set; enter edits, z takes the last change back."""

    CSS_PATH = "dialogs.tcss"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (13, "-medium")]
    BINDINGS = [*keys.bindings("parameters")]

    def __init__(
        self, controller: Controller, undo: Callable[[], None], options: CommandOptions = NO_OPTIONS
    ) -> None:
        """`undo` takes the last change back, or asks whether to."""
        super().__init__()
        self.controller = controller
        self._undo = undo
        self.command_options = options
        """What commands have to be given for the engine."""
        self.listed: tuple[Parameter, ...] = ()
        self.before = controller.track.events
        """Events that were there before this screen."""
        self._unsubscribe: Callable[[], None] = lambda: None

    def compose(self) -> ComposeResult:
        """The list, and what the engine said last."""
        with Vertical(id="dialog"):
            yield Label("Parameters", id="question", markup=False)
            yield LineList(markup=False)
            yield Label("", id="selected", markup=False)
            yield Label("", id="refusal", markup=False)
            yield Label("enter edits   z undoes   esc closes", id="keys", markup=False)

    def on_mount(self) -> None:
        """Fill the list, and go on looking."""
        self._unsubscribe = self.controller.subscribe(self._follow)
        self.show()
        self.look()
        self.set_interval(_LOOK_S, self.look)

    def _follow(self) -> None:
        if self in self.app.screen_stack:  # its widgets go before it is unmounted
            self.show()

    def on_unmount(self) -> None:
        """Look no more."""
        self._unsubscribe()

    def on_resize(self) -> None:
        """Lines are cut to the width."""
        self.listed = ()
        self.show()

    def look(self) -> None:
        """Ask the engine for them again."""
        self.controller.look(self.controller.selected)

    def show(self) -> None:
        """The list as the engine has it, and the last word on a change."""
        track = self.controller.track
        found = track.tuning.parameters if track.tuning is not None else ()
        options = self.query_one(OptionList)
        if found != self.listed:
            self.listed, at = found, options.highlighted
            width = max(30, options.size.width - 2)
            options.clear_options()
            names = max((len(one.name) for one in found), default=0)
            options.add_options(
                [ItemOption(format_parameter(one, width, names), one) for one in found]
            )
            options.highlighted = at if at is not None and at < len(found) else 0
            self.show_selected()
        said = self.query_one("#refusal", Label)
        if not found:
            said.update(" ".join(cell.text for row in explain_silence(track) for cell in row.left))
        elif track.events != self.before:
            said.update(track.events[-1].text)

    @on(OptionList.OptionHighlighted)
    def show_selected(self) -> None:
        """What the parameter under the cursor means: its line in the list may be cut short."""
        at = self.query_one(OptionList).highlighted
        told = "" if at is None or at >= len(self.listed) else explain(self.listed[at])
        self.query_one("#selected", Label).update(told)

    def list_copies(self) -> Sequence[Copyable]:
        """The parameter under the cursor: its value, its words, the command that sets it."""
        at = self.query_one(OptionList).highlighted
        if at is None or at >= len(self.listed):
            return ()
        one = self.listed[at]
        value = "none" if one.value is None else one.value
        change = Change(parameters={one.name: value})
        command = format_set(self.controller.engine.url, change, self.command_options)
        return (
            Copyable("command", printable(command)),
            Copyable(oneline(one.name), oneline(format_value(one.value))),
            Copyable("line", oneline(f"{one.name} {format_value(one.value)}: {explain(one)}")),
        )

    def action_undo(self) -> None:
        """Undo the last change."""
        self._undo()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Edit one."""
        parameter, is_kept = read_item(event, Parameter), self.controller.keep_target()

        def take(found: Value | None) -> None:
            if found is not None and is_kept():
                want = Change(parameters={parameter.name: found}, reason="parameters")
                self.controller.wish(want)

        self.app.push_screen(ValueDialog(parameter), take)


class ValueDialog(Modal[Value | None]):
    """Asks for one value; None leaves it as it is."""

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = "Input"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-medium")]
    BINDINGS = [*keys.bindings("dialog")]

    def __init__(self, parameter: Parameter) -> None:
        super().__init__()
        self.parameter = parameter

    def compose(self) -> ComposeResult:
        """The name, what it means, and a field."""
        one = self.parameter
        with Vertical(id="dialog"):
            yield Label(one.name, id="question", markup=False)
            with VerticalScroll(id="doc"):
                yield Label(printable(one.doc or ""), id="explanation", markup=False)
            yield Label(bounds(one), classes="name", markup=False)
            yield Input(format_value(one.value), compact=True)
            yield Label("", id="refusal", markup=False)
            yield Label("enter sets it   esc cancels", id="keys", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take it, unless it makes no sense; what is as it was is left as it is.

        A figure is shown with fewer digits than it may have.
        """
        if event.value.strip() == format_value(self.parameter.value):
            self.dismiss(None)
            return
        try:
            self.dismiss(parse_value(self.parameter, event.value))
        except ValueError as error:
            self.query_one("#refusal", Label).update(str(error))


_USUAL_S, _MOST_S = 40.0, 3600.0


class TrialDialog(LineDialog[Change | None]):
    """Asks for a k, a policy, a mode or assignments, and seconds; None leaves all as it is."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS = [*keys.bindings("dialog")]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (54, "-normal")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-medium")]

    def __init__(self, track: Track, suggested: str | None = None) -> None:
        """`suggested` is what the first field holds; without it, the k that promises most."""
        super().__init__()
        self.track = track
        self.suggested = suggested

    def compose(self) -> ComposeResult:
        """Two fields, and what will happen."""
        with Vertical(id="dialog"):
            yield Label("Try it on the live traffic", id="question", markup=False)
            yield Label(
                "The engine measures with the change and without it by turns, then keeps it if "
                "it is faster and takes it back otherwise, or when this console goes away.",
                id="explanation",
                markup=False,
            )
            yield Label("k, a policy, a mode, or name=value as in set", classes="name wide")
            yield Label("k, policy, mode, name=value", classes="name narrow")
            yield Input(self.suggested or suggest_trial(self.track), id="what", compact=True)
            yield Label("", id="expected", markup=False)
            yield Label("seconds of work to measure with the change", classes="name wide")
            yield Label("seconds of work to measure", classes="name narrow")
            yield Input(f"{_seconds(self.track):g}", id="seconds", compact=True)
            yield Label("", id="refusal", markup=False)
            yield Label("enter starts   tab next field   esc cancels", classes="name wide")
            yield Label("enter begins  tab next  esc", classes="name narrow")

    def on_mount(self) -> None:
        """The first field is the one to think about."""
        for field in self.query("#what").results(Input):  # none if it was closed before that
            self.begin_line(field, self.submit)

    def follow(self, track: Track) -> None:
        """What is known by now: another suggestion, told beside the line once that is there."""
        before, self.track = suggest_trial(self.track), track
        found = suggest_trial(track)
        if self.suggested is not None or found == before:
            return
        if self.has_line:
            for told in self.query("#expected").results(Label):
                told.update(f"by the engine's estimate most comes of k {found}")
                told.add_class("-told")
            return
        for field in self.query("#what").results(Input):  # else it begins with this one
            field.value = found

    @on(Input.Submitted)
    def submit(self) -> None:
        """Begin, unless something makes no sense."""
        words, seconds = (self.query_one(name, Input).value for name in ("#what", "#seconds"))
        try:
            self.dismiss(parse_wish(words, seconds, self.track))
        except ValueError as error:
            self.query_one("#refusal", Label).update(str(error))


def suggest_trial(track: Track) -> str:
    """The k of which most is expected, if it is another one; else the one below.

    >>> suggest_trial(Track("a", "http://a"))
    '0'
    """
    state, tuning = track.known, track.tuning
    if state is None:
        return "0"
    if tuning is not None:
        known = [each for each in tuning.outlook if each.tokens_per_second is not None]
        known = [each for each in known if state.find_refusal(each.k) is None]
        best = max(known, key=lambda each: each.tokens_per_second or 0.0, default=None)
        if best is not None and best.k != state.k:
            return str(best.k)
    near = state.k - 1 if state.k else min(1, state.k_max)
    if state.find_refusal(near) is not None:
        near = 0 if state.k else state.k_max
    return str(near)


def suggest_change(track: Track) -> Change | None:
    """The trial that the dialog suggests; None of an engine that says nothing."""
    if track.known is None:
        return None
    return Change(k=int(suggest_trial(track)), trial_s=_seconds(track))


def _seconds(track: Track) -> float:
    """The engine's own default."""
    for parameter in track.tuning.parameters if track.tuning else ():
        if parameter.name == "trial.seconds" and isinstance(parameter.value, int | float):
            return float(parameter.value)
    return _USUAL_S


def parse_wish(words: str, seconds: str, track: Track) -> Change:
    """What the two fields ask for; raises ValueError with the reason.

    >>> parse_wish("3", "60", Track("a", "http://a")).k
    3
    >>> parse_wish("goodput", "soon", Track("a", "http://a"))
    Traceback (most recent call last):
    ValueError: 'soon' is not a number of seconds from 1 to 3600
    """
    lasts = _read_number(seconds)
    if lasts is None or not 1 <= lasts <= _MOST_S:
        raise ValueError(f"{seconds.strip()!r} is not a number of seconds from 1 to {_MOST_S:.0f}")
    text = words.strip().lower()
    for policy in POLICIES:
        if text == policy:
            return Change(policy=policy, trial_s=lasts)
    for mode in MODES:
        if text == mode:
            return Change(mode=mode, trial_s=lasts)
    if "=" in text:
        return replace(_parse_assignments(text, track), trial_s=lasts)
    if not (text.isascii() and text.isdecimal() and len(text) < 4):
        raise ValueError(f"{words.strip()!r} is neither a k nor a policy nor a mode")
    return Change(k=_check_k(int(text), track), trial_s=lasts)


def _parse_assignments(text: str, track: Track) -> Change:
    """`k=3 goodput.margin=0.1`, as `specdeck set` takes it; raises ValueError."""
    try:
        change = parse_assignments(text.split())
    except UsageError as error:
        raise ValueError(error.line()) from error
    if change.k is not None:
        _check_k(change.k, track)
    return change


def _check_k(k: int, track: Track) -> int:
    """`k`; raises ValueError where the engine cannot draft so many."""
    if track.known is not None and k > track.known.k_max:
        raise ValueError(f"k_max is {track.known.k_max}: the engine's buffers are sized by it")
    if track.known is not None and (refused := track.known.find_refusal(k)) is not None:
        raise ValueError(f"{refused.reason}: {refused.remedy}")
    return k


def _read_number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
