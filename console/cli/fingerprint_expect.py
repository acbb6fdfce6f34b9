"""`--expect`: what an engine is compared with, a pin's file or a name."""

from __future__ import annotations

from pathlib import Path

import click

from specdeck.engine.errors import UsageError


def named(
    _context: click.Context, _parameter: click.Parameter, given: str | Path | None
) -> str | Path | None:
    """What was given to `--expect`; raises UsageError for the empty string."""
    # An unset variable of a script must not come to mean the default pin.
    if given is not None and str(given).strip() in ("", "."):
        raise UsageError("--expect names no file", remedy="leave it out for the engine's own pin")
    return given


expect_option = click.option(
    "--expect",
    metavar="F",
    callback=named,
    help="A pin's file, or a name such as sd1:p0f3a… (no sd1:x…); default: the pin.",
)


def is_file(side: str) -> bool:
    """Whether one side of a diff is a pin's file and not an engine.

    >>> is_file("prod.json"), is_file("pins/prod"), is_file("http://h:1/a"), is_file("h:1/v1")
    (True, True, False, False)
    """
    if "://" in side:
        return False
    first, separator, _ = side.partition("/")
    looks = side.endswith(".json") or (bool(separator) and ":" not in first)
    return looks or Path(side).is_file()


def is_name(expect: str) -> bool:
    """Whether `expect` is a name and not a file.

    Raises UsageError for a part of a name, and for a behaviour's: equal answers have several.
    """
    from specdeck.engine.fingerprint.name import is_name as is_whole
    from specdeck.engine.fingerprint.name import layer_of, own_part

    if "sd1:" in expect and not is_whole(expect):
        raise UsageError(f"{expect!r} is no whole name", remedy="give all 16 digits of it")
    if layer_of(own_part(expect)) == "behaviour":
        raise UsageError(
            "a behaviour's name is of rounded values, and may move when nothing did",
            remedy="give a pin's file: it carries the tolerance",
        )
    return is_whole(expect)
