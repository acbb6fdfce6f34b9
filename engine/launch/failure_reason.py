"""Why an engine did not start: the one line of its log that says it."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from specdeck.engine.fingerprint.secrecy import redact

Mask = Callable[[str], str]
"""Takes secrets out of a text."""

_PREFIX = re.compile(r"^\(([\w-]+) pid=\d+\) (?=\S|$)")
"""`(EngineCore pid=17) `: vLLM's processes share one log."""
_STAMP = re.compile(r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:.,]+ \[[^\]]*\] ?")
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")
_USAGE = re.compile(r"^[\w.-]+: error: (.+)")
_TRACEBACK = "Traceback (most recent call last):"
_CAUSED = "The above exception was the direct cause of the following exception:"

_ECHOES = (
    "See root cause above",
    "See stack trace for root cause",
    "Engine core initialization failed",
    "EngineCore encountered an issue",
    "Engine process failed to start",
    "cancelled",
)
"""What one process says because another one failed."""

_KILLED = re.compile(r"Failed core proc\(s\): \{[^}]*?'([\w-]{1,60})': -(\d{1,3})\b")
"""In one of them, of a core that had no time to say anything: its name, and the signal."""

_SAYS_LITTLE = ("KeyError", "AttributeError", "IndexError", "StopIteration", "TypeError")
"""As a cause these are an accident of code; what was raised from them tells more."""

_PLAIN = ("ValueError", "RuntimeError", "Exception", "ValidationError")
"""Classes whose name adds nothing to the message."""

_LONGEST = 2_000
"""Characters of a message that are looked at: a line of a log may be a megabyte, and the meanings
below take the square of it."""

_LONGEST_READ = 20_000
"""Characters of it that are searched for credentials, which takes seconds for a megabyte."""

_MEANINGS = (
    (re.compile(r"Worker failed with error '(.*)', please check the stack trace"), "{0}"),
    (
        re.compile(r"Repo id must be in the form.*?: '([^']*)'"),
        "no model at {0}: neither a folder nor a Hugging Face repository",
    ),
    (
        re.compile(r"operator torchvision::nms does not exist"),
        "the installed torchvision does not fit this torch: uninstall torchvision, torchaudio "
        "and torchcodec",
    ),
    (
        re.compile(r"\[Errno 98\]"),
        "the port is taken: another process listens on it",
    ),
)


@dataclass(frozen=True, slots=True)
class _Raised:
    """One traceback: what it ended with."""

    at: int
    """The line of the log on which it ended."""
    name: str
    message: str
    place: str
    """The innermost frame, for an exception without words."""
    caused_by: _Raised | None


def find_reason(log: str, exit_code: int | None = None, mask: Mask = str) -> str:
    """The engine's own reason, in one line.

    The last thing raised counts, unless it only echoes another process; from there
    back along "direct cause" to where the trouble began. A plugin that vLLM skipped
    is no reason. Holds no credential: `mask` takes known ones out, wherever they are quoted.

    >>> find_reason("INFO 01-01 00:00:00 [a.py:1] hello\\napi_server.py: error: unrecognized --x")
    'unrecognized --x'
    >>> find_reason("", exit_code=-9)
    'it was killed by SIGKILL: perhaps the machine ran out of memory'
    """

    def hide(text: str) -> str:  # vLLM quotes the argument that it refuses
        return redact(mask(text[:_LONGEST_READ]))

    return hide(_find_reason(log, exit_code, hide))


def _find_reason(log: str, exit_code: int | None, hide: Mask) -> str:
    lines = log.splitlines()
    for line in reversed(lines):
        if usage := _USAGE.match(line):
            return _brief(hide(usage.group(1).strip()))
    found = list(_tracebacks(lines, hide))
    if raised := [r for r in found if not _echo(r.message)]:
        return _describe(_root(max(raised, key=lambda r: r.at)))
    if exit_code is not None and exit_code < 0:
        return _describe_signal("it", -exit_code)
    for one in found:
        if killed := _KILLED.search(one.message):
            return _describe_signal(killed[1], int(killed[2]))
    return _last_words(lines, exit_code, hide)


def _describe_signal(process: str, number: int) -> str:
    if number == signal.SIGKILL:
        return f"{process} was killed by SIGKILL: perhaps the machine ran out of memory"
    return f"{process} was ended by {_name_signal(number)}"


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal, most of which have no name
        return f"signal {number}"


