"""The command palette: the keys that mean something on the screen, and the themes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

from textual import on
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.types import IgnoreReturnCallbackType
from textual.widgets import Input, OptionList
from textual.worker import Worker

from specdeck.console import keys
from specdeck.console.context import ConsoleContext
from specdeck.console.key_order import KeyOrder
from specdeck.console.screens.dialogs import LineDialog
from specdeck.console.state.controller import Controller


@runtime_checkable
class PaletteApp(Protocol):
    """What the palette needs of the app."""

    context: ConsoleContext
    controller: Controller
    theme_names: tuple[str, ...]
    key_order: KeyOrder

    def keys_on(self, screen: Screen[Any]) -> tuple[keys.Key, ...]:
        """The keys that mean something on a screen."""

    async def run_key(self, action: str) -> None:
        """Run an action of the key table."""

    def use_theme(self, name: str) -> None:
        """Switch to a theme."""


class Command(NamedTuple):
    """Something that can be searched for and run."""

    name: str
    help: str
    run: IgnoreReturnCallbackType
    label: str = ""
    """What the footer calls it."""
    steers: bool = False
    """Whether it changes the engine."""


class Found(NamedTuple):
    """How well a command is what was typed, and where its name says so."""

    score: float
    places: tuple[tuple[int, int], ...] = ()


NOT_FOUND = Found(0.0)
_WORD = re.compile(r"\w+")
_LABEL, _SENTENCE, _GROUP = 3.0, 2.0, 1.0
"""What a word counts there."""
_WHOLE = 0.5
"""More for a word that was typed to its end."""
_LATER = 0.1
"""Less for what changes the engine."""


def find_words(typed: str, command: Command) -> Found:
    """Whether each word that was typed begins a word of the command; other letters find nothing.

    A word of the label counts most, one of the group least. Of two that are found as well, one
    that changes the engine comes second.

    >>> more = Command("Speculation: Draft one more token per round", "", list, "k", steers=True)
    >>> help = Command("Console: Show every key", "", list, "help")
    >>> [find_words("help", one).score > 0 for one in (more, help)]
    [False, True]
    >>> find_words("dr tok", more).places
    ((13, 15), (28, 31))
    """
    wanted = [one.casefold() for one in _WORD.findall(typed)]
    group = command.name.find(":")
    in_label = [(_LABEL, one) for one in _WORD.finditer(command.label)]
    in_name = [
        (_GROUP if one.start() < group else _SENTENCE, one) for one in _WORD.finditer(command.name)
    ]
    score = 0.0
    places: list[tuple[int, int]] = []
    for word in wanted:
        known = [pair for pair in in_label + in_name if pair[1][0].casefold().startswith(word)]
        if not known:
            return NOT_FOUND
        score += max(weight + _WHOLE * (one[0].casefold() == word) for weight, one in known)
        starts = [one.start() for weight, one in known if weight != _LABEL]
        places += [(start, start + len(word)) for start in starts]
    if not wanted:
        return NOT_FOUND
    return Found(score / len(wanted) - _LATER * command.steers, tuple(sorted(places)))


class Palette(Provider):
    """Offers what has a key on the screen, and every theme by name; each of them once."""

    def commands(self) -> tuple[Command, ...]:
        """All of them, in the order of the key table."""
        return tuple({command.name: command for command in self._commands()}.values())

    def _commands(self) -> Iterator[Command]:
        app = self.app
        assert isinstance(app, PaletteApp)  # nothing else names this provider
        known = app.controller.track.known
        for key in app.keys_on(self.screen):
            if not key.searched:
                continue
            name = f"{key.group}: {key.tooltip.split(';')[0].rstrip('.')}"
            if "{key}" not in key.action:
                label = keys.format_keys(key, app.context.keymap)
                run = partial(app.run_key, key.action)
                yield Command(name, f"key {label}", run, key.label, key.steers)
                continue
            for digit in key.keys:
                k = int(digit)
                if known is None or (k <= known.k_max and known.find_refusal(k) is None):
                    action = key.action.format(key=digit)
                    label = app.context.keymap.get(f"{key.id}.{digit}", digit)
                    run = partial(app.run_key, action)
                    yield Command(f"{name} to {digit}", f"key {label}", run, key.label, key.steers)
        for theme in app.theme_names:
            yield Command(f"Theme: {theme}", "change the colours", partial(app.use_theme, theme))

    async def discover(self) -> Hits:
        """What the palette shows before anything is typed."""
        for command in self.commands():
            # As content: in a string, brackets in a theme's name would be markup.
            label = Content(command.name)
            yield DiscoveryHit(label, command.run, text=command.name, help=command.help)

    async def search(self, query: str) -> Hits:
        """Commands that have the words that were typed.

        Textual's own search also finds letters that lie anywhere: `help` in a sweep's sentence.
        """
        style = self.matcher(query).match_style
        for command in self.commands():
            found = find_words(query, command)
            if found.score > 0:
                label = Content(command.name)
                for start, end in found.places:
                    label = label.stylize(style, start, end)
                yield Hit(found.score, label, command.run, help=command.help)


class PaletteScreen(CommandPalette, LineDialog[None]):
    """Textual's palette, in which keys do the same however fast they come.

    What acts on the list waits until the list has what is found for the text as it was typed by
    then, and is dropped where more was typed meanwhile. Enter runs nothing where nothing was
    typed or chosen.

    Textual takes styles and component classes from the first base alone.
    """

    _searched: str | None = None
    """The text that the list was last filled for, or is being filled."""
    _search: Worker[Any] | None = None
    _waiting: tuple[tuple[str, Callable[[], object]], ...] = ()
    """What is to be done with the list, and the text that it is of."""

    def on_mount(self) -> None:
        """Take what was typed by then."""
        self.begin_line(self.query_one(Input), self.run_highlighted)

    def _gather_commands(self, search_value: str) -> Worker[Any]:
        gather = inspect.unwrap(super()._gather_commands)

        async def gather_while_open() -> None:
            with suppress(NoMatches):  # the palette, or the console, closed before it began
                await gather(self, search_value)

        group, self._searched = self._GATHER_COMMANDS_GROUP, search_value
        self._search = self.run_worker(gather_while_open, group=group, exclusive=True)
        return self._search

    @on(Worker.StateChanged)
    def act_on_list(self) -> None:
        """Do what has waited for the list, if that is of the text as it is."""
        if self._searched != self._text or self._search is None or not self._search.is_finished:
            return
        waiting, self._waiting = self._waiting, ()
        for text, act in waiting:
            if text == self._searched:
                act()
            else:
                self._key_order.resume()

    @property
    def _text(self) -> str:
        return self.query_one(Input).value.strip()

    def _act_once_found(self, act: Callable[[], object], text: str | None = None) -> None:
        self._waiting += ((self._text if text is None else text, act),)
        self.act_on_list()

    @on(Input.Submitted)
    def run_highlighted(self, event: Input.Submitted | None = None) -> None:
        """Run the command under the cursor, the first one at first."""
        if event is not None:
            event.stop()
            event.prevent_default()
        # What is typed behind it is for what the command opens.
        self._key_order.pause()
        self._act_once_found(self._run, None if event is None else event.value.strip())

    def _run(self) -> None:
        found = self.query_one(OptionList)
        if self.is_active and found.option_count and (self._searched or found.highlighted):
            self._select_or_command()
        else:
            self._key_order.resume()

    @property
    def _key_order(self) -> KeyOrder:
        app = self.app
        assert isinstance(app, PaletteApp)
        return app.key_order

    def on_unmount(self) -> None:
        """The command that was chosen is on its way to the app by then."""
        self.app.call_later(self._key_order.resume)

    @on(OptionList.OptionSelected)
    def ignore_after_close(self, event: OptionList.OptionSelected) -> None:
        """Drop a choice that was on its way when the palette closed."""
        if not self.is_active:
            event.stop()
            event.prevent_default()

    def _action_cursor_down(self) -> None:
        self._act_once_found(super()._action_cursor_down)

    def _action_command_list(self, action: str) -> None:
        self._act_once_found(partial(self._act_on_drawn_list, action))

    def _act_on_drawn_list(self, action: str) -> None:
        # Textual counts the lines of its list as it draws them, and a page is a KeyError before.
        with suppress(KeyError, IndexError):
            super()._action_command_list(action)

    async def _watch__show_busy(self) -> None:
        # A search that ends after the palette has closed finds nothing to show it on.
        with suppress(NoMatches):
            await super()._watch__show_busy()
