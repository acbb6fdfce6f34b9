"""Every error specdeck raises on purpose.

    SpecdeckError
    ├── UsageError            wrong arguments                                   exit 2
    ├── ConfigError           a config that cannot be used: file:line, remedy    exit 2
    └── EngineError           the engine cannot be reached or cannot do it      exit 3
        ├── Unreachable       no answer: refused, reset, timed out
        │   └── Stalled       the server answers, and its engine core does not
        ├── NotAnEngine       an answer, but not from a vLLM server
        ├── Unauthorized      401 or 403: names the key or token that is missing
        ├── BadPage           /metrics answered with something that is not its format
        ├── Unsupported       this engine cannot do it: the reason and the remedy
        ├── Conflict          someone else changed the engine first
        └── StartFailed       the engine's process ended before it was ready

A message is one line that says what happened, where, and what to do.
"""

from __future__ import annotations


class SpecdeckError(Exception):
    """The root: `str(error)` is the one line that a user reads."""

    exit_code = 1

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


class UsageError(SpecdeckError):
    """Arguments that make no sense together or at all."""

    exit_code = 2


class ConfigError(SpecdeckError):
    """A config that cannot be used; the message begins with file:line."""

    exit_code = 2


class EngineError(SpecdeckError):
    """The engine cannot be reached or cannot do what was asked."""

    exit_code = 3


class Unreachable(EngineError):
    """No answer: refused, reset or timed out."""


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


class StartFailed(EngineError):
    """The engine's process ended, or was ended, before it was ready."""
