"""Settings, themes and the key table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from textual.binding import Binding
from textual.screen import Screen

from specdeck.console import keys, theme
from specdeck.console.footer import footer
from specdeck.console.settings import Settings, read
from specdeck.console.widgets.cells import Row
from specdeck.engine.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    """A file with that text."""
    path = folder / "settings.yaml"
    path.write_text(text)
    return path


def test_a_missing_file_gives_the_defaults(tmp_path: Path) -> None:
    assert read(tmp_path / "none.yaml") == Settings()


def test_everything_can_be_set(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "interval: 0.5\ntheme: light\nretention_days: 7\nkeymap:\n  mode.toggle: f2\n  k.set.3: f3",
    )
    chosen = {"mode.toggle": "f2", "k.set.3": "f3"}
    assert read(path) == Settings(0.5, "light", chosen, 7)
    path = written(tmp_path, "record: false\nrecord_days: 30\nrecord_mb: 100")
    assert read(path) == Settings(record=False, record_days=30, record_mb=100)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("intervall: 1", ":1: intervall is not a setting: did you mean interval?"),
        ("keymap:\n  mode.togle: x", ":2: mode.togle is not a setting: did you mean mode.toggle?"),
        ("theme: dark\ninterval: soon", ":2: interval is seconds, at least 0.1"),
        ("interval: true", ":1: interval is seconds, at least 0.1"),
        ("interval: .nan", ":1: interval is seconds, at least 0.1"),
        pytest.param(
            f"interval: 1{'0' * 400}",
            ":1: interval is seconds, at least 0.1",
            id="interval of 401 digits",
        ),
        ("keymap:\n  mode.toggle: ''", ":2: mode.toggle requires a key"),
        ("keymap:\n  mode.toggle: f2,", ":2: mode.toggle requires a key"),
        ("keymap:\n  mode.toggle: F9", ":2: mode.toggle: no key is called F9: did you mean f9?"),
        (
            "keymap:\n  mode.toggle: f2, blub",
            ":2: mode.toggle: no key is called blub: such as f5, ctrl+t or question_mark",
        ),
        ("theme: 3", ":1: theme requires a theme's name"),
        ("retention_days: -1", ":1: retention_days is a whole number of days, 0 for ever"),
        ("retention_days: soon", ":1: retention_days is a whole number of days, 0 for ever"),
        ("record: perhaps", ":1: record is true or false"),
        ("record_days: 0", ":1: record_days is a whole number of days, 1 to 366"),
        ("record_mb: 1.5", ":1: record_mb is millions of bytes, 5 to 100000"),
        (
            "keymap:\n  mode.toggle: z\n  breaker.toggle: f9",
            ":2: mode.toggle cannot have z, which is the key of change.undo on the same screen",
        ),
        (
            "keymap:\n  k.set.3: f2\n  why.trial: 'q'",
            ":3: why.trial cannot have q, which is the key of console.quit on the same screen",
        ),
        ("keymap: f2", ":1: keymap requires ids of keys and the keys for each, such as k.more: f5"),
        ("- dark", ":1: settings require names with values, such as interval: 2: see docs/keys.md"),
        ("theme: [", ": not YAML: "),
    ],
)
def test_a_mistake_is_named_with_file_and_line(text: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        read(path)
    assert f"{path}{said}" in raised.value.line()


def test_a_key_may_be_given_to_another_action_where_its_own_is_moved(tmp_path: Path) -> None:
    text = "keymap:\n  mode.toggle: z\n  change.undo: t\n  results.again: f5"
    assert read(written(tmp_path, text)).keymap["change.undo"] == "t"


def test_the_shipped_themes_name_the_same_variables() -> None:
    found = theme.load(theme.SHIPPED)
    assert [one.name for one in found.themes] == [
        "colour-blind", "dark", "high-contrast", "light", "production", "terminal",
    ]  # fmt: skip
    assert found.broken == ()
    for one in found.themes:
        missing = set(theme.defaults()) ^ set(one.variables)
        assert not missing or (one.ansi and set(theme.defaults()) < set(one.variables))


def test_a_users_theme_replaces_a_shipped_one_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "dark.yaml").write_text('primary: "#123456"')
    found = theme.load(theme.SHIPPED, tmp_path)
    assert {one.name: one.primary for one in found.themes}["dark"] == "#123456"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("primary: [", "not a theme"),
        ("dark: true", "give it at least a primary colour"),
        ("primary: '#12'\n", "#12 is not a colour"),
        ("primary: red\ncolour: blue", "colour is not part of a theme"),
        ("primary: red\nvariables: 3", "variables are names with values"),
    ],
)
def test_a_broken_theme_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    found = theme.load(tmp_path)
    assert found.themes == ()
    assert len(found.broken) == 1
    assert said in found.broken[0]


def test_only_themes_name_colours() -> None:
    sheets = list(Path(theme.__file__).parent.rglob("*.tcss"))
    assert len(sheets) > 3
    colour = re.compile(r"#[0-9a-f]{3,8};|rgba?\(|hsla?\(")
    assert [path.name for path in sheets if colour.search(path.read_text())] == []


def screens() -> dict[keys.Place, type[Screen[Any]]]:
    """Who has the keys of a place."""
    from specdeck.console.screens.dialogs import HelpScreen
    from specdeck.console.screens.divergence.dialogs import PromptPicker
    from specdeck.console.screens.divergence.results import ResultsScreen
    from specdeck.console.screens.divergence.screen import DivergenceScreen
    from specdeck.console.screens.events.screen import EventsScreen
    from specdeck.console.screens.fingerprint.screen import FingerprintScreen
    from specdeck.console.screens.live.screen import LiveScreen
    from specdeck.console.screens.requests.screen import RequestsScreen
    from specdeck.console.screens.startup.screen import StartupScreen
    from specdeck.console.screens.timeline.dialogs import EventDialog
    from specdeck.console.screens.tuning.dialogs import ParametersScreen, TrialDialog
    from specdeck.console.screens.tuning.screen import TuningScreen
    from specdeck.console.screens.why.screen import WhyScreen

    return {
        "start": StartupScreen, "live": LiveScreen, "tuning": TuningScreen,
        "check": DivergenceScreen, "results": ResultsScreen, "prompt": PromptPicker,
        "fingerprint": FingerprintScreen, "parameters": ParametersScreen, "help": HelpScreen,
        "dialog": TrialDialog, "events": EventsScreen, "requests": RequestsScreen,
        "why": WhyScreen, "event": EventDialog,
    }  # fmt: skip


@pytest.mark.parametrize("place", keys.GROUPS)
def test_no_key_is_bound_twice_on_a_screen_and_each_has_an_action(place: keys.Place) -> None:
    from specdeck.console.app import Console

    names = [one for key in keys.of(place) for one in key.keys]
    assert len(names) == len(set(names))
    for key in keys.of(place):
        name = key.action.removeprefix("app.").split("(")[0]
        owner = Console if key.action.startswith("app.") else screens()[place]
        assert hasattr(owner, f"action_{name}")


def test_every_binding_of_a_screen_with_keys_of_its_own_is_in_the_table() -> None:
    for place, screen in screens().items():
        own = {
            one.id
            for binding in screen.__dict__.get("BINDINGS", ())
            if isinstance(one := binding, Binding)
        }
        loose = own - keys.ids() - {"pick.back", "pick.focus"}
        assert (place, loose) == (place, set())
        assert all(isinstance(one, Binding) for one in screen.__dict__.get("BINDINGS", ()))


def test_every_key_is_on_some_screen_and_no_id_is_used_twice() -> None:
    assert {key.id for place in keys.GROUPS for key in keys.of(place)} == {
        key.id for key in keys.KEYS
    }
    assert len({key.id for key in keys.KEYS}) == len(keys.KEYS)


def test_the_readme_table_has_a_line_for_every_key() -> None:
    lines = keys.markdown().splitlines()
    assert len(lines) == len(keys.KEYS) + 2
    assert "| `+` | live, tuning | Draft one more token per round. | `k.more` |" in lines
    assert "| `p` | fingerprint | Pin the present fingerprint. | `fingerprint.pin` |" in lines


@pytest.mark.parametrize("armed", [False, True])
@pytest.mark.parametrize("load", [False, True])
@pytest.mark.parametrize("engines", [False, True])
def test_the_footer_at_80_columns_names_the_screens_and_what_steers(
    armed: bool, load: bool, engines: bool
) -> None:
    table = keys.available(engines=engines, load=load)
    shown = words(footer("live", table, {}, 80, armed=armed))
    for one in ("+/- k", "t target-only", "z undo", "d check", "y why", "u tun", "? help",
                "q quit"):  # fmt: skip
        assert one in shown
    assert ("f fa" in shown or "f fi" in shown) or (load and not armed)
    assert (" arm" in shown) is not armed
    assert ("l load" in shown) is load
    assert len(shown) < 80


@pytest.mark.parametrize("place", ["live", "tuning", "check", "results", "requests", "why",
                                   "fingerprint"])  # fmt: skip
@pytest.mark.parametrize("width", [80, 120])
def test_a_footer_of_the_past_names_no_key_that_acts(place: keys.Place, width: int) -> None:
    shown = footer(place, keys.KEYS, {}, width, now=False)
    groups = ("Speculation", "Tuning", "Check", "Results", "Fingerprint")
    acts = {
        f"screen.{key.action}"
        for key in keys.of(place)
        if key.group in groups or key.id in ("load.next", "why.trial", "screen.divergence")
    }
    assert acts.isdisjoint(cell.action for cell in (*shown.left, *shown.right))
    assert any("why" in cell.text or "look" in cell.text for cell in shown.left)


def test_the_footer_at_120_columns_names_everything_in_full() -> None:
    shown = words(footer("live", keys.available(engines=False, load=False), {}, 120))
    for one in ("c control", "d check", "f fingerprint", "u tuning", "space freeze"):
        assert one in shown


@pytest.mark.parametrize("place", keys.GROUPS)
@pytest.mark.parametrize("width", [0, 1, 20, 40, 60, 80, 120, 300])
def test_a_footer_fits_and_what_leaves_stays(place: keys.Place, width: int) -> None:
    row = footer(place, keys.KEYS, {}, width)
    if width >= 40 and "Console" in keys.GROUPS[place]:
        assert "?" in words(row)
        assert ("esc" in words(row)) or ("q quit" in words(row))
    assert len(words(row)) <= max(width, 17)


def words(row: Row) -> str:
    """What stands in it."""
    return "".join(cell.text for cell in (*row.left, *row.right))
