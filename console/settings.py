"""The user's settings: a YAML file in the configuration folder; it may be missing.

interval: 1.0            # seconds between two looks at an engine
theme: auto              # by the terminal; or a shipped one, or one of themes/ beside this file
engine_themes:           # the theme of engines by name or URL, the first pattern that fits
  "prod-*": production
ascii: false             # draw ASCII alone, as --ascii does
slow: false              # draw every five seconds, as --slow does
keymap:
  mode.toggle: f2        # id: keys, as `?` shows them
retention_days: 90       # how long changes and checks are remembered; 0 is for ever
record: true             # whether the console records its engines into black boxes
record_days: 7           # how long a black box remembers
record_mb: 500           # the most that one takes, in millions of bytes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from specdeck.console.keys import read_keymap
from specdeck.console.yaml_file import parse_yaml, refuse_unknown
from specdeck.engine.errors import ConfigError, Place
from specdeck.engine.files import read_file

DAYS = 90
"""Days for which changes and checks are remembered without a setting."""
MOST_DAYS = 36_500
RECORD_DAYS = 7
RECORD_MB = 500
_MOST_RECORD_DAYS = 366
_LEAST_MB = 5
_MOST_MB = 100_000
_LARGEST = 1_000_000
"""Bytes of the settings' file."""
_LONGEST_S = 86_400
"""Of an interval, seconds."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may choose once and for all."""

    interval: float = 1.0
    """Seconds between two looks at an engine; at least 0.1."""
    theme: str = "auto"
    """A theme's name; `auto` goes by the terminal."""
    keymap: dict[str, str] = field(default_factory=dict)
    """Keys that are moved; see `keys.read_keymap`."""
    retention_days: int = DAYS
    """Days for which the store remembers changes and checks; 0 is for ever."""
    engine_themes: dict[str, str] = field(default_factory=dict)
    """Themes by patterns of engines' names or URLs; see `theme.find_theme`."""
    ascii: bool = False
    """Whether ASCII alone is drawn."""
    slow: bool = False
    """Whether little is drawn, for a poor line."""
    record: bool = True
    """Whether the console records its engines into black boxes."""
    record_days: int = RECORD_DAYS
    """Days for which a black box remembers."""
    record_mb: int = RECORD_MB
    """Millions of bytes that one black box takes at most."""


def read(path: Path) -> Settings:
    """The settings in the file; the defaults where there is none. Raises ConfigError."""
    try:
        text = read_file(path, most=_LARGEST).decode("utf-8")
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot be read: {reason}", place=Place(path)) from error
    try:
        data = parse_yaml(text) or {}
    except ValueError as error:
        raise ConfigError(f"not YAML: {error}", place=Place(path)) from error
    if not isinstance(data, dict):
        raise ConfigError(
            "settings require names with values, such as interval: 2",
            place=Place(path, 1),
            remedy="see docs/keys.md",
        )
    return _check(data, lambda name: Place(path, _line(text, name)))


def _check(data: dict[str, Any], place_of: Callable[[str], Place]) -> Settings:
    for name in data:
        refuse_unknown(str(name), [one.name for one in fields(Settings)], place_of)
    interval, theme = data.get("interval", 1.0), data.get("theme", "auto")
    if (
        isinstance(interval, bool)
        or not isinstance(interval, int | float)
        or not 0.1 <= interval <= _LONGEST_S  # neither is NaN
    ):
        raise ConfigError("interval is seconds, at least 0.1", place=place_of("interval"))
    if not isinstance(theme, str):
        raise ConfigError("theme requires a theme's name", place=place_of("theme"))
    for name in ("ascii", "slow", "record"):
        if not isinstance(data.get(name, False), bool):
            raise ConfigError(f"{name} is true or false", place=place_of(name))
    patterns = data.get("engine_themes") or {}
    if not isinstance(patterns, dict) or not all(
        isinstance(one, str) for pair in patterns.items() for one in pair
    ):
        raise ConfigError(
            "engine_themes requires patterns of engines' names with a theme each, such as"
            ' "prod-*": production',
            place=place_of("engine_themes"),
        )
    keymap = read_keymap(data.get("keymap") or {}, place_of)
    days = data.get("retention_days", DAYS)
    if isinstance(days, bool) or not isinstance(days, int) or not 0 <= days <= MOST_DAYS:
        raise ConfigError(
            "retention_days is a whole number of days, 0 for ever",
            place=place_of("retention_days"),
        )
    record_days = data.get("record_days", RECORD_DAYS)
    if not _is_whole(record_days, 1, _MOST_RECORD_DAYS):
        raise ConfigError(
            f"record_days is a whole number of days, 1 to {_MOST_RECORD_DAYS}",
            place=place_of("record_days"),
        )
    record_mb = data.get("record_mb", RECORD_MB)
    if not _is_whole(record_mb, _LEAST_MB, _MOST_MB):
        raise ConfigError(
            f"record_mb is millions of bytes, {_LEAST_MB} to {_MOST_MB}",
            place=place_of("record_mb"),
        )
    return Settings(
        float(interval), theme, keymap, days, patterns,
        ascii=data.get("ascii", False), slow=data.get("slow", False),
        record=data.get("record", True), record_days=record_days, record_mb=record_mb,
    )  # fmt: skip


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _line(text: str, name: str) -> int:
    """The line on which a name stands.

    >>> _line("a: 1\\nkeymap:\\n  b: 2", "b")
    3
    """
    lines = enumerate(text.splitlines(), 1)
    return next((n for n, line in lines if line.strip(" '\"").startswith(name)), 1)
