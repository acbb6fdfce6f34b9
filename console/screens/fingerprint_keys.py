"""The keys of the fingerprint screen: its bindings and its footer read this table."""

from __future__ import annotations

from collections.abc import Iterator

from textual.binding import Binding

from specdeck.console.keys import Key
from specdeck.console.view.cell import Cell, Row

KEYS: tuple[Key, ...] = (
    Key("fingerprint.against", ("g",), "against", "against",
        "Compare with the pin, another engine or an earlier moment.",
        "Fingerprint"),
    Key("fingerprint.pin", ("p",), "pin", "pin", "Keep what is seen as the pin.",
        "Fingerprint"),
    Key("fingerprint.probe", ("b",), "probe", "probe",
        "Ask the behaviour probe, the third name.", "Fingerprint"),
    Key("fingerprint.changes", ("v",), "changes", "changes",
        "What differs alone, or every fact.", "Fingerprint"),
    Key("fingerprint.unfold", ("e",), "unfold", "unfold", "Unfold all, or fold all.",
        "Fingerprint"),
    Key("fingerprint.search", ("slash",), "search", "search",
        "Search facts and values.", "Fingerprint", shown="/"),
    Key("fingerprint.save", ("w",), "save", "save", "Save the diff as text.",
        "Fingerprint"),
)  # fmt: skip

_MOVES = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10, "home": -100_000, "end": 100_000}


def bindings() -> Iterator[Binding]:
    """Textual's bindings, those that move in the list included."""
    for key in KEYS:
        yield Binding(",".join(key.keys), key.action, key.label, tooltip=key.tooltip, id=key.id)
    for name, by in _MOVES.items():
        yield Binding(name, f"move({by})", "Move", show=False)
    yield Binding("enter,space,left,right", "fold", "Fold", show=False)


def footer() -> Row:
    """The keys; the one that leaves keeps its place on a narrow screen."""
    left: list[Cell] = []
    for key in KEYS:
        shown = f" {key.shown or key.keys[0]} "
        left += [Cell(shown, "key", f"screen.{key.action}"), Cell(key.label, "muted")]
    return Row(tuple(left), (Cell(" esc ", "key", "screen.back"), Cell("back ", "muted")))
