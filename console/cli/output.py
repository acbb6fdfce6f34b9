"""How a command speaks: data on stdout, everything else on stderr, and its exit code.

Whatever a command prints is printed here. Names, reasons and errors come from engines, models
and files: what a terminal would obey in them is a dot on it, and a line break is a space, so
that none of them writes a line of its own, and it ends after some thousand characters. What moves
the cursor is written here alone.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO

import click

from specdeck.console.cli.signals import ARRIVAL, Interruption
from specdeck.engine.client.secret import hide_secrets
from specdeck.engine.text import printable

_HAS_DATA = "specdeck.has_data"
_BREAKS = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_LONGEST = 4_000
"""Characters of a line; JSON has all of it."""
_PATIENCE_MS = 500
"""For whoever reads what a command says, until the next look whether it is to end."""
_TERMINAL_PIECE = 64
"""Bytes that a terminal takes at once where it is ready for any: in a write that has it wait, a
signal may go unheard that came as the write began."""
_OVER = "\r\x1b[K"
"""Back to the beginning of the line, which is then empty."""

Taker = Callable[[int, bytes, bool], bool]
"""Is given what a file is to get, and whether that is data; says whether it has it written."""

_takers: list[Taker] = []
"""The last one is given what is printed; none where whoever prints writes it himself."""


def emit(data: object) -> None:
    """One JSON value on one line of ASCII, at once, so that a pipe sees it when it happens."""
    _write(sys.stdout, json.dumps(data) + "\n")
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[_HAS_DATA] = True


def has_data(context: click.Context) -> bool:
    """Whether the command of `context` has emitted anything."""
    return bool(context.meta.get(_HAS_DATA))


def print_lines(*lines: str) -> None:
    """Lines of text on stdout."""
    _write(sys.stdout, "".join(f"{_line(line)}\n" for line in lines))


def print_verdict(data: object, lines: Callable[[], Iterable[str]], *, as_json: bool) -> None:
    """What the exit code tells as well, as JSON or as lines of text.

    Whether anybody reads it or not (`| head -c 0`), it is no error: the exit code is to stay.
    """
    try:
        if as_json:
            emit(data)
        else:
            print_lines(*lines())
    except BrokenPipeError:
        discard_stdout()


def discard_stdout() -> None:
    """What is still to be written goes nowhere: the interpreter would complain at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def log(text: str, *, over: bool = False) -> None:
    """A line for the person; a terminal that has gone away is no reason to fail.

    With `over` it takes the place of what `draw_over` has written.
    """
    with suppress(OSError):
        _write(sys.stderr, f"{_OVER * over}{_line(text)}\n")


def draw_over(text: str) -> None:
    """Progress on a terminal's stderr, over the progress before; the cursor stays behind it."""
    with suppress(OSError):
        _write(sys.stderr, f"{_OVER}{_line(text)}")


def draw_lines(lines: Sequence[str], *, above: int, width: int) -> None:
    """Lines on a terminal's stderr, each cut to `width`, over the `above` ones drawn before."""
    up = f"\x1b[{above}A" if above else ""
    text = "".join(f"{_line(line)[: width - 1]}\x1b[K\n" for line in lines)
    with suppress(OSError):
        _write(sys.stderr, f"{up}\r{text}\x1b[J")


@contextmanager
def divert_to(taker: Taker) -> Iterator[None]:
    """Has `taker` write what is printed within, by any thread of this process."""
    _takers.append(taker)
    try:
        yield
    finally:
        _takers.remove(taker)


class LogLines(logging.Handler):
    """What libraries log, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """One record, without its traceback."""
        log(f"specdeck: {hide_secrets(record.getMessage())}")


def log_what_libraries_say() -> None:
    """From here on warnings of libraries, and what they log, are lines like any other."""
    logging.basicConfig(handlers=[LogLines(logging.WARNING)])
    logging.captureWarnings(True)


def _line(text: str) -> str:
    """`text` as one line that a terminal only shows.

    >>> _line("k 3\\x1b]0;title\\x07\\r\\nspecdeck: k 5")
    'k 3·]0;title· specdeck: k 5'
    """
    cut = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return printable(_BREAKS.sub(" ", cut))


def _write(stream: TextIO, text: str) -> None:
    """Writes at once; what the stream's encoding has no spelling for is a question mark.

    Waits for whoever reads it, a pager or a terminal far away, until a signal has the command
    end: from then on what nobody takes is left out. A command that works meanwhile has it written
    by somebody else.
    """
    # While the console is up, stderr is Textual's stand-in, which has no encoding and no file.
    encoding = getattr(stream, "encoding", None) or "utf-8"
    data = text.encode(encoding, "replace")
    try:
        file = stream.fileno()
    except (OSError, ValueError):  # kept in memory
        file = -1
    if file < 0:
        stream.write(data.decode(encoding))
        stream.flush()
        return
    stream.flush()
    if _takers and _takers[-1](file, data, stream is sys.stdout):
        return
    write_from(bytearray(data), file, is_given_up=lambda: ARRIVAL.has_come)


def write_from(rest: bytearray, file: int, *, is_given_up: Callable[[], bool]) -> None:
    """Writes `rest` and takes from it what is written, also where it raises OSError.

    Waits for whoever reads it until it is given up: then `rest` keeps what nobody has taken.
    """
    ready, is_main = select.poll(), threading.current_thread() is threading.main_thread()
    ready.register(file, select.POLLOUT)
    # A pipe that is ready takes a piece; a terminal may still have it wait, and no line of a
    # pipe's may be cut short, which programs read.
    waits = os.isatty(file)
    piece = _TERMINAL_PIECE if waits else select.PIPE_BUF
    with suppress(Interruption):  # also of one that comes when all is written
        try:
            while rest:
                if is_main:
                    ARRIVAL.is_awaited = True
                # Not without end: a signal that comes as the wait begins does not cut it short.
                if not ready.poll(_PATIENCE_MS):
                    if is_given_up():
                        break
                    continue
                if is_main:
                    ARRIVAL.is_awaited = waits
                del rest[: os.write(file, rest[:piece])]
        finally:
            if is_main:
                ARRIVAL.is_awaited = False
