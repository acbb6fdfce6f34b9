"""The footer of each screen: as many of its keys as there is room for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.cells import cell_len

from specdeck.console.keys import Key, Place, key_label, of
from specdeck.console.widgets.cells import Cell, Cells, Row

_K: Final = "k"
"""Stands for both keys that step k."""

_LEFT: Final[Mapping[Place, tuple[str, ...]]] = {
    "live": (
        _K, "mode.toggle", "change.undo", "control.arm", "load.next", "screen.divergence",
        "screen.why", "screen.tuning", "screen.fingerprint", "policy.auto", "engine.next",
        "view.freeze", "events.open",
    ),
    "tuning": (
        _K, "sweep.toggle", "trial.begin", "breaker.toggle", "parameters.edit", "policy.auto",
        "change.undo", "control.arm", "engine.next",
    ),
    "check": (
        "check.run", "check.prompt", "check.replay", "check.batch", "check.edit", "check.results",
        "check.bundle", "check.report",
    ),
    "results": (
        "results.open", "results.pane", "results.stop", "results.again", "results.bundle",
        "results.report",
    ),
    "requests": ("requests.order", "requests.search", "engine.next"),
    "why": ("why.again", "why.trial", "view.copy", "engine.next"),
    "fingerprint": (
        "fingerprint.against", "fingerprint.pin", "fingerprint.probe", "fingerprint.changes",
        "fingerprint.unfold", "fingerprint.search", "fingerprint.save",
    ),
}  # fmt: skip
"""The first ones stay longest."""

_PAST: Final[Mapping[Place, tuple[str, ...]]] = {
    "live": (
        "lane.open", "events.open", "screen.why", "screen.tuning", "screen.fingerprint",
        "engine.next", "view.maximise", "view.copy",
    ),
    "tuning": ("events.open", "screen.why", "screen.fingerprint", "engine.next", "view.copy"),
    "check": ("screen.why", "screen.tuning", "screen.fingerprint", "view.copy"),
    "results": ("screen.why", "screen.tuning", "screen.fingerprint", "view.copy"),
    "requests": ("screen.why", "screen.tuning", "engine.next", "view.copy"),
    "why": ("why.again", "screen.tuning", "view.copy", "engine.next"),
    "fingerprint": ("screen.why", "screen.tuning", "view.copy"),
}  # fmt: skip
"""The same where another moment than now is shown, at which nothing can be done; the keys of time
stand below the title."""

_AWAY: Final = ("console.help", "console.quit")
_BACK: Final = ("console.help", "screen.back")
"""What explains and what leaves keep their place."""


def footer(
    place: Place,
    table: tuple[Key, ...],
    keymap: Mapping[str, str],
    width: int,
    *,
    armed: bool = False,
    now: bool = True,
) -> Row:
    """The keys of a screen in `width` cells; of `table` those that mean something here, and of an
    engine at another moment than `now` those that look.

    Labels come closer together and get shorter before a key is left out. Once `armed`, the
    key that arms has nothing to say.
    """
    known = {key.id: key for key in of(place, table)}
    if armed:
        known.pop("control.arm", None)
    listed = (_LEFT if now else _PAST).get(place, ())
    wanted = [name for name in listed if name == _K or name in known]
    away = [name for name in (_BACK if "screen.back" in known else _AWAY) if name in known]
    for gap, brief in (("  ", False), (" ", False), (" ", True)):
        left = [_entry(known, name, keymap, gap, brief=brief) for name in wanted]
        right = [_entry(known, name, keymap, gap, brief=brief) for name in away]
        right.append((Cell(" "),))
        room = width - _length(right) - 1
        if _length(left) <= room:
            break
    while left and _length(left) > room:
        left.pop()
    return Row(_join(left), _join(right))


def _entry(
    known: Mapping[str, Key], name: str, keymap: Mapping[str, str], gap: str, *, brief: bool
) -> Cells:
    if name == _K:
        more, less = key_label("k.more", keymap), key_label("k.less", keymap)
        return Cell(f" {more}/{less} ", "key"), Cell("k", "muted")
    key = known[name]
    action = key.action if key.action.startswith("app.") else f"screen.{key.action}"
    label = key.brief if brief and key.brief else key.label
    return (
        Cell(f"{gap}{key_label(name, keymap)} ", "key", action),
        Cell(label, "muted", action),
    )


def _length(entries: list[Cells]) -> int:
    return sum(cell_len(cell.text) for cells in entries for cell in cells)


def _join(entries: list[Cells]) -> Cells:
    return tuple(cell for cells in entries for cell in cells)
