"""What is left of a console that ended by itself in a soak: its exit code, and its last words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from specdeck.engine.fingerprint.secrecy import MASK, redact
from specdeck.engine.text import printable

KEPT = 32_768
"""Bytes of what a console wrote last."""
MOST_LINES, LONGEST = 40, 160
MOST_ENDS = 3
"""Consoles whose words are told: what ends one ends the next."""
_LEFT_SCREEN = "\x1b[?1049l"
"""Behind it stands what a console says after its last picture."""
_MOVE = re.compile(r"\x1b\[[0-9;]*[Hf]|[\r\n]+")
_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x1b\\|\x07)|\x1b[ -/]*[0-~]", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class ConsoleEnd:
    """A console that ended by itself."""

    who: str
    code: int
    seconds: float
    """After its start."""
    words: tuple[str, ...]
    """What it said last, or what stood on its last screen."""
    report: tuple[str, ...]
    """The report of its crash; empty without one."""

    def lines(self) -> list[str]:
        """For a result file, as an indented block."""
        told = [f"{self.who} ended with {self.code} after {self.seconds:.0f} s:", ""]
        told += [f"    {line}" for line in (*self.words, *self.report)] or ["    (nothing)"]
        return [*told, ""]


def read_words(written: bytes, secrets: Iterable[str] = ()) -> tuple[str, ...]:
    """The last lines of what a console wrote, as text without `secrets` or credentials.

    >>> read_words(b"\\x1b[?1049h\\x1b[3;1Hpicture\\x1b[?1049l\\r\\nspecdeck: it failed\\r\\n")
    ('specdeck: it failed',)
    >>> read_words(b"\\x1b[1;1H\\x1b[1mk 5\\x1b[0m\\x1b[2;1Htoken=abc", ["k 5"])
    ('***', 'token=***')
    """
    text = written[-KEPT:].decode("utf-8", "replace")
    _, _, after = text.rpartition(_LEFT_SCREEN)
    said = _split(after, secrets) if _LEFT_SCREEN in text else ()
    return said or _split(text, secrets)


def read_report(folder: Path, since: float, secrets: Iterable[str] = ()) -> tuple[str, ...]:
    """The last lines of the newest report of a crash written at or after `since`, Unix seconds;
    none where there is none."""
    found = [path for path in folder.glob("console-*.txt") if path.stat().st_mtime >= since - 1]
    if not found:
        return ()
    newest = max(found, key=lambda path: path.stat().st_mtime)
    with newest.open("rb") as file:
        file.seek(max(0, newest.stat().st_size - KEPT))
        return _split(file.read(KEPT).decode("utf-8", "replace"), secrets)


def _split(text: str, secrets: Iterable[str]) -> tuple[str, ...]:
    plain = _ESCAPE.sub("", _MOVE.sub("\n", text))
    for secret in secrets:
        plain = plain.replace(secret, MASK)
    lines = [printable(redact(line)).rstrip()[:LONGEST] for line in plain.split("\n")]
    return tuple(line for line in lines if line.strip())[-MOST_LINES:]
