"""What screens that show an engine have in common: they follow the controller, and may steer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from textual.events import Key, Paste
from textual.screen import Screen

from specdeck.console.context import ConsoleContext
from specdeck.console.screens.dialogs import Choice, ClosedOnce, Dialog
from specdeck.console.screens.timeline import view as time_view
from specdeck.console.state.controller import Controller
from specdeck.console.state.engine_state import KnownTrial, Track
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.protocol.messages import Change
from specdeck.engine.text import format_changes, oneline

if TYPE_CHECKING:
    from specdeck.console.state.copies import Copyable
    from specdeck.console.state.timeline import Timeline
    from specdeck.console.widgets.cells import Row

SLOW_S = 5.0
"""Between two paintings of figures on a poor line."""

TYPING_S = 0.5
"""Between two keys that are typed without looking up, at most."""

TYPED_S = 2.0
"""For all of them, at most: whoever goes on pressing means this screen."""


class EngineScreen(Screen[None]):
    """Shows the engine that is selected, and is painted once for each of its readings."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-normal"), (110, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-medium"), (34, "-tall")]

    def __init__(self, controller: Controller, context: ConsoleContext) -> None:
        super().__init__()
        self.controller = controller
        self.context = context
        self._unsubscribe: Callable[[], None] = lambda: None
        self._typed_until = float("-inf")
        """Keys are meant for a dialog that did not open, by the clock of Textual's events."""
        self._typed_at_most = float("-inf")
        self._typed_answers: Collection[str] = ()
        """Those that the dialog would have had; empty where it would have taken any."""
        self._is_drop_told = False
        self._drawn_news: object = None
        self._drawn_at = float("-inf")

    def on_mount(self) -> None:
        """Follow the controller; why a key did nothing on another screen is of no use here."""
        self.timeline.said = None
        self._unsubscribe = self.controller.subscribe(self._follow)

    def on_unmount(self) -> None:
        """Follow it no more."""
        self._unsubscribe()

    def on_screen_resume(self) -> None:
        """Show what has happened while another screen lay over this one."""
        self.show()

    def on_resize(self) -> None:
        """The footer names as many keys as there is room for."""
        self.show()

    def _follow(self) -> None:
        if self.is_visible and (not self.context.slow or self._is_worth_it()):
            self.show()

    def _is_worth_it(self) -> bool:
        """Whether a poor line is to carry it: something happened, or the figures are old."""
        track, now = self.track, self.controller.steady()
        timeline = self.timeline
        news = (track.url, track.up, track.want, track.proofs_awaited, track.events[-1:],
                timeline.view, timeline.said)  # fmt: skip
        if news == self._drawn_news and now - self._drawn_at < SLOW_S:
            return False
        self._drawn_news, self._drawn_at = news, now
        return True

    @property
    def is_visible(self) -> bool:
        """Whether nothing but dialogs lies over it; Textual counts any screen below as current."""
        stack = self.app.screen_stack
        return self._is_open and all(one.is_modal for one in stack[stack.index(self) + 1 :])

    @property
    def has_widgets(self) -> bool:
        """Whether there is anything to draw on: a worker's last word may come after that."""
        return self._is_open and self.is_mounted

    @property
    def _is_open(self) -> bool:
        # When the console closes, the widgets go before the screen does.
        return self.app.is_running and self in self.app.screen_stack

    def show(self) -> None:
        """Bring what is known onto the screen."""

    def list_copies(self) -> Sequence[Copyable]:
        """What can be copied: the latest event, the engine's figures and names."""
        from specdeck.console.state.copies import Copyable, list_figures

        latest = [Copyable("latest event", oneline(one.text)) for one in self.track.events[-1:]]
        return [*latest, *list_figures(self.track)]

    @property
    def timeline(self) -> Timeline:
        """The moment that is shown."""
        return self.context.timeline

    @property
    def track(self) -> Track:
        """What is known of the engine, at the moment that is shown."""
        return self.timeline.track

    @property
    def is_past(self) -> bool:
        """Whether what was recorded is shown, and not the engine as it is."""
        return self.timeline.when.kind == "past"

    def mark_title(self, title: Row) -> Row:
        """A title with the moment that is shown, unless that is now."""
        return time_view.mark_title(title, self.timeline.when, self.context.local)

    def time_rows(self) -> tuple[Row, ...]:
        """What the keys of time do, or why the last one did nothing; no row now."""
        timeline = self.timeline
        return time_view.hint(timeline.view, timeline.when, timeline.said, self.key_label)

    def refuse_in_past(self) -> bool:
        """Whether nothing can be done here, as another moment than now is shown; says so."""
        return self.timeline.refuse(self.context.local, self.key_label("time.now"))

    def drop_what_is_typed(self, answers: Collection[str] = ()) -> None:
        """To be called where the key of a dialog opens none, with the reason told.

        Whoever types on without looking up means the dialog: here, a digit would be a k. Of a
        dialog that takes nothing but `answers`, those alone are meant.
        """
        now = time.monotonic()
        self._typed_until, self._typed_at_most = now + TYPING_S, now + TYPED_S
        self._typed_answers = answers
        self._is_drop_told = False

    def type_ahead(self, typed: Key | Paste) -> bool:
        """Whether it was typed for a dialog that did not open; enter and esc were its last."""
        key = typed.key if isinstance(typed, Key) else ""
        if typed.time > self._typed_until or key.startswith("ctrl+"):
            return False
        if self._typed_answers and key not in self._typed_answers:
            self._typed_until = float("-inf")
            return False
        if not self._is_drop_told:
            self._is_drop_told = True
            line = "keys are dropped for a moment: they may be meant for what did not open"
            self.notify(line, timeout=TYPED_S, markup=False)
        is_last = key in ("enter", "escape")
        until = min(typed.time + TYPING_S, self._typed_at_most)
        self._typed_until = float("-inf") if is_last else until
        return True

    def action_time_step(self, by: int) -> None:
        """A step back or forward."""
        self.timeline.step(by)

    def action_time_event(self, by: int) -> None:
        """To the next event, or to the one before."""
        self.timeline.step_event(by)

    def action_time_span(self, by: int) -> None:
        """Charts of a longer time, or of a shorter one."""
        self.timeline.widen(by)

    def action_freeze(self) -> None:
        """Hold the view still, or let time go on."""
        self.timeline.toggle_freeze()

    def action_time_now(self) -> None:
        """Back to now."""
        self.timeline.end()

    def action_time_go(self) -> None:
        """Ask for a moment, and go there.

        The dialog is there when this returns: what is typed next is meant for it.
        """
        from specdeck.console.screens.timeline.dialogs import MomentDialog
        from specdeck.console.state.moment import parse_moment

        timeline, local = self.timeline, self.context.local
        recorded = timeline.describe_bounds(local)
        if recorded is None:
            self.drop_what_is_typed()
            return

        def read(text: str) -> float | None:
            return parse_moment(text, timeline.end_time, local)

        def go(typed: str | None) -> None:
            if typed is not None:
                timeline.go(read(typed))

        self.app.push_screen(MomentDialog(recorded, read), go)

    def key_label(self, name: str) -> str:
        """The key of an action, for a hint."""
        return self.context.key_label(name)

    def say(self, text: str, *, bad: bool = False) -> None:
        """What a key brought, on a line of this screen."""

    def ask_trial(
        self, suggested: str | None = None, then: Callable[[], None] = lambda: None
    ) -> None:
        """Asks what to try, with `suggested` filled in, and has the engine judge it.

        `then` is called where it does. The dialog is there when this returns, as keys that are
        typed next are meant for it, and not for the engine; what the engine says of its tuning
        comes later.
        """
        from specdeck.console.screens.tuning.dialogs import TrialDialog

        controller, index = self.controller, self.controller.selected
        obstacle = controller.find_obstacle(Change(k=0, trial_s=1.0))
        if obstacle is not None:
            controller.refuse(obstacle.line())
            self.say(obstacle.line(), bad=True)
            self.drop_what_is_typed()
            return
        dialog, is_kept = TrialDialog(self.track, suggested), controller.keep_target()

        async def follow() -> None:
            await controller.refresh_tuning(index)
            if dialog.is_active:
                dialog.follow(controller.tracks[index])

        def begin(want: Change | None) -> None:
            if want is not None and is_kept() and controller.wish(want):
                then()

        self.app.push_screen(dialog, begin)
        self.run_worker(follow(), group="ask", exclusive=True)


class DetailScreen(ClosedOnce[None], EngineScreen):
    """Looks at the engine in one particular way; escape goes back to the live screen."""

    def action_back(self) -> None:
        """The screen before."""
        self.leave()

    def leave(self) -> None:
        """Make room for the screen before, or for another one in this one's place."""
        self.dismiss()

    @contextmanager
    def say_errors(self) -> Iterator[None]:
        """What goes wrong meanwhile is said, and the rest left undone."""
        try:
            yield
        except SpecdeckError as error:
            self.say(error.line(), bad=True)


Shown = TypeVar("Shown", bound=EngineScreen)
P = ParamSpec("P")


def now_only(action: Callable[Concatenate[Shown, P], Any]) -> Callable[Concatenate[Shown, P], Any]:
    """An action on an engine as it is now: refused while another moment is on the screen."""

    @wraps(action)
    def act(screen: Shown, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return None if screen.refuse_in_past() else action(screen, *args, **kwargs)

    return act


class SteeringScreen(EngineScreen):
    """Has the keys that steer."""

    def list_copies(self) -> Sequence[Copyable]:
        """As of any screen, and each action as a command."""
        from specdeck.console.screens.tuning.dialogs import suggest_change
        from specdeck.console.state.copies import list_commands

        trial = suggest_change(self.track)
        return [
            *super().list_copies(),
            *list_commands(self.track, trial=trial, options=self.context.options(self.track.url)),
        ]

    @now_only
    def action_change_k(self, by: int) -> None:
        """k up or down."""
        self.controller.change_k(by)

    @now_only
    def action_set_k(self, k: int) -> None:
        """k at once."""
        self.controller.wish(Change(k=k))

    @now_only
    def action_toggle_mode(self) -> None:
        """From speculation to target-only, or back."""
        self.controller.toggle_mode()

    @now_only
    def action_toggle_policy(self) -> None:
        """Have the goodput policy choose k, or take k back."""
        self.controller.toggle_policy()

    @now_only
    def action_breaker(self) -> None:
        """Open the breaker by hand, or reset it."""
        self.controller.toggle_breaker()

    @now_only
    def action_undo(self) -> None:
        """Take a trial back, or else this console's last change."""
        self.controller.undo(self._ask_whose_trial)

    def _ask_whose_trial(self, trial: KnownTrial) -> None:
        """Ask whether a trial is to be ended that this console has not begun."""
        controller, is_kept = self.controller, self.controller.keep_target()

        def end(choice: str | None) -> None:
            if choice and is_kept():
                controller.end_trial(trial, self._ask_whose_trial)

        context = self.context
        opened_by = {*context.key_names("change.undo"), *context.key_names("parameters.undo")}
        self.app.push_screen(_trial_dialog(trial, controller.track, opened_by), end)

    @now_only
    def action_next_load(self) -> None:
        """The next load profile."""
        self.controller.next_load()

    def action_step(self, by: int) -> None:
        """Show another engine."""
        self.action_select(self.controller.selected + by)

    def action_select(self, index: int) -> None:
        """Show the engine at `index`."""
        self.controller.select(index)

    @now_only
    async def action_sweep(self) -> None:
        """Sweep k on the live traffic, with the curve in view, or stop the sweep under way."""
        if self.controller.toggle_sweep():
            await self.run_action("app.open_screen('tuning')")

    @now_only
    def action_trial(self) -> None:
        """Ask what to try, and have the engine judge it."""
        self.ask_trial()

    @now_only
    def action_parameters(self) -> None:
        """List what can be set of the policies, and edit it."""
        from specdeck.console.screens.tuning.dialogs import ParametersScreen

        options = self.context.options(self.track.url)
        self.app.push_screen(ParametersScreen(self.controller, self.action_undo, options))

    def action_events(self) -> None:
        """Everything that happened to the engine."""
        from specdeck.console.screens.events.screen import EventsScreen

        self.app.push_screen(EventsScreen(self.controller, self.context))

    @now_only
    def action_arm(self) -> None:
        """Allow changes, after a question where specdeck did not start the engine."""
        controller = self.controller
        question = _arm_dialog(
            controller.engine.name,
            self.key_label("change.undo"),
            self.context.key_names("control.arm"),
        )
        if self.track.recorded or controller.engine.armed or self.context.owned:
            self._arm_unasked()
            self.drop_what_is_typed({"enter", *(one.key for one in question.choices)})
            return
        is_kept = controller.keep_target()

        def arm(choice: str | None) -> None:
            if choice and is_kept():
                controller.arm()

        self.app.push_screen(question, arm)

    def _arm_unasked(self) -> None:
        controller = self.controller
        if self.track.recorded:
            controller.wish(Change())
        elif controller.engine.armed:
            controller.refuse("control is armed already", "muted", kind="control")
        else:
            controller.arm()


def _trial_dialog(trial: KnownTrial, track: Track, opened_by: Collection[str]) -> Dialog:
    """Asks whether a trial is to be ended, and says whose it is, as far as that is known."""
    known = None if track.tuning is None else track.tuning.trial
    question = "End the trial that is under way?"
    words = ["It is not known who began it; this console has not."]
    if trial.owner is not None:
        owner = oneline(trial.owner)
        question, words = f"End {owner}'s trial?", [f"{owner} began it, and not at this console."]
        if known is not None:
            words += [f"It tries {oneline(format_changes(known.before, known.after))}."]
    return Dialog(
        question,
        " ".join((*words, "Ended, what it tries is taken back at once.")),
        (Choice("end", "e", "End the trial"), Choice("", "escape", "Let it go on")),
        opened_by,
    )


def _arm_dialog(name: str, undo: str, opened_by: Collection[str]) -> Dialog:
    return Dialog(
        f"Arm control of {name}?",
        "This console did not start the engine, and others may rely on it. "
        f"Changes act at once on live traffic, are recorded, and can be undone with {undo}.",
        (Choice("arm", "a", "Arm control"), Choice("", "escape", "Stay read-only")),
        opened_by,
    )
