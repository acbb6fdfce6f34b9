"""The command palette's commands: the key table, engines and themes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.types import IgnoreReturnCallbackType

from specdeck.console import keys

if TYPE_CHECKING:
    from specdeck.console.app import Console


class Command(NamedTuple):
    """Something that can be searched for and run."""

    name: str
    help: str
    run: IgnoreReturnCallbackType


class Commands(Provider):
    """Offers what has a key on the screen, and every theme by name."""

    @property
    def console(self) -> Console:
        """The app, as what it is."""
        from specdeck.console.app import Console

        assert isinstance(self.app, Console)  # nothing else names this provider
        return self.app

    def commands(self) -> Iterator[Command]:
        """All of them, in the order of the key table."""
        app = self.console
        for key in app.keys_on(self.screen):
            if not key.searched:
                continue
            for action in _actions(key):
                digit = f" to {action[1]}" if action[1] else ""
                name = f"{key.group}: {key.tooltip.split(';')[0].rstrip('.')}{digit}"
                help_text = f"key {action[1] or keys.spelling(key, app.settings.keymap)}"
                yield Command(name, help_text, partial(app.run_key, action[0]))
        for theme in app.theme_names:
            yield Command(f"Theme: {theme}", "change the colours", partial(app.use_theme, theme))

    async def discover(self) -> Hits:
        """What the palette shows before anything is typed."""
        for command in self.commands():
            yield DiscoveryHit(command.name, command.run, help=command.help)

    async def search(self, query: str) -> Hits:
        """Commands that match."""
        matcher = self.matcher(query)
        for command in self.commands():
            score = matcher.match(command.name)
            if score > 0:
                shown = matcher.highlight(command.name)
                yield Hit(score, shown, command.run, help=command.help)


def _actions(key: keys.Key) -> tuple[tuple[str, str], ...]:
    if "{key}" in key.action:
        return tuple((key.action.format(key=one), one) for one in key.keys)
    return () if key.action == "app.command_palette" else ((key.action, ""),)
