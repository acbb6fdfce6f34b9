"""The parameters of policies, breaker and trials: a list, and an editor of one."""

from __future__ import annotations

from collections.abc import Callable

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from specdeck.console.state.controller import Controller
from specdeck.console.state.pending import Want
from specdeck.console.view import parameters as view
from specdeck.console.view.tuning import untold, value
from specdeck.engine.control.protocol import Value
from specdeck.engine.control.tuning import Parameter

_LOOK_S = 1.0


class ParametersScreen(ModalScreen[None]):
    """Lists what the engine lets be set; enter edits, z takes the last change back."""

    CSS_PATH = "trial.tcss"
    BINDINGS = [("escape,p,q", "dismiss", "Close"), ("z", "undo", "Undo")]

    def __init__(self, controller: Controller) -> None:
        super().__init__()
        self.controller = controller
        self.listed: tuple[Parameter, ...] = ()
        self.before = controller.track.events
        """Events that were there before this screen."""
        self._unsubscribe: Callable[[], None] = lambda: None

    def compose(self) -> ComposeResult:
        """The list, and what the engine said last."""
        with Vertical(id="dialog"):
            yield Label("Parameters", id="question", markup=False)
            yield OptionList(markup=False)
            yield Label("", id="refusal", markup=False)
            yield Label("enter edits   z undoes   esc closes", id="keys", markup=False)

    def on_mount(self) -> None:
        """Fill the list, and go on looking."""
        self._unsubscribe = self.controller.subscribe(self.show)
        self.show()
        self.set_interval(_LOOK_S, self.look)

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
            options.add_options([Option(view.label(one, width, names)) for one in found])
            options.highlighted = at if at is not None and at < len(found) else 0
        said = self.query_one("#refusal", Label)
        if not found:
            said.update(" ".join(cell.text for row in untold(track) for cell in row.left))
        elif track.events != self.before:
            said.update(track.events[-1].text)

    def action_undo(self) -> None:
        """Take the last change back."""
        self.controller.undo()

    @work(exclusive=True)
    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Edit one."""
        parameter = self.listed[event.option_index]
        found = await self.app.push_screen_wait(ValueDialog(parameter))
        if found is not None:
            want = Want(parameters=((parameter.name, found),), reason="parameters")
            self.controller.wish(want)


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
