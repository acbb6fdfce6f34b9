"""The command palette: the keys that mean something on the screen, and the themes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

from textual import on
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.css.query import NoMatches
from textual.message import Message
from textual.screen import Screen
from textual.types import IgnoreReturnCallbackType
from textual.widgets import Input, OptionList
from textual.worker import Worker

from specdeck.console import keys
from specdeck.console.context import ConsoleContext
from specdeck.console.screens.dialogs import ClosedOnce
from specdeck.console.state.controller import Controller


@runtime_checkable
class PaletteApp(Protocol):
    """What the palette needs of the app."""

    context: ConsoleContext
    controller: Controller
    theme_names: tuple[str, ...]

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
                yield Command(name, f"key {label}", partial(app.run_key, key.action))
                continue
            for digit in key.keys:
                k = int(digit)
                if known is None or (k <= known.k_max and known.find_refusal(k) is None):
                    action = key.action.format(key=digit)
                    label = app.context.keymap.get(f"{key.id}.{digit}", digit)
                    yield Command(
                        f"{name} to {digit}", f"key {label}", partial(app.run_key, action)
                    )
        for theme in app.theme_names:
            yield Command(f"Theme: {theme}", "change the colours", partial(app.use_theme, theme))

    async def discover(self) -> Hits:
        """What the palette shows before anything is typed."""
        for command in self.commands():
            # As content: in a string, brackets in a theme's name would be markup.
            label = Content(command.name)
            yield DiscoveryHit(label, command.run, text=command.name, help=command.help)

    async def search(self, query: str) -> Hits:
        """Commands that match."""
        matcher = self.matcher(query)
        for command in self.commands():
            score = matcher.match(command.name)
            if score > 0:
                # Highlighting reads markup, and a theme's name may look like it.
                plain = "[" in command.name
                label = Content(command.name) if plain else matcher.highlight(command.name)
                yield Hit(score, label, command.run, help=command.help)


class PaletteScreen(CommandPalette, ClosedOnce[None]):
    """Textual's palette; it runs one command that was found, however fast its keys come.

    Textual takes styles and component classes from the first base alone.
    """

    _searched = ""
    """The text that the list was last filled for, or is being filled."""
    _search: Worker[Any] | None = None

    def _gather_commands(self, search_value: str) -> Worker[Any]:
        self._searched, self._search = search_value, super()._gather_commands(search_value)
        return self._search

    @on(Input.Submitted)
    def drop_what_is_not_found_yet(self, event: Input.Submitted) -> None:
        """Drop Enter before the list has the hits of what is typed, and where nothing is.

        The first of all commands would run: keys that come at once overtake the search.
        """
        text = event.value.strip()
        is_found = self._searched == text and (self._search is None or self._search.is_finished)
        is_moved = bool(self.query_one(OptionList).highlighted)
        if not is_found or not (text or is_moved):
            event.stop()
            event.prevent_default()

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def ignore_after_close(self, event: Message) -> None:
        """Drop a choice that was on its way when the palette closed."""
        if not self.is_current:
            event.stop()
            event.prevent_default()

    def _action_command_list(self, action: str) -> None:
        # Textual counts the lines of its list as it draws them, and a page is a KeyError before.
        with suppress(KeyError, IndexError):
            super()._action_command_list(action)

    async def _watch__show_busy(self) -> None:
        # A search that ends after the palette has closed finds nothing to show it on.
        with suppress(NoMatches):
            await super()._watch__show_busy()
