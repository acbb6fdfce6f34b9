"""Themes are YAML files: shipped ones beside this package, the user's own in the config folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from textual.color import Color, ColorParseError
from textual.theme import Theme

from specdeck.console.yaml_file import parse_yaml
from specdeck.engine.errors import ConfigError, Place
from specdeck.engine.files import read_file

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
_KINDS: dict[str, Any] = {
    "dark": bool, "ansi": bool, "luminosity_spread": float | int, "text_alpha": float | int,
}  # fmt: skip
_COLOURS = _FIELDS - {"name", "dark", "luminosity_spread", "text_alpha", "variables", "ansi"}


def _theme(path: Path, data: dict[str, Any]) -> Theme:
    data = {"name": path.stem, "variables": {}, **data}
    for name in data:
        if name not in _FIELDS:
            raise ConfigError(f"{name} is not part of a theme", place=Place(path))
    if not isinstance(data["variables"], dict):
        raise ConfigError("variables are names with values", place=Place(path))
    variables = {str(name): str(value) for name, value in data["variables"].items()}
    colours = {name: data[name] for name in data if name in _COLOURS and data[name] is not None}
    for name, value in {**colours, **variables}.items():
        try:
            if name in _COLOURS or str(value).startswith("#"):
                Color.parse(str(value))
        except ColorParseError as error:
            raise ConfigError(f"{name}: {value} is not a colour", place=Place(path)) from error
    plain = {name: data[name] for name in _KINDS if name in data}
    for name, value in plain.items():
        if not isinstance(value, _KINDS[name]):
            raise ConfigError(f"{name}: {value} is of no use", place=Place(path))
    known: dict[str, Any] = {"name": str(data["name"]), **plain, "variables": variables}
    return Theme(**known | {name: str(value) for name, value in colours.items()})


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
