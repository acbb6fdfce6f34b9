"""Every key of the console, once: bindings, footers, help, palette and docs read this table.

A user moves keys by the `keymap` of the settings: ids of this table, each with keys of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from textual.binding import Binding
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

from specdeck.console.yaml_file import refuse_unknown
from specdeck.engine import errors

Group = Literal["Speculation", "Tuning", "Check", "Results", "Prompt", "Fingerprint", "Screens",
                "Back", "Parameters", "Events", "Event list", "Requests", "Request list", "Why",
                "Help", "Dialog", "Time", "View", "Event lane", "Event",
                "Engines", "Console"]  # fmt: skip

Place = Literal["start", "live", "tuning", "check", "results", "prompt", "fingerprint",
                "parameters", "events", "event", "requests", "why", "help",
                "dialog"]  # fmt: skip
"""A screen with keys of its own."""

GROUPS: Final[Mapping[Place, tuple[Group, ...]]] = {
    "live": (
        "Speculation", "Screens", "Requests", "Events", "Event lane", "Time", "View", "Engines",
        "Console",
    ),
    "tuning": (
        "Tuning", "Speculation", "Screens", "Requests", "Events", "Time", "Back", "Engines",
        "Console",
    ),
    "requests": ("Request list", "Screens", "Time", "Back", "Engines", "Console"),
    "why": ("Why", "Screens", "Time", "Back", "Engines", "Console"),
    "check": ("Check", "Screens", "Time", "Back", "Console"),
    "results": ("Results", "Screens", "Time", "Back", "Console"),
    "fingerprint": ("Fingerprint", "Screens", "Time", "Back", "Console"),
    "prompt": ("Prompt",),
    "parameters": ("Parameters", "Dialog"),
    "events": ("Event list",),
    "event": ("Event", "Dialog"),
    "help": ("Help", "Dialog"),
    "dialog": ("Dialog",),
    "start": ("Console",),
}  # fmt: skip
"""What works where: a key means one thing on a screen, and may mean another on the next."""


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
    """One sentence, for help, palette and docs."""
    group: Group
    shown: str = ""
    """How help spells the keys; empty for the keys themselves."""
    brief: str = ""
    """The label where there is little room; empty for the label itself."""
    needs: Literal["", "engines", "load"] = ""
    """What must be there for the key to mean anything."""
    searched: bool = True
    """Whether the palette offers it; what only moves a cursor is no command."""

    @property
    def steers(self) -> bool:
        """Whether it changes the engine, or what it has to do.

        >>> [key.id for key in KEYS if key.steers and key.group != "Speculation"]
        ['tuning.parameters', 'parameters.undo', 'why.trial', 'load.next']
        """
        return self.group == "Speculation" or self.id in _STEERING


_STEERING = frozenset({"tuning.parameters", "parameters.undo", "why.trial", "load.next"})
"""What steers from other groups."""

KEYS: tuple[Key, ...] = (
    Key("k.more", ("plus", "equals_sign"), "change_k(1)", "k", "Draft one more token per round.",
        "Speculation", shown="+"),
    Key("k.less", ("minus",), "change_k(-1)", "k", "Draft one fewer token per round.",
        "Speculation", shown="-"),
    Key("k.set", tuple("0123456789"), "set_k({key})", "set k",
        "Set k; 0 drafts nothing.", "Speculation", shown="0…9"),
    Key("mode.toggle", ("t",), "toggle_mode", "target-only",
        "Switch between target-only and speculation.", "Speculation"),
    Key("policy.auto", ("a",), "toggle_policy", "auto",
        "Let the goodput policy choose k, or choose it yourself again.", "Speculation"),
    Key("breaker.toggle", ("b",), "breaker", "breaker",
        "Open the breaker by hand, or reset it.", "Speculation"),
    Key("trial.begin", ("T",), "trial", "trial",
        "Try a change: the engine measures it and keeps or reverts it.", "Speculation"),
    Key("sweep.toggle", ("w",), "sweep", "sweep",
        "Sweep k on the live traffic, or stop the sweep under way.", "Speculation"),
    Key("parameters.edit", ("p",), "parameters", "parameters",
        "Edit the parameters of policies, breaker and trials.", "Speculation"),
    Key("change.undo", ("z", "ctrl+z"), "undo", "undo", "Undo the last change.", "Speculation"),
    Key("control.arm", ("c",), "arm", "control", "Arm control: until then keys change nothing.",
        "Speculation", brief="arm"),
    Key("tuning.parameters", ("enter",), "parameters", "parameters",
        "Edit the parameters, as with p.", "Tuning"),
    Key("check.run", ("enter",), "race", "run", "Ask both arms and stop at the first difference.",
        "Check"),
    Key("check.prompt", ("p",), "prompt", "prompt", "Type a prompt, or choose one.", "Check"),
    Key("check.replay", ("r",), "replay", "replay",
        "Repeat the prompt: how often do the arms differ, and each from itself?", "Check"),
    Key("check.batch", ("b",), "batch", "batch",
        "Check many prompts; resumes where it was stopped.", "Check"),
    Key("check.edit", ("e",), "edit", "edit",
        "Reference, tokens, replays, prompts, requests at once.", "Check"),
    Key("check.results", ("v",), "results", "results",
        "The last results, beside earlier checks.", "Check"),
    Key("check.bundle", ("w",), "bundle", "bundle",
        "Write a page that reproduces this case.", "Check"),
    Key("check.report", ("m",), "report", "report", "Write a Markdown report.", "Check"),
    Key("check.next", ("right", "n"), "next(1)", "next", "The next prompt of the set.", "Check"),
    Key("check.previous", ("left",), "next(-1)", "previous", "The previous prompt.", "Check"),
    Key("check.stop", ("x",), "stop", "stop", "Stop what is running.", "Check"),
    Key("results.open", ("enter",), "open", "open", "See a case with both arms side by side.",
        "Results"),
    Key("results.pane", ("tab",), "pane(1)", "pane", "Summary, cases, earlier checks.", "Results"),
    Key("results.pane.back", ("shift+tab",), "pane(-1)", "pane", "The previous pane.", "Results"),
    Key("results.stop", ("x",), "stop", "stop", "Stop; what is done is kept.", "Results"),
    Key("results.again", ("b",), "again", "again", "Check again, or resume where it was stopped.",
        "Results"),
    Key("results.bundle", ("w",), "bundle", "bundle",
        "Write a page that reproduces this case.", "Results"),
    Key("results.report", ("m",), "report", "report", "Write a Markdown report.", "Results"),
    Key("prompt.chat", ("ctrl+o",), "chat", "as chat",
        "Treat the prompt as a chat message, or as text to continue.", "Prompt"),
    Key("fingerprint.against", ("a",), "against", "against",
        "Compare with the pin, another engine or an earlier moment.", "Fingerprint"),
    Key("fingerprint.pin", ("p",), "pin", "pin", "Pin the present fingerprint.", "Fingerprint"),
    Key("fingerprint.probe", ("b",), "probe", "probe",
        "Run the behaviour probe (the third name).", "Fingerprint"),
    Key("fingerprint.changes", ("v",), "changes", "changes",
        "Only what differs, or every fact.", "Fingerprint"),
    Key("fingerprint.unfold", ("e",), "unfold", "unfold", "Unfold all, or fold all.",
        "Fingerprint"),
    Key("fingerprint.search", ("slash",), "search", "search", "Search facts and values.",
        "Fingerprint", shown="/"),
    Key("fingerprint.save", ("w",), "save", "save", "Save the diff as text.", "Fingerprint"),
    Key("fingerprint.fold", ("enter", "left", "right"), "fold", "fold",
        "Fold or unfold the branch under the cursor.", "Fingerprint", searched=False),
    # The end is a moment on every screen: a list's last line is reached with ctrl.
    Key("fingerprint.move", ("up", "down", "pageup", "pagedown", "home", "ctrl+end"),
        "move('{key}')", "move", "Move through the facts.", "Fingerprint", searched=False),
    Key("screen.divergence", ("d",), "app.open_screen('divergence')", "check",
        "Both arms side by side: is the output still the target model's?", "Screens"),
    Key("screen.fingerprint", ("f",), "app.open_screen('fingerprint')", "fingerprint",
        "The fingerprint's facts, and what differs from a pin or another engine.", "Screens",
        brief="facts"),
    Key("screen.tuning", ("u",), "app.open_screen('tuning')", "tuning",
        "Speed over k, the policy, its breaker and what speculation saved.", "Screens",
        brief="tune"),
    Key("screen.why", ("y",), "app.open_screen('why')", "why",
        "What makes acceptance or speed low: causes ranked, each with a command to try.",
        "Screens"),
    Key("screen.back", ("escape",), "back", "back",
        "Back to the previous screen; a running check is stopped and kept.", "Back", shown="esc",
        searched=False),
    Key("parameters.undo", ("z",), "undo", "undo", "Undo the last change.", "Parameters",
        searched=False),
    Key("parameters.copy", ("C",), "app.copy", "copy",
        "Copy the selected parameter, or the command that sets it.", "Parameters", searched=False),
    Key("parameters.close", ("p", "q"), "dismiss", "close", "Close the list, as with esc.",
        "Parameters", searched=False),
    # Apart from other screens: the check screen repeats a prompt with this key.
    Key("screen.requests", ("r",), "app.open_screen('requests')", "requests",
        "What runs right now, and what has finished: age, tokens, k, acceptance, kind.",
        "Requests"),
    Key("requests.order", ("o",), "order", "sort",
        "Sort by age, prompt, output or acceptance.", "Request list"),
    Key("requests.search", ("slash",), "search", "search",
        "Search kinds, states, adapters and k.", "Request list", shown="/"),
    Key("requests.scroll", ("up", "down", "pageup", "pagedown", "home", "ctrl+end"),
        "scroll('{key}')", "scroll", "Scroll through the requests.", "Request list",
        searched=False),
    Key("why.trial", ("T",), "trial", "trial",
        "Try what the first cause that a trial can mend suggests.", "Why"),
    Key("why.again", ("enter",), "again", "look again", "Watch the engine anew.", "Why",
        brief="again"),
    Key("why.scroll", ("up", "down", "pageup", "pagedown", "home", "ctrl+end"),
        "scroll('{key}')", "scroll", "Scroll through the causes.", "Why", searched=False),
    Key("events.open", ("e",), "events", "events",
        "Everything that happened, to scroll through and to search.", "Events"),
    Key("events.search", ("slash",), "search", "search", "Search the events.", "Event list",
        shown="/", searched=False),
    Key("events.go", ("enter",), "go", "go to", "Go to the moment of the selected event.",
        "Event list", searched=False),
    Key("events.copy", ("C",), "app.copy", "copy", "Copy the selected event.", "Event list",
        searched=False),
    Key("events.close", ("escape",), "leave", "close",
        "Show every event again, and after that close the list.", "Event list", shown="esc",
        searched=False),
    Key("help.close", ("q", "question_mark", "space", "enter", "f1"), "dismiss", "close",
        "Close the help, as with esc.", "Help", shown="q ? space enter f1", searched=False),
    Key("dialog.close", ("escape",), "dismiss", "close",
        "Close the dialog and leave everything as it is.", "Dialog", shown="esc", searched=False),
    Key("lane.open", ("enter",), "open_event", "event",
        "Open the event that is looked at: when, who, why, and the figures around it.",
        "Event lane"),
    Key("event.close", ("enter", "q"), "dismiss", "close", "Close the event, as with esc.", "Event",
        searched=False),
    Key("time.back", ("left_square_bracket",), "time_step(-1)", "back",
        "A step back in time: a sixtieth of what the charts show.", "Time", shown="["),
    Key("time.forward", ("right_square_bracket",), "time_step(1)", "forward",
        "A step forward in time.", "Time", shown="]"),
    Key("time.event.back", ("left_curly_bracket",), "time_event(-1)", "event before",
        "To the event before.", "Time", shown="{"),
    Key("time.event.forward", ("right_curly_bracket",), "time_event(1)", "next event",
        "To the next event.", "Time", shown="}"),
    Key("time.go", ("g",), "time_go", "go to",
        "Go to a time: 03:10, -20m, yesterday 23:00, 2026-11-22 03:10.", "Time"),
    Key("time.shorter", ("less_than_sign",), "time_span(-1)", "shorter",
        "Charts of a shorter time, down to a minute.", "Time", shown="<"),
    Key("time.longer", ("greater_than_sign",), "time_span(1)", "longer",
        "Charts of a longer time, up to a day; lowest and highest figures are kept.", "Time",
        shown=">"),
    Key("view.freeze", ("space",), "freeze", "freeze",
        "Freeze the view; collection continues. In the past: let time go on from there.", "Time"),
    Key("time.now", ("end",), "time_now", "now",
        "Back to now; in a recording, to its end.", "Time"),
    Key("view.maximise", ("m",), "maximise", "one chart",
        "Show one chart, the other one, or both.", "View"),
    Key("view.copy", ("C",), "app.copy", "copy",
        "Copy the selected line, a figure, a name, or an action as a command, through SSH as well.",
        "Console"),
    Key("view.theme", ("ctrl+t",), "app.next_theme", "theme", "Switch to the next theme.",
        "Console"),
    Key("view.redraw", ("ctrl+l",), "app.redraw", "redraw", "Redraw the whole screen.", "Console"),
    Key("view.save", ("s",), "app.save", "save SVG", "Save the screen as an SVG picture.",
        "Console"),
    Key("incident.write", ("I",), "app.incident", "incident",
        "Write this half hour into one file to send on.", "Console"),
    Key("engine.next", ("tab",), "step(1)", "next", "Show the next engine.", "Engines",
        needs="engines"),
    Key("engine.previous", ("shift+tab",), "step(-1)", "previous", "Show the previous engine.",
        "Engines", needs="engines"),
    Key("load.next", ("l",), "next_load", "load", "Switch to the next load profile.",
        "Engines", needs="load"),
    Key("console.help", ("question_mark", "f1"), "app.help", "help", "Show every key.",
        "Console", shown="? f1"),
    Key("console.palette", ("ctrl+p", "colon"), "app.command_palette", "commands",
        "Search every command.", "Console", shown="ctrl+p :"),
    Key("console.quit", ("q", "ctrl+q", "ctrl+c"), "app.quit", "quit",
        "Quit; an engine that was started here can keep running.", "Console", shown="q ctrl+c"),
)  # fmt: skip

_BY_ID = {key.id: key for key in KEYS}


def bindings(place: Place | None = None) -> list[Binding]:
    """Textual's bindings of a screen; of the app, for every screen, where none is named.

    >>> [one.id for one in bindings("dialog")], "view.theme" in [one.id for one in bindings()]
    (['dialog.close'], True)
    """
    groups = ("Console",) if place is None else [one for one in GROUPS[place] if one != "Console"]
    return [one for key in KEYS if key.group in groups for one in _bindings(key)]


def _bindings(key: Key) -> Iterator[Binding]:
    if "{key}" not in key.action:
        keys = ",".join(key.keys)
        yield Binding(keys, key.action, key.label, tooltip=key.tooltip, id=key.id, show=False)
        return
    for one in key.keys:
        action = key.action.format(key=one)
        yield Binding(one, action, key.label, tooltip=key.tooltip, id=f"{key.id}.{one}", show=False)


def ids() -> frozenset[str]:
    """Every id that a keymap may name.

    >>> {"k.more", "k.set.3", "fingerprint.pin", "check.run"} <= ids()
    True
    """
    return frozenset(binding.id for key in KEYS for binding in _bindings(key) if binding.id)


def read_keymap(data: object, place_of: Callable[[str], errors.Place]) -> dict[str, str]:
    """The keys that a user has moved: action ids to keys, comma-separated.

    `place_of` is where the settings have a name. Raises ConfigError for what moves no key.
    """
    if not isinstance(data, dict) or not all(isinstance(v, str) for v in data.values()):
        raise errors.ConfigError(
            "keymap requires ids of keys and the keys for each, such as k.more: f5",
            place=place_of("keymap"),
        )
    keymap = {str(name): value for name, value in data.items()}
    for name, moved in keymap.items():
        refuse_unknown(name, ids(), place_of)
        for key in (one.strip() for one in moved.split(",")):
            if not key:
                raise errors.ConfigError(f"{name} requires a key", place=place_of(name))
            if not _is_key(key):
                raise errors.ConfigError(
                    f"{name}: no key is called {key}", place=place_of(name), remedy=_suggest(key)
                )
    for place in GROUPS:
        if (clash := _find_clash(place, keymap)) is not None:
            name, key, other = clash
            raise errors.ConfigError(
                f"{name} cannot have {key}, which is the key of {other} on the same screen",
                place=place_of(name),
                remedy=f"move {other} as well",
            )
    return keymap


_MODIFIERS: Final = ("ctrl+", "alt+", "shift+", "super+", "meta+", "hyper+")
_NAMES: Final = frozenset((*(key.value for key in Keys), *KEY_NAME_REPLACEMENTS.values()))
"""What Textual calls the keys that are no character."""


def _is_key(name: str) -> bool:
    """Whether Textual knows a key by this name: what it does not, it binds and never gets.

    >>> [_is_key(name) for name in ("f9", "ctrl+shift+x", "K", "question_mark", "F9", "page_down")]
    [True, True, True, True, False, False]
    """
    bare = name
    while bare.startswith(_MODIFIERS):
        bare = bare.partition("+")[2]
    known = (name in _NAMES, bare in _NAMES, len(bare) == 1, key_to_character(bare) is not None)
    return any(known)


def _suggest(name: str) -> str:
    """A key that may be meant."""
    other = name.lower().replace("_", "")
    return f"did you mean {other}?" if _is_key(other) else "such as f5, ctrl+t or question_mark"


def _find_clash(place: Place, keymap: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The id that was moved to a key of another one on a screen, with that key and the other id;
    None where each key means one thing."""
    of_key: dict[str, str] = {}
    for binding in (*bindings(place), *bindings()):
        name = binding.id or ""
        for key in (one.strip() for one in keymap.get(name, binding.key).split(",")):
            other = of_key.setdefault(key, name)
            if other != name and (name in keymap or other in keymap):
                return (name, key, other) if name in keymap else (other, key, name)
    return None


