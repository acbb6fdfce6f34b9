"""Themes are YAML files: shipped ones beside this package, the user's own in the config folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from textual.color import Color, ColorParseError
from textual.css.constants import VALID_STYLE_FLAGS
from textual.theme import Theme

from specdeck.console.yaml_file import parse_yaml
from specdeck.engine.errors import ConfigError, Place
from specdeck.engine.files import read_file
from specdeck.engine.text import printable

_LARGEST = 1_000_000
"""Bytes of a theme's file."""

SHIPPED = Path(__file__).absolute().parent.parent / "themes"


@dataclass(frozen=True, slots=True)
class Themes:
    """The themes that can be used, and one line for each file that cannot."""

    themes: tuple[Theme, ...]
    broken: tuple[str, ...]


def read(path: Path) -> Theme:
    """The theme in a file; raises ConfigError."""
    try:
        data = parse_yaml(read_file(path, most=_LARGEST).decode("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"not a theme: {error}", place=Place(path)) from error
    if not isinstance(data, dict) or data.get("primary") is None:
        raise ConfigError(
            "not a theme", place=Place(path), remedy="give it at least a primary colour"
        )
    return _theme(path, data)


_FIELDS = {field.name for field in fields(Theme)}
_COLOURS = _FIELDS - {"name", "dark", "luminosity_spread", "text_alpha", "variables", "ansi"}
_LONGEST_NAME = 60
"""Characters of a theme's name."""
_MOST_VARIABLES = 500
"""Textual has half as many."""
_VARIABLE = re.compile(r"[a-z][a-z0-9-]{0,59}")
_COLOUR = re.compile(r"[\w#%.,() -]{1,60}", re.ASCII)
_SHARE = re.compile(r" (?:100|\d{1,2})%$")
_SHADE = re.compile(r"-(?:darken|lighten)-\d$")
_ANSI = {"ansi-background": "ansi_default", "ansi-foreground": "ansi_default"}
"""What Textual requires of a theme in the terminal's own colours and does not make itself."""


def _theme(path: Path, data: dict[Any, Any]) -> Theme:
    """The theme of a file's values, of which none is believed to be what it should be.

    Textual parses them as a part of its style sheets, where an odd one ends the console.
    """
    for name in data:
        if name not in _FIELDS:
            raise ConfigError(f"{_show(name)} is not part of a theme", place=Place(path))
    known: dict[str, Any] = {"name": _read_name(path, data.get("name", path.stem))}
    for name in ("dark", "ansi"):
        if name in data:
            if not isinstance(data[name], bool):
                raise ConfigError(f"{name} is true or false", place=Place(path))
            known[name] = data[name]
    for name in ("luminosity_spread", "text_alpha"):
        if name in data:
            value = data[name]
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and 0 <= value <= 1):  # nor is NaN
                raise ConfigError(f"{name} is a number from 0 to 1", place=Place(path))
            known[name] = value
    for name in data:
        if name in _COLOURS and data[name] is not None:
            known[name] = _read_colour(path, name, data[name])
    variables = _read_variables(path, data.get("variables") or {})
    known["variables"] = {**_ANSI, **variables} if known.get("ansi") else variables
    return Theme(**known)


def _read_name(path: Path, name: object) -> str:
    fits = isinstance(name, str) and name.isprintable() and 0 < len(name) <= _LONGEST_NAME
    if not (fits and isinstance(name, str)):
        raise ConfigError(f"name is text of at most {_LONGEST_NAME} characters", place=Place(path))
    return name


def _read_variables(path: Path, variables: object) -> dict[str, str]:
    if not isinstance(variables, dict):
        raise ConfigError("variables are names with values", place=Place(path))
    if len(variables) > _MOST_VARIABLES:
        raise ConfigError(f"more than {_MOST_VARIABLES} variables", place=Place(path))
    found: dict[str, str] = {}
    for name, value in variables.items():
        if not (isinstance(name, str) and _VARIABLE.fullmatch(name)):
            raise ConfigError(f"{_show(name)} is not the name of a variable", place=Place(path))
        if "style" in name.split("-"):
            found[name] = _read_style(path, name, value)
        else:
            is_plain = name in _COLOURS or _SHADE.search(name)  # a share of it is taken elsewhere
            found[name] = _read_colour(
                path, name, value, share=not is_plain, auto=name in _find_automatic()
            )
    return found


@cache
def _find_automatic() -> frozenset[str]:
    """The variables that may be `auto`, against what is behind them: those that are so in Textual,
    which takes it nowhere else."""
    made = Theme("any", primary="white").to_color_system().generate()
    return frozenset(name for name, value in made.items() if value.startswith("auto"))


def _read_colour(
    path: Path, name: str, value: object, *, share: bool = False, auto: bool = False
) -> str:
    """A colour; one that may have a `share` may be `white 50%`, one that may be `auto` is that."""
    try:
        if isinstance(value, str) and _COLOUR.fullmatch(value):
            plain = _SHARE.sub("", value) if share else value
            if not (auto and plain == "auto"):
                Color.parse(plain)
            return value
    except (ColorParseError, ValueError, OverflowError):
        pass
    raise ConfigError(f"{name}: {_show(value)} is not a colour", place=Place(path))


def _read_style(path: Path, name: str, value: object) -> str:
    """Words such as `bold underline`."""
    words = value.split() if isinstance(value, str) else []
    known = VALID_STYLE_FLAGS.issuperset(words) and words[-1:] not in ([], ["not"])
    if isinstance(value, str) and known and len(value) <= _LONGEST_NAME:
        return value
    raise ConfigError(f"{name}: {_show(value)} is not a text style", place=Place(path))


def _show(value: object) -> str:
    """A value in an error: aliases of aliases can stand for more than a machine holds."""
    if not isinstance(value, str):
        return "this"
    text = printable(value)
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


@cache
def defaults() -> dict[str, str]:
    """The shipped dark theme's own variables, for themes that lack some of them."""
    return read(SHIPPED / "dark.yaml").variables


def load(*folders: Path) -> Themes:
    """Every theme in the folders; a later one of the same name wins."""
    found: dict[str, Theme] = {}
    broken: list[str] = []
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            try:
                theme = read(path)
            except ConfigError as error:
                broken.append(error.line())
            else:
                found[theme.name] = theme
    return Themes(tuple(found.values()), tuple(broken))


AUTO = "auto"
"""The theme that goes by the terminal."""


def choose_theme(environ: Mapping[str, str], colours: str | None) -> str:
    """The shipped theme for a terminal with `colours`, as Rich names what it can show.

    Some terminals tell their background in COLORFGBG, as numbers of the 16 colours.

    >>> choose_theme({}, "truecolor"), choose_theme({"COLORFGBG": "0;15"}, "256")
    ('dark', 'light')
    >>> choose_theme({"COLORFGBG": "15;default;0"}, "truecolor"), choose_theme({}, "standard")
    ('dark', 'terminal')
    """
    if colours not in ("256", "truecolor"):
        return "terminal"
    behind = environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if behind in ("7", "15") else "dark"


def find_theme(patterns: Mapping[str, str], name: str, url: str) -> str | None:
    """The theme of an engine: the first whose pattern fits its name or URL.

    >>> find_theme({"prod-*": "production"}, "prod-eu", "http://10.0.0.1:8000")
    'production'
    >>> find_theme({"*://prod*": "production"}, "eu", "http://prod.example:8000")
    'production'
    >>> find_theme({"prod-*": "production"}, "staging", "http://10.0.0.2:8000") is None
    True
    """
    fits = (
        theme
        for pattern, theme in patterns.items()
        if fnmatchcase(name, pattern) or fnmatchcase(url, pattern)
    )
    return next(fits, None)
