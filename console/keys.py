"""Every key of the console, once: bindings, footer, help, palette and README read this table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from textual.binding import Binding

from specdeck.console.view.cell import Cell, Row

Group = Literal["Speculation", "Screens", "View", "Engines", "Console", "Check", "Fingerprint"]


@dataclass(frozen=True, slots=True)
class Key:
    """A thing the operator can do."""

    id: str
    """Names the key in a keymap."""
    keys: tuple[str, ...]
    """As Textual spells them; with `{key}` in `action` each one is an action of its own."""
    action: str
    """On the screen, or with `app.` before it on the app."""
    label: str
    """One or two words, for the footer."""
    tooltip: str
    """One sentence, for help, palette and README."""
    group: Group
    shown: str = ""
    """How help spells the keys; empty for the keys themselves."""
    footer: bool = False
    needs: Literal["", "engines", "load"] = ""
    """What must be there for the key to mean anything."""


KEYS: tuple[Key, ...] = (
    Key("k.more", ("plus", "equals_sign"), "change_k(1)", "k", "Draft one token more per round.",
        "Speculation", shown="+"),
    Key("k.less", ("minus",), "change_k(-1)", "k", "Draft one token less per round.",
        "Speculation", shown="-"),
    Key("k.set", tuple("0123456789"), "set_k({key})", "set k",
        "Set k; 0 drafts nothing.", "Speculation", shown="0…9"),
    Key("mode.toggle", ("t",), "toggle_mode", "target-only",
        "Target-only, or speculation again; without a restart.",
        "Speculation", footer=True),
    Key("policy.auto", ("a",), "toggle_policy", "auto",
        "Let the goodput policy choose k, or take k back.", "Speculation", footer=True),
    Key("breaker.toggle", ("b",), "breaker", "breaker",
        "Open the breaker by hand, or reset it.", "Speculation"),
    Key("trial.begin", ("T",), "trial", "trial",
        "Try a change: the engine measures it and keeps it or takes it back.", "Speculation"),
    Key("sweep.toggle", ("w",), "sweep", "sweep",
        "Sweep k on the live traffic, or stop the sweep under way.", "Speculation"),
    Key("parameters.edit", ("p",), "parameters", "parameters",
        "Edit the parameters of policies, breaker and trials.", "Speculation"),
    Key("change.undo", ("z", "ctrl+z"), "undo", "undo", "Take the last change back.",
        "Speculation", footer=True),
    Key("control.arm", ("c",), "arm", "control",
        "Arm control: until then keys change nothing.",
        "Speculation", footer=True),
    Key("screen.divergence", ("d",), "over('divergence')", "check",
        "Both arms side by side: does speculation say what the target says?", "Screens"),
    Key("screen.fingerprint", ("f",), "over('fingerprint')", "fingerprint",
        "The fingerprint's facts, and what differs from a pin or another engine.", "Screens"),
    Key("screen.tuning", ("u",), "over('tuning')", "tuning",
        "Speed over k, the policy, its breaker and what speculation saved.", "Screens"),
    Key("view.freeze", ("space",), "freeze", "freeze",
        "Freeze the view; collection goes on.", "View", footer=True),
    Key("view.maximise", ("m",), "maximise", "one chart",
        "Show one chart across the screen, the other one, both.", "View"),
    Key("view.theme", ("ctrl+t",), "app.next_theme", "theme", "Switch to the next theme.", "View"),
    Key("view.redraw", ("ctrl+l",), "app.redraw", "redraw", "Draw the whole screen anew.", "View"),
    Key("view.save", ("s",), "app.save", "save SVG", "Save the screen as an SVG picture.", "View"),
    Key("engine.next", ("tab", "right_square_bracket"), "step(1)", "next",
        "Show the next engine.", "Engines", shown="tab ]", footer=True, needs="engines"),
    Key("engine.previous", ("shift+tab", "left_square_bracket"), "step(-1)", "previous",
        "Show the previous engine.", "Engines", shown="shift+tab [", needs="engines"),
    Key("load.next", ("l",), "next_load", "load", "Switch to the next load profile.",
        "Engines", footer=True, needs="load"),
    Key("console.help", ("question_mark", "f1"), "app.help", "help", "Show every key.",
        "Console", shown="? f1", footer=True),
    Key("console.palette", ("ctrl+p", "colon"), "app.command_palette", "commands",
        "Search every command.", "Console", shown="ctrl+p :"),
    Key("console.quit", ("q", "ctrl+q", "ctrl+c"), "app.quit", "quit",
        "Leave; an engine that was started here may go on.", "Console",
        shown="q ctrl+c", footer=True),
)  # fmt: skip

_BY_ID = {key.id: key for key in KEYS}


def bindings(*groups: Group) -> list[Binding]:
    """Textual's bindings for the keys of these groups."""
    return [binding for key in KEYS if key.group in groups for binding in _bindings(key)]


def _bindings(key: Key) -> Iterator[Binding]:
    if "{key}" not in key.action:
        keys = ",".join(key.keys)
        yield Binding(keys, key.action, key.label, tooltip=key.tooltip, id=key.id, show=key.footer)
        return
    for one in key.keys:
        action = key.action.format(key=one)
        yield Binding(one, action, key.label, tooltip=key.tooltip, id=f"{key.id}.{one}", show=False)


def ids() -> frozenset[str]:
    """Every id that a keymap may name.

    >>> {"k.more", "k.set.3"} <= ids()
    True
    """
    every = bindings(*get_args(Group))
    return frozenset(binding.id for binding in every if binding.id)


def spelling(key: Key, keymap: Mapping[str, str]) -> str:
    """How the keys of an action are written for a reader.

    >>> spelling(_BY_ID["k.more"], {}), spelling(_BY_ID["mode.toggle"], {"mode.toggle": "f2"})
    ('+', 'f2')
    """
    if key.id in keymap:
        return " ".join(keymap[key.id].split(","))
    return key.shown or " ".join(key.keys)


def available(*, engines: bool, load: bool) -> tuple[Key, ...]:
    """The keys that mean something in a session."""
    there = {"": True, "engines": engines, "load": load}
    return tuple(key for key in KEYS if there[key.needs])


def markdown() -> str:
    """The table for README."""
    lines = ["| key | what it does | id |", "|---|---|---|"]
    for key in KEYS:
        spelt = " ".join(f"`{part}`" for part in spelling(key, {}).split())
        lines.append(f"| {spelt} | {key.tooltip} | `{key.id}` |")
    return "\n".join(lines)


def footer(keys: tuple[Key, ...], keymap: Mapping[str, str], *, steers: bool = True) -> Row:
    """The footer's keys; those that leave and explain keep their place on a narrow screen."""
    left = [Cell(" +/- ", "key"), Cell("k", "muted")] if steers else []
    right: list[Cell] = []
    for key in keys:
        if not key.footer:
            continue
        first = spelling(key, keymap).split()[0]
        action = key.action if key.action.startswith("app.") else f"screen.{key.action}"
        side = right if key.group == "Console" else left
        side += [Cell(f"  {first} ", "key", action), Cell(key.label, "muted", action)]
    return Row(tuple(left), (*right, Cell(" ")))
