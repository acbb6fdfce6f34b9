"""Every error specdeck raises on purpose.

    SpecdeckError
    ├── UsageError            wrong arguments                                   exit 2
    ├── ConfigError           a file that cannot be used: its place, a remedy    exit 2
    │   └── ConfigErrors      several of them in one config                     exit 2
    ├── NoMemory              the system does not let specdeck have the memory   exit 3
    └── EngineError           the engine cannot be reached or cannot do it      exit 3
        ├── Unreachable       no answer: refused, reset, timed out
        │   └── Stalled       the server answers, and its engine core does not
        ├── NotAnEngine       an answer, but not from a vLLM server
        ├── Unauthorized      401 or 403: names the key or token that is missing
        ├── BadPage           /metrics answered with something that is not its format
        ├── Unsupported       this engine cannot do it: the reason and the remedy
        ├── Conflict          someone else changed the engine first
        ├── LeftTurned        what was turned for a while could not be taken back
        └── StartFailed       the engine's process ended before it was ready

A message is one line that says what happened, where, and what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class SpecdeckError(Exception):
    """The root: `str(error)` is the one line that a user reads."""

    exit_code = 70
    """EX_SOFTWARE of sysexits.h: an error of no kind must not be taken for a check that failed."""

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy
        """What to do about it, as an imperative; None when there is nothing to add."""

    def line(self) -> str:
        """Message and remedy on one line.

        >>> SpecdeckError("port 8000 is taken", remedy="choose another with --port").line()
        'port 8000 is taken: choose another with --port'
        """
        message = " ".join(str(self).split())
        return f"{message}: {self.remedy}" if self.remedy else message

    def as_json(self) -> dict[str, Any]:
        """Plain values, for a script."""
        return {"message": str(self), "remedy": self.remedy, "exit_code": self.exit_code}


class UsageError(SpecdeckError):
    """Arguments that make no sense together or at all."""

    exit_code = 2


class NoMemory(SpecdeckError):
    """The system does not let this process have the memory that it requires."""

    exit_code = 3


_NO_THREAD = ("can't start new thread", "cannot join thread before it is started")
"""Python has no exception of its own for these; the second comes of clearing up after the first."""
_NO_ROOM = ("failed to map segment from shared object", "cannot allocate memory")
"""Nor for a library that finds no memory to be loaded into: glibc's words."""


def find_shortage(error: BaseException) -> SpecdeckError | None:
    """The error of a process that gets no more memory, thread or open file; None for any other.

    >>> print(find_shortage(RuntimeError("can't start new thread")))
    out of memory
    >>> print(find_shortage(OSError(errno.EMFILE, "Too many open files")))
    too many open files
    >>> find_shortage(RuntimeError("the loop is closed")) is None
    True
    """
    if isinstance(error, NoMemory):
        return error
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return UsageError("too many open files", remedy="raise the limit (ulimit -n)")
    is_memory = (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and str(error) in _NO_THREAD)
        or (isinstance(error, ImportError) and any(words in str(error) for words in _NO_ROOM))
    )
    if not is_memory:
        return None
    return NoMemory("out of memory", remedy="raise the limit (`ulimit -v`), or end other processes")


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a file.

    >>> str(Place(Path("a.yaml"), 3, ("sampling", "top_p"))), str(Place(Path("a.yaml")))
    ('a.yaml:3', 'a.yaml')
    """

    path: Path
    line: int | None = None
    """From 1; None where it concerns the whole file."""
    keys: tuple[str, ...] = ()
    """The way to the value: `("speculative_config", "method")`."""

    def __str__(self) -> str:
        return str(self.path) if self.line is None else f"{self.path}:{self.line}"


class ConfigError(SpecdeckError):
    """A file that cannot be used; `str(error)` begins with its place where that is known."""

    exit_code = 2

    def __init__(
        self, message: str, *, place: Place | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(message if place is None else f"{place}: {message}", remedy=remedy)
        self.message = message
        """What is wrong, without the place."""
        self.place = place

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """Every error there is to mend: this one, or the ones that it stands for."""
        return (self,)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for a script, with the place of every error."""
        return {**SpecdeckError.as_json(self), "errors": [_as_json(error) for error in self.errors]}


class ConfigErrors(ConfigError):
    """Several errors of one config, by line; it reads like the first of them."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        first = errors[0]
        super().__init__(first.message, place=first.place, remedy=first.remedy)
        self._errors = tuple(errors)

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """The errors it stands for."""
        return self._errors


def _as_json(error: ConfigError) -> dict[str, Any]:
    place = error.place
    return {
        "path": str(place.path) if place else None,
        "line": place.line if place else None,
        "keys": list(place.keys) if place else [],
        "message": error.message,
        "remedy": error.remedy,
    }


class EngineError(SpecdeckError):
    """The engine cannot be reached or cannot do what was asked."""

    exit_code = 3


class Unreachable(EngineError):
    """No answer: refused, reset or timed out."""


class NoReply(Unreachable):
    """The request was sent, and no answer came: what it asks for may have been done."""


class Stalled(Unreachable):
    """The server answers and its engine core does not: a pause, so far."""


class NotAnEngine(EngineError):
    """Something answers, but it is not a vLLM server."""


class Unauthorized(EngineError):
    """The engine wants a key or a token that was not given or is wrong."""


class BadPage(EngineError):
    """The metrics page is cut short or is not in Prometheus' text format."""


class Unsupported(EngineError):
    """This engine cannot do it; `remedy` says what would have to change."""


class Conflict(EngineError):
    """The engine's control state changed since it was last read."""


class LeftTurned(EngineError):
    """What was turned for a while could not be taken back, or may not have been."""

    exit_code = 1


class StartFailed(EngineError):
    """The engine's process ended, or was ended, before it was ready."""
