"""The keys of the check's screens: bindings, footers and their help read these tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.binding import Binding, BindingType

from specdeck.console import keys
from specdeck.console.keys import Key
from specdeck.console.view.cell import Cell, Row

SPLIT: tuple[Key, ...] = (
    Key("check.run", ("enter",), "race", "run", "Ask both arms and stop where they part.",
        "Check", footer=True),
    Key("check.prompt", ("p",), "prompt", "prompt", "Type a prompt, or choose one.",
        "Check", footer=True),
    Key("check.replay", ("r",), "replay", "replay",
        "Ask it again and again: how often do the arms differ, and each from itself?",
        "Check", footer=True),
    Key("check.batch", ("b",), "batch", "batch",
        "Check many prompts; goes on where it was stopped.", "Check", footer=True),
    Key("check.edit", ("e",), "edit", "edit",
        "Reference, tokens, replays, prompts, requests at once.", "Check", footer=True),
    Key("check.results", ("v",), "results", "results",
        "The last results, beside earlier checks.", "Check", footer=True),
    Key("check.next", ("right", "n"), "next(1)", "next", "The next prompt of the set.", "Check"),
    Key("check.previous", ("left",), "next(-1)", "previous", "The prompt before it.", "Check"),
    Key("check.bundle", ("w",), "bundle", "bundle",
        "Write this case down as a page that reproduces it.", "Check", footer=True),
    Key("check.report", ("m",), "report", "report", "Write a Markdown report.", "Check",
        footer=True),
    Key("check.stop", ("x",), "stop", "stop", "Stop what is running.", "Check"),
    Key("check.save", ("s",), "app.save", "save SVG", "Save the screen as an SVG picture.",
        "Check"),
    Key("check.back", ("escape",), "back", "back", "Back to the live screen.", "Check"),
)  # fmt: skip

RESULTS: tuple[Key, ...] = (
    Key("results.open", ("enter",), "open", "open", "See a case with both arms side by side.",
        "Check", footer=True),
    Key("results.pane", ("tab",), "pane(1)", "pane", "Summary, cases, earlier checks.",
        "Check", footer=True),
    Key("results.pane.back", ("shift+tab",), "pane(-1)", "pane", "The pane before it.", "Check"),
    Key("results.stop", ("x",), "stop", "stop", "Stop; what was done is kept.", "Check",
        footer=True),
    Key("results.again", ("b",), "again", "again", "Check again, or go on where it was stopped.",
        "Check", footer=True),
    Key("results.bundle", ("w",), "bundle", "bundle",
        "Write the case down as a page that reproduces it.", "Check", footer=True),
    Key("results.report", ("m",), "report", "report", "Write the outcome down in Markdown.",
        "Check", footer=True),
    Key("results.save", ("s",), "app.save", "save SVG", "Save the screen as an SVG picture.",
        "Check"),
    Key("results.back", ("escape",), "back", "back", "Back; a check that runs is stopped and kept.",
        "Check"),
)  # fmt: skip


def bindings(table: Sequence[Key]) -> list[BindingType]:
    """Textual's bindings for a table; its help takes the place of the console's."""
    found: list[BindingType] = [
        Binding(",".join(key.keys), key.action, key.label, tooltip=key.tooltip, id=key.id,
                show=key.footer)
        for key in table
    ]  # fmt: skip
    return [*found, Binding("question_mark,f1", "keys", "help", id=f"{table[0].id}.help")]


def footer(table: Sequence[Key], keymap: Mapping[str, str], width: int) -> Row:
    """As many keys as fit into `width` cells, the first ones first; the way back always does."""
    words = width >= 100
    back = (
        Cell("? ", "key", "screen.keys"), Cell("keys  " if words else " ", "muted", "screen.keys"),
        Cell("esc ", "key", "screen.back"), Cell("back " if words else "", "muted", "screen.back"),
    )  # fmt: skip
    left: list[Cell] = []
    room = width - sum(len(cell.text) for cell in back) - 1
    for key in (key for key in table if key.footer):
        spelt, action = f" {keys.spelling(key, keymap).split()[0]} ", f"screen.{key.action}"
        room -= len(spelt) + len(key.label) + 1
        if room >= 0:
            left += [Cell(spelt, "key", action), Cell(f"{key.label} ", "muted", action)]
    return Row(tuple(left), back)
