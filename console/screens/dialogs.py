"""Small screens that lie over any other: a question with a few answers, and every key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Vertical, VerticalScroll
from textual.events import Key, Paste
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from specdeck.console import keys
from specdeck.console.widgets.cells import Cell, Row, heading
from specdeck.console.widgets.options import LineList
from specdeck.console.widgets.text import Flow, Line
from specdeck.engine.text import printable


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer."""

    value: str
    """What the dialog returns; empty for leaving things as they are."""
    key: str
    label: str


Answer = TypeVar("Answer")


class ClosedOnce(Screen[Answer]):
    """A screen over another one, which goes when it is answered or left.

    Keys come faster than screens go: closed twice, it would take the screen below along.
    """

    def on_screen_suspend(self) -> None:
        """Forget what was drawn, if this screen goes.

        Textual holds on to the caches of its last thousand widgets, gone or not: they are keys
        of a cache of colours. Widgets that are to be drawn anew have emptied theirs.
        """
        if self not in self.app.screen_stack:
            for widget in self.walk_children(Widget, with_self=True):
                widget.refresh()

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """As Textual does, unless another screen is on top already."""
        return super().dismiss(result) if self.is_active else AwaitComplete()


class Modal(ClosedOnce[Answer], ModalScreen[Answer]):
    """Lies over any other screen until it is answered."""

    def on_paste(self, event: Paste) -> None:
        """Have a line take it that nothing else takes: lost, enter would take something else.

        What is focused by then is a list, or nothing yet.
        """
        for field in [one for one in self.query(Input) if one.focusable and one.display][:1]:
            field.focus()
            self.app.call_later(field.post_message, Paste(event.text))  # behind the focus


class LineDialog(Modal[Answer]):
    """Has a line to type on. Whoever knows the key that opens it types on at once.

    The first keys come before there is a line: `type_ahead` is given those. So that they are not
    the screen's below, the dialog is there when the action that opens it returns.
    """

    _ahead = ""
    """What was typed before there was a line."""
    has_line = False
    """Whether the line is there. What it holds is the operator's to change from then on.

    They may see it already, with the enter key on its way for what they see.
    """

    def begin_line(self, field: Input, submit: Callable[[], None]) -> None:
        """Has `field` typed on, with what was typed by then in place of what it holds.

        `submit` is what the enter key does.
        """
        self._field, self._submit = field, submit
        self.has_line = True
        typed, *entered = self._ahead.split("\n", 1)
        if typed:
            field.value = typed
            field.cursor_position = len(typed)
        field.focus()
        if entered:
            submit()

    def type_ahead(self, typed: Key | Paste) -> bool:
        """Whether it takes a key or a paste that was sent before the line had the focus."""
        text = _as_text(typed)
        if text is None:
            return False
        if not self.is_mounted:
            self._ahead += text
        elif text == "\n":
            self._submit()
        else:
            self._field.replace(text, *sorted(self._field.selection))
        return True


def _as_text(typed: Key | Paste) -> str | None:
    """What it puts on a line, of a paste its first line; enter is the line's end."""
    if isinstance(typed, Paste):
        return next(iter(typed.text.splitlines()), "")
    return "\n" if typed.key == "enter" else typed.character if typed.is_printable else None


class Dialog(Modal[str]):
    """Returns the value of the answer; escape is the last one.

    What cannot be undone may be asked here: the key that opened it answers nothing, however late
    it comes again, and enter alone leaves everything as it is.
    """

    CSS_PATH = "dialog.tcss"
    AUTO_FOCUS = "LineList"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-medium")]

    def __init__(
        self,
        question: str,
        explanation: str,
        choices: tuple[Choice, ...],
        opened_by: Collection[str],
    ) -> None:
        """`opened_by` are the keys that open it: an answer has another key in place of such a one,
        the capital of it."""
        super().__init__()
        self.question = question
        self.explanation = explanation
        self.choices = tuple(
            replace(one, key=one.key.swapcase()) if one.key in opened_by else one for one in choices
        )
        self._ahead: Choice | None = None
        """What was chosen before the answers were there to be seen."""

    def on_mount(self) -> None:
        """Take the answer of whoever knew the question."""
        for listing in self.query(LineList):
            listing.highlighted = len(self.choices) - 1
        if self._ahead is not None:
            self.dismiss(self._ahead.value)

    def type_ahead(self, typed: Key | Paste) -> bool:
        """Whether it takes a key that was pressed before it had the focus: an answer's."""
        pressed = typed.key if isinstance(typed, Key) else None
        chosen = next((choice for choice in self.choices if choice.key == pressed), None)
        if chosen is not None and self.is_mounted:
            self.dismiss(chosen.value)
        self._ahead = self._ahead or chosen
        return chosen is not None

    def compose(self) -> ComposeResult:
        """The question, what it means, the answers."""
        with Vertical(id="dialog"):
            with VerticalScroll(id="said"):
                yield Label(printable(self.question), id="question", markup=False)
                yield Label(self.explanation, id="explanation", markup=False)
            yield LineList(*(Option(self._prompt(choice)) for choice in self.choices), markup=False)

    def _prompt(self, choice: Choice) -> str:
        label = "esc" if choice.key == "escape" else choice.key
        return f"{label:<4} {choice.label}"

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """An answer was chosen with enter or the mouse."""
        self.dismiss(self.choices[event.option_index].value)

    def on_key(self, event: Key) -> None:
        """An answer was chosen by its key."""
        for choice in self.choices:
            if event.key == choice.key:
                event.stop()
                self.dismiss(choice.value)


_LABEL = 12
"""Columns of the keys in help."""


class HelpScreen(Modal[None]):
    """The keys that mean something in this session, by group."""

    CSS_PATH = "help.tcss"
    BINDINGS = [*keys.bindings("help")]

    def __init__(self, table: tuple[keys.Key, ...], keymap: Mapping[str, str]) -> None:
        super().__init__()
        self.table = table
        self.keymap = keymap

    def compose(self) -> ComposeResult:
        """A box with the keys."""
        with VerticalScroll(id="help"):
            yield Flow(id="keys")
            yield Line(id="close")

    def on_mount(self) -> None:
        """Fill the box."""
        rows: list[Row] = []
        group = ""
        for key in self.table:
            if key.group != group:
                rows += [Row(), heading(key.group)] if rows else [heading(key.group)]
                group = key.group
            label = keys.format_keys(key, self.keymap)
            if len(label) > _LABEL:  # keys of many names stand above what they do
                rows.append(Row((Cell(label, "key"),)))
                label = ""
            rows.append(Row((Cell(f"{label:<{_LABEL}} ", "key"), Cell(key.tooltip))))
        self.query_one("#keys", Flow).rows = tuple(rows)
        self.query_one("#close", Line).row = Row((), (Cell("esc closes", "muted"),))
