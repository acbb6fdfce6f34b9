"""The user's settings: a YAML file in the configuration folder; it may be missing.

interval: 1.0            # seconds between two looks at an engine
theme: dark              # a shipped theme or one of your own in themes/ beside this file
keymap:
  mode.toggle: f2        # id: keys, as `?` shows them
retention_days: 90       # how long changes and checks are remembered; 0 is for ever
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdeck.console.yaml_file import parse_yaml
from specdeck.engine.errors import ConfigError, Place

DAYS = 90
"""Days for which changes and checks are remembered without a setting."""
MOST_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may choose once and for all."""

    interval: float = 1.0
    """Seconds between two looks at an engine; at least 0.1."""
    theme: str = "dark"
    keymap: dict[str, str] = field(default_factory=dict)
    """Action ids to keys, comma-separated."""
    retention_days: int = DAYS
    """Days for which the store remembers changes and checks; 0 is for ever."""


def read(path: Path, ids: Iterable[str]) -> Settings:
    """The settings in the file; the defaults where there is none.

    `ids` are the action ids that a keymap may name. Raises ConfigError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", place=Place(path)) from error
    try:
        data = parse_yaml(text) or {}
    except ValueError as error:
        raise ConfigError(f"not YAML: {error}", place=Place(path)) from error
    if not isinstance(data, dict):
        raise ConfigError(
            "settings are names with values", place=Place(path, 1), remedy="see docs/keys.md"
        )
    return _check(data, text, path, frozenset(ids))


def _check(data: dict[str, Any], text: str, path: Path, ids: frozenset[str]) -> Settings:
    for name in data:
        _refuse_unknown(str(name), ("interval", "theme", "keymap", "retention_days"), text, path)
    interval, theme = data.get("interval", 1.0), data.get("theme", "dark")
    keymap = data.get("keymap") or {}
    if isinstance(interval, bool) or not isinstance(interval, int | float) or interval < 0.1:
        raise ConfigError(
            "interval is seconds, at least 0.1", place=Place(path, _line(text, "interval"))
        )
    if not isinstance(theme, str):
        raise ConfigError("theme is the name of one", place=Place(path, _line(text, "theme")))
    if not isinstance(keymap, dict) or not all(isinstance(v, str) for v in keymap.values()):
        raise ConfigError("keymap is ids with keys", place=Place(path, _line(text, "keymap")))
    for name in keymap:
        _refuse_unknown(str(name), ids, text, path)
    days = data.get("retention_days", DAYS)
    if isinstance(days, bool) or not isinstance(days, int) or not 0 <= days <= MOST_DAYS:
        raise ConfigError(
            "retention_days is a whole number of days, 0 for ever",
            place=Place(path, _line(text, "retention_days")),
        )
    named_keys = {str(key): value for key, value in keymap.items()}
    return Settings(float(interval), theme, named_keys, days)


def _refuse_unknown(name: str, names: Iterable[str], text: str, path: Path) -> None:
    names = tuple(names)
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1)
    remedy = f"did you mean {near[0]}?" if near else None
    raise ConfigError(
        f"{name} is not a setting", place=Place(path, _line(text, name)), remedy=remedy
    )


def _line(text: str, name: str) -> int:
    """The line on which a name stands.

    >>> _line("a: 1\\nkeymap:\\n  b: 2", "b")
    3
    """
    lines = enumerate(text.splitlines(), 1)
    return next((n for n, line in lines if line.strip(" '\"").startswith(name)), 1)
