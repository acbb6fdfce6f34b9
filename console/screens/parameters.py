"""The parameters of policies, breaker and trials: a list, and an editor of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from specdeck.console.view import parameters as view
from specdeck.console.view.track import Track, Want
from specdeck.console.view.tuning import untold, value
from specdeck.engine.control.protocol import Value
from specdeck.engine.control.tuning import Parameter

if TYPE_CHECKING:
    from specdeck.console.screens.piloting import PilotingScreen

_LOOK_S = 1.0


class ParametersScreen(ModalScreen[None]):
    """Lists what the engine lets be set; enter edits, z takes the last change back."""

    CSS_PATH = "trial.tcss"
    BINDINGS = [("escape,p,q", "dismiss", "Close"), ("z", "undo", "Undo")]

    def __init__(self, live: PilotingScreen) -> None:
        super().__init__()
        self.live = live
        self.shown: tuple[Parameter, ...] = ()
        self.seen = len(self._track.events)
        """Events that were there before this screen."""

    def compose(self) -> ComposeResult:
        """The list, and what the engine said last."""
        with Vertical(id="dialog"):
            yield Label("Parameters", id="question", markup=False)
            yield OptionList(markup=False)
            yield Label("", id="refusal", markup=False)
            yield Label("enter edits   z undoes   esc closes", id="keys", markup=False)

    def on_mount(self) -> None:
        """Fill the list, and go on looking."""
        self.show()
        self.set_interval(_LOOK_S, self.look)

    def on_resize(self) -> None:
        """Lines are cut to the width."""
        self.shown = ()
        self.show()

    def look(self) -> None:
        """Ask anew, and show what the last answer was."""
        self.live.look(self.live.selected)
        self.show()

    @property
    def _track(self) -> Track:
        return self.live.tracks[self.live.selected]

    def show(self) -> None:
        """The list as the engine has it, and the last word on a change."""
        tuning = self._track.tuning
        found = tuning.parameters if tuning is not None else ()
        listed = self.query_one(OptionList)
        if found != self.shown:
            self.shown, at = found, listed.highlighted
            width = max(30, listed.size.width - 2)
            listed.clear_options()
            names = max((len(one.name) for one in found), default=0)
            listed.add_options([Option(view.label(one, width, names)) for one in found])
            listed.highlighted = at if at is not None and at < len(found) else 0
        said = self.query_one("#refusal", Label)
        if not found:
            said.update(" ".join(cell.text for row in untold(self._track) for cell in row.left))
        elif len(self._track.events) > self.seen:
            said.update(self._track.events[-1].text)

    def action_undo(self) -> None:
        """Take the last change back."""
        self.live.action_undo()
        self.show()

    @work(exclusive=True)
    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Edit one."""
        parameter = self.shown[event.option_index]
        found = await self.app.push_screen_wait(ValueDialog(parameter))
        if found is not None:
            self.live.wish(Want(parameters=((parameter.name, found),), reason="parameters"))
        self.show()


class ValueDialog(ModalScreen[Value | None]):
    """Asks for one value; None leaves it as it is."""

    CSS_PATH = "trial.tcss"
    BINDINGS = [("escape", "dismiss", "Leave it")]

    def __init__(self, parameter: Parameter) -> None:
        super().__init__()
        self.parameter = parameter

    def compose(self) -> ComposeResult:
        """The name, what it means, and a field."""
        one = self.parameter
        with Vertical(id="dialog"):
            yield Label(one.name, id="question", markup=False)
            yield Label(one.doc or "", id="explanation", markup=False)
            yield Label(view.bounds(one), classes="name", markup=False)
            yield Input(value(one.value), compact=True)
            yield Label("", id="refusal", markup=False)
            yield Label("enter sets it   esc leaves it", id="keys", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take it, unless it makes no sense."""
        try:
            self.dismiss(view.parsed(self.parameter, event.value))
        except ValueError as error:
            self.query_one("#refusal", Label).update(str(error))