def _root(raised: _Raised) -> _Raised:
    cause = raised.caused_by
    while cause is not None and cause.name not in _SAYS_LITTLE and not _echo(cause.message):
        raised, cause = cause, cause.caused_by
    return raised


def _describe(raised: _Raised) -> str:
    for pattern, meaning in _MEANINGS:
        if found := pattern.search(raised.message):
            return meaning.format(*found.groups())
    short, message = raised.name.rpartition(".")[2], _brief(raised.message)
    if not message:
        return f"{short} at {raised.place}" if raised.place else short
    message = message.removesuffix(".")
    return message if short in _PLAIN else f"{short}: {message}"


def _brief(message: str, limit: int = 240) -> str:
    """Whole sentences up to `limit` characters; the log has the rest.

    >>> _brief("No. " + "x" * 300)
    'No.'
    """
    if len(message) <= limit:
        return message
    end = message.rfind(". ", 0, limit)
    return message[: end + 1] if end > 0 else f"{message[: limit - 1]}…"


def _echo(message: str) -> bool:
    return any(echo in message for echo in _ECHOES)


def _last_words(lines: Sequence[str], exit_code: int | None, hide: Mask) -> str:
    """The last line of vLLM's own; others are chatter of libraries."""
    told = [line for line in lines if line.strip()]
    own = [line for line in told if _PREFIX.match(line) or _STAMP.match(line)]
    code = "" if exit_code is None else f" with exit code {exit_code}"
    if not told:
        return f"it ended{code} without any output"
    return f"it ended{code} after: {_brief(hide(_bare((own or told)[-1]).strip()))}"


def _bare(line: str) -> str:
    return _STAMP.sub("", _PREFIX.sub("", line))


def _tracebacks(lines: Sequence[str], hide: Mask) -> Iterator[_Raised]:
    """Every traceback of the log, each process's lines read apart from the others'."""
    streams: dict[str, list[tuple[int, str]]] = {}
    for number, line in enumerate(lines):
        prefix = _PREFIX.match(line)
        streams.setdefault(prefix.group(0) if prefix else "", []).append((number, _bare(line)))
    for stream in streams.values():
        yield from _of_one(stream, hide)


def _of_one(stream: Sequence[tuple[int, str]], hide: Mask) -> Iterator[_Raised]:
    index, previous, chained = 0, None, False
    while index < len(stream):
        text = stream[index][1]
        if text.startswith(_CAUSED):
            chained = True
        elif text.startswith(_TRACEBACK):
            skipped = index > 0 and "Failed to load plugin" in stream[index - 1][1]
            index, found = _one(stream, index + 1, previous if chained else None, hide)
            chained = False
            if found is not None and not skipped:
                previous = found
                yield found
            continue
        index += 1


def _one(
    stream: Sequence[tuple[int, str]], index: int, cause: _Raised | None, hide: Mask
) -> tuple[int, _Raised | None]:
    """Reads one traceback from after its heading; returns where it ended and what it said."""
    place: list[str] = []
    while index < len(stream) and (stream[index][1].startswith(" ") or not stream[index][1]):
        place.append(stream[index][1].strip())
        index += 1
    if index == len(stream):
        return index, None
    number, text = stream[index]
    found = _EXCEPTION.match(text)
    if found is None:
        return index, None
    message = hide(found.group(2) or "")[:_LONGEST]  # a cut hides what tells a credential
    if "validation error" in message and index + 1 < len(stream):
        # pydantic: a count, then the indented details
        detail = next((t.strip() for _, t in stream[index + 1 : index + 4] if t[:1] == " "), "")
        detail = re.sub(r" \[type=.*", "", hide(detail)[:_LONGEST])
        message = detail.removeprefix("Value error, ") or message
    return index + 1, _Raised(number, found.group(1), message.strip(), _frame(place), cause)


def _frame(lines: Sequence[str]) -> str:
    """`assert k == K (ngram.py:12)` from the last frame of a traceback."""
    for number in range(len(lines) - 1, -1, -1):
        if found := re.match(r'File "([^"]+)", line (\d+)', lines[number]):
            code = lines[number + 1] if number + 1 < len(lines) else ""
            where = f"{found.group(1).rpartition('/')[2]}:{found.group(2)}"
            return f"{code} ({where})" if code else where
    return ""
