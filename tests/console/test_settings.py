"""Settings, themes and the key table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specdeck.console import keys, theme
from specdeck.console.settings import Settings, read
from specdeck.engine.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    """A file with that text."""
    path = folder / "settings.yaml"
    path.write_text(text)
    return path


def test_a_missing_file_gives_the_defaults(tmp_path: Path) -> None:
    assert read(tmp_path / "none.yaml", keys.ids()) == Settings()


def test_everything_can_be_set(tmp_path: Path) -> None:
    path = written(
        tmp_path, "interval: 0.5\ntheme: light\nkeymap:\n  mode.toggle: f2\n  k.set.3: f3"
    )
    assert read(path, keys.ids()) == Settings(0.5, "light", {"mode.toggle": "f2", "k.set.3": "f3"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("intervall: 1", ":1: intervall is not a setting: did you mean interval?"),
        ("keymap:\n  mode.togle: x", ":2: mode.togle is not a setting: did you mean mode.toggle?"),
        ("theme: dark\ninterval: soon", ":2: interval is seconds, at least 0.1"),
        ("interval: true", ":1: interval is seconds, at least 0.1"),
        ("theme: 3", ":1: theme is the name of one"),
        ("keymap: f2", ":1: keymap is ids with keys"),
        ("- dark", ":1: settings are names with values: see README"),
        ("theme: [", ": not YAML: "),
    ],
)
def test_a_mistake_is_named_with_file_and_line(text: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        read(path, keys.ids())
    assert f"{path}{said}" in raised.value.line()


def test_three_themes_are_shipped_and_name_the_same_variables() -> None:
    found = theme.load(theme.SHIPPED)
    assert [one.name for one in found.themes] == ["dark", "high-contrast", "light"]
    assert found.broken == ()
    for one in found.themes:
        assert set(one.variables) == set(theme.defaults())


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


def test_no_key_is_bound_twice_and_each_has_an_action() -> None:
    from specdeck.console.app import Console
    from specdeck.console.screens.live import LiveScreen

    spelt = [one for key in keys.KEYS for one in key.keys]
    assert len(spelt) == len(set(spelt))
    for key in keys.KEYS:
        name = key.action.removeprefix("app.").split("(")[0]
        owner = Console if key.action.startswith("app.") else LiveScreen
        assert hasattr(owner, f"action_{name}")


def test_the_readme_table_has_a_line_for_every_key() -> None:
    lines = keys.markdown().splitlines()
    assert len(lines) == len(keys.KEYS) + 2
    assert "| `+` | Draft one token more per round. | `k.more` |" in lines
