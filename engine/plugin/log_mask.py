"""Masks credentials in everything that a process of the engine logs, prints or raises.

vLLM logs its arguments as it starts, and tracebacks quote them: those that Python writes to stderr,
and those that logging adds to a record. What C code writes by itself is not masked. An engine that
has a secret among them is told by a variable, so that no other pays for looking through every line.

A credential is known by the name before it, and as itself: each process reads the values as it
starts, while the file of the arguments is there.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from specdeck.engine.fingerprint.secrecy import redact
from specdeck.engine.plugin.secret_values import make_mask, measure_longest, read_values
from specdeck.engine.protocol.messages import MASK_VARIABLE

_MASKS = "_specdeck_masks"
_ACCESS_LINE = "uvicorn.access", '%s - "%s %s HTTP/%s" %d'
"""Logger and message: client, method, path, version and status (uvicorn/protocols/http)."""
_LONGEST = 65_536
"""Characters of a text that are looked at, and shown."""
_LONGEST_SERVED, _LONGEST_ARGUMENT = 4_096, 2_048
"""The same of a message of an engine that is ready, and of one of its arguments: vLLM logs what
clients ask for, in the one thread that answers them. What it was started with, which is longer, it
has logged by then."""


def mask_logs(environment: Mapping[str, str] = os.environ) -> None:
    """Has every record of this process made without credentials, and so all that is written to
    stdout and stderr, where that is asked for.

    Safe to call again.
    """
    make = logging.getLogRecordFactory()
    if MASK_VARIABLE not in environment or hasattr(make, _MASKS):
        return
    mask = _Mask(Path(environment[MASK_VARIABLE]))

    def make_masked(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        try:
            if isinstance(record.args, tuple):
                record.args = tuple(map(mask.shorten_argument, record.args))
            said = record.getMessage()
            masked = mask.mask_message(said)
        except Exception as error:  # noqa: BLE001  # whatever an argument's own words raise
            # Logging would show the arguments one by one, where nothing tells a secret.
            said = (
                mask.mask_text(record.msg)
                if isinstance(record.msg, str)
                else type(record.msg).__name__
            )
            masked = f"{said} (no words came of its arguments: {type(error).__name__})"
        if masked != said:
            record.msg, record.args = _mask_arguments(record, masked, mask.mask_message)
        return record

    setattr(make_masked, _MASKS, True)
    logging.setLogRecordFactory(make_masked)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by whoever started the engine
            _mask_stream(stream, mask.mask_text)


class _Mask:
    """What takes an engine's credentials out of what its process says."""

    def __init__(self, file: Path) -> None:
        """`file` has the values among them; it is gone once the engine is ready."""
        values = read_values(file)
        self._file = file
        self._mask_values, self._longest_value = make_mask(values), measure_longest(values)

    def mask_text(self, text: str, longest: int = _LONGEST) -> str:
        """`text` without credentials, and with a note of what is beyond `longest` characters."""
        shown, note = self._cut(text, longest)
        return redact(shown) + note

    def mask_message(self, text: str) -> str:
        """The same for a message, of which less is shown once the engine is ready."""
        is_long = len(text) > _LONGEST_SERVED
        return self.mask_text(text, _LONGEST_SERVED if is_long and self._is_ready() else _LONGEST)

    def shorten_argument(self, argument: object) -> object:
        """An argument of such a message, which is masked with it once more."""
        if isinstance(argument, str) and len(argument) > _LONGEST_ARGUMENT and self._is_ready():
            return self.mask_text(argument, _LONGEST_ARGUMENT)
        return argument

    def _is_ready(self) -> bool:
        return not self._file.exists()

    def _cut(self, text: str, longest: int) -> tuple[str, str]:
        """At most `longest` characters of `text` without the values, and a note of what is beyond.

        A name in what is shown masks what stands behind it up to the cut, and not the note.
        """
        looked = longest + self._longest_value
        shown = self._mask_values(text[:looked])
        if len(text) > looked:  # of a value that goes on there, the part before is not known
            shown = shown[: max(0, len(shown) - self._longest_value)]
        elif len(shown) <= longest:
            return shown, ""
        shown = shown[:longest]
        end = "\n" if text.endswith("\n") else ""
        return shown, f"… ({len(text) - len(shown)} more characters){end}"


def _mask_arguments(
    record: logging.LogRecord, masked: str, mask: Callable[[str], str]
) -> tuple[Any, tuple[object, ...]]:
    """Message and arguments where masking each of these is enough, otherwise the `masked` message.

    What formats and filters the access log of uvicorn takes its arguments apart, and fails without
    them: of its line a name at the end of one has no value in the next.
    """
    if not isinstance(record.args, tuple):
        return masked, ()
    args = tuple(mask(one) if isinstance(one, str) else one for one in record.args)
    try:
        is_enough = str(record.msg) % args == masked
    except Exception:  # noqa: BLE001  # whatever an argument's own words raise
        return masked, ()
    is_access = (record.name, record.msg) == _ACCESS_LINE
    return (record.msg, args) if is_enough or is_access else (masked, ())


def _mask_stream(stream: TextIO, mask: Callable[[str], str]) -> None:
    """Has what is written to `stream` from now on written without credentials.

    By its method, as vLLM puts the process's name before each line: what was handed out before,
    to a handler of logging for one, is the same stream.
    """
    write = stream.write

    def write_masked(text: str) -> int:
        write(mask(text))
        return len(text)

    stream.write = write_masked  # type: ignore[method-assign]