def format_keys(key: Key, keymap: Mapping[str, str]) -> str:
    """How the keys of an action are written for a reader.

    >>> format_keys(_BY_ID["k.more"], {}), format_keys(_BY_ID["mode.toggle"], {"mode.toggle": "f2"})
    ('+', 'f2')
    >>> format_keys(_BY_ID["k.set"], {}), format_keys(_BY_ID["k.set"], {"k.set.9": "f9"})
    ('0…9', '0 1 2 3 4 5 6 7 8 f9')
    """
    if "{key}" in key.action:
        moved = [keymap.get(f"{key.id}.{one}", one) for one in key.keys]
        spelled = key.shown if moved == list(key.keys) else ""
        return spelled or " ".join(one for keys in moved for one in keys.split(","))
    if key.id in keymap:
        return " ".join(keymap[key.id].split(","))
    return key.shown or " ".join(key.keys)


def key_label(name: str, keymap: Mapping[str, str]) -> str:
    """The first key of an action, for a hint.

    >>> key_label("change.undo", {}), key_label("change.undo", {"change.undo": "f3,f4"})
    ('z', 'f3')
    """
    return format_keys(_BY_ID[name], keymap).split()[0]


def key_names(name: str, keymap: Mapping[str, str]) -> tuple[str, ...]:
    """Every key of an action, as Textual calls them.

    >>> key_names("console.help", {}), key_names("change.undo", {"change.undo": "f3, u"})
    (('question_mark', 'f1'), ('f3', 'u'))
    """
    moved = keymap.get(name)
    return _BY_ID[name].keys if moved is None else tuple(one.strip() for one in moved.split(","))


def available(*, engines: bool, load: bool) -> tuple[Key, ...]:
    """The keys that mean something in a session."""
    there = {"": True, "engines": engines, "load": load}
    return tuple(key for key in KEYS if there[key.needs])


def of(place: Place, table: tuple[Key, ...] = KEYS) -> tuple[Key, ...]:
    """The keys of one screen, group by group.

    >>> [key.id for key in of("prompt")]
    ['prompt.chat']
    """
    return tuple(key for group in GROUPS[place] for key in table if key.group == group)


def markdown() -> str:
    """The table of docs/keys.md."""
    lines = ["| key | on | what it does | id |", "|---|---|---|---|"]
    for key in (key for group in get_args(Group) for key in KEYS if key.group == group):
        names = " ".join(f"`{part}`" for part in format_keys(key, {}).split())
        own = [binding.id for binding in _bindings(key)]
        named = f"`{own[0]}`" if len(own) == 1 else f"`{own[0]}` to `{own[-1]}`"
        lines.append(f"| {names} | {_where(key.group)} | {key.tooltip} | {named} |")
    return "\n".join(lines)


def _where(group: Group) -> str:
    if group == "Console":
        return "every screen"
    return ", ".join(place for place, groups in GROUPS.items() if group in groups)
