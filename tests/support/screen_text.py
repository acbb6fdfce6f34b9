"""What stands on a console's screen, as its user reads it."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.app import App

_TEXT = re.compile(r'<text [^>]*?x="([0-9.]+)" y="([0-9.]+)"[^>]*>(.*?)</text>')


def screen_text(app: App[Any]) -> str:
    """The lines of the screen, from a picture of it: what is cut short is cut short here too."""
    lines: dict[float, str] = {}
    for _, y, text in _TEXT.findall(app.export_screenshot(simplify=True)):
        lines[float(y)] = lines.get(float(y), "") + unescape(text).replace("\xa0", " ")
    return "\n".join(lines[y].rstrip() for y in sorted(lines))
