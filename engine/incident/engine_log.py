"""The end of an engine's log, without credentials, prompts and answers.

vLLM writes requests and answers into its log where it is asked to, and whatever a library prints
lies between its lines. So a line is taken where it is known what kind of line it is: vLLM's own,
uvicorn's, a traceback's or the word of a process that ends. The others are counted.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from specdeck.engine.files import open_file
from specdeck.engine.incident.redaction import WITHHELD, Redactor
from specdeck.engine.text import printable

MOST_BYTES: Final = 2_000_000
"""Of a log that are read, from its end."""
MOST_LINES: Final = 5_000
_LONGEST_LINE: Final = 1_500
_MOST_NOTABLE: Final = 30

_OWN = re.compile(
    r"^(?P<process>\((?:APIServer|EngineCore|Worker|ApiServer|Engine|DPCoordinator)[\w ]*"
    r"(?:pid=\d+)?\)\s)?"
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<when>\d\d-\d\d \d\d:\d\d:\d\d) "
    r"\[(?P<file>[\w./<>-]{1,120}:\d{1,6})\](?P<text>.*)$",
    re.DOTALL,
)
"""`(EngineCore pid=17) INFO 11-22 17:19:32 [core.py:101] …`"""
_ACCESS = re.compile(
    r"^(?P<process>\(\w+ pid=\d+\)\s)?INFO:\s+(?P<client>[\w.:\[\]]+) - "
    r"\"(?P<method>[A-Z]+) (?P<path>/[\w./-]*)(?:\?\S*)? HTTP/[\d.]+\" "
    r"(?P<status>\d{3}[\w ]{0,40})$"
)
_PREFIX = re.compile(r"^\(\w+(?: pid=\d+)?\)\s?")
_FRAME = re.compile(r"^\s+File \"[^\"\n]{1,400}\", line \d+, in [\w<>.]+$")
_TRACEBACK = re.compile(r"^\s*Traceback \(most recent call last\):$")
_RAISED = re.compile(
    r"^(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout))(?::(?P<text>.*))?$"
)
_LAST_WORDS = re.compile(
    r"^(?:Killed|Segmentation fault|Aborted|Fatal Python error|terminate called|Bus error"
    r"|Illegal instruction|!!!!!!! Segfault encountered|Out of memory|oom-kill|Terminated)\b"
)
_REQUESTS = re.compile(
    r"^\s?(?:Received request|Generated response|Request|Added request|Finished request"
    r"|Aborted request) [\w.:-]"
)
"""What is logged of one request."""
_OF_REQUESTS = re.compile(
    r"^(?:\w*pars(?:er|ers|ing)\w*|\w*serving\w*|backend_\w+|api_router|chat_utils|connection|context"
    r"|detokenizer|dump_input|harmony|input_processor|log_response|preprocess|processor|protocol"
    r"|request_logger|validation)\.py:"
)
"""Files whose lines may quote what a request says or is answered, as vLLM 0.32 writes them."""
_HANDLES_REQUESTS = re.compile(
    r"/jinja2/|/vllm/(?:inputs|multimodal|parser|reasoning|renderers|tool_parsers|v1/structured_output"
    r"|entrypoints/.*(?:serving|protocol|preprocess|chat_utils|api_router|handlers|utils))"
)
"""Of a traceback's frames: an error that passes them may quote the request."""


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a log as it can be given to others."""

    lines: tuple[str, ...]
    withheld: int
    """Lines that were left out, as they may hold what requests say."""
    cut: bool
    """Whether there is more of it before."""
    notable: tuple[str, ...]
    """Its last errors, each once."""

    @property
    def text(self) -> str:
        """As a file."""
        return "".join(f"{line}\n" for line in self.lines)


def read_tail(path: Path, *, most: int = MOST_BYTES) -> tuple[str, bool]:
    """The end of a regular file as text, and whether there is more before; raises OSError."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - most))
        data: bytes | None = file.read(most)
    if data is None:  # of the kernel's, which has nothing to read yet
        raise OSError(errno.EINVAL, "not a file with an end", str(path))
    text, is_cut = data.decode("utf-8", "replace"), size > most
    if is_cut:
        text = text.partition("\n")[2]  # the first line has lost its beginning
    return text, is_cut


def clean_log(text: str, redactor: Redactor, *, cut: bool = False) -> LogTail:
    """The lines of a log that are known to be none of a request's."""
    kept: list[str] = []
    notable: dict[str, None] = {}
    reader = _Reader(redactor.hide)
    for line in reader.read(text.replace("\r\n", "\n").split("\n")):
        kept.append(line)
        if _is_notable(line):
            notable[line] = None
    is_cut = cut or len(kept) > MOST_LINES
    lines = tuple(kept[-MOST_LINES:])
    return LogTail(lines, reader.withheld, is_cut, tuple(notable)[-_MOST_NOTABLE:])


def _is_notable(line: str) -> bool:
    """Whether a line tells of an error, or of the end."""
    found = _OWN.match(line)
    if found is not None:
        return found["level"] in ("ERROR", "CRITICAL") and bool(found["text"].strip())
    words = _PREFIX.sub("", line)
    return bool(_RAISED.match(words) or _LAST_WORDS.match(words))


class _Reader:
    def __init__(self, hide: Callable[[str], str]) -> None:
        self._hide = hide
        self.withheld = 0
        self._in_traceback = False
        self._is_of_request = False
        """Whether the traceback passes what handles requests."""

    def read(self, lines: Iterable[str]) -> Iterable[str]:
        for line in lines:
            if not line.strip():
                continue
            found = self._clean(line)
            if found is None:
                self.withheld += 1
            else:
                yield printable(found[:_LONGEST_LINE])

    def _clean(self, line: str) -> str | None:
        if (own := _OWN.match(line)) is not None:
            if _REQUESTS.match(own["text"]):
                return None
            head = line[: own.start("text")]
            quotes = own["level"] == "DEBUG" or bool(_OF_REQUESTS.match(own["file"]))
            inner = self._clean_traced(own["text"].removeprefix(" "), quotes=quotes)
            if inner is not None:
                return f"{head} {inner}"
            if quotes:
                self.withheld += 1
                return f"{head} {WITHHELD}"
            return head + self._hide(own["text"])
        if (access := _ACCESS.match(line)) is not None:
            asked = f'"{access["method"]} {access["path"]}" {access["status"]}'
            return f"{access['process'] or ''}INFO: {access['client']} - {asked}"
        prefix = _PREFIX.match(line)
        head = prefix[0] if prefix is not None else ""
        inner = self._clean_traced(line[len(head) :])
        if inner is not None:
            return f"{head}{inner}"
        return self._hide(line) if _LAST_WORDS.match(line[len(head) :]) else None

    def _clean_traced(self, text: str, *, quotes: bool = False) -> str | None:
        """A line of a traceback; None for any other.

        Its lines of source are left out: one may hold a text, and file and number say which it
        is. So is what an error says that `quotes` a request, or has passed what handles one.
        """
        if _TRACEBACK.match(text):
            self._in_traceback, self._is_of_request = True, quotes
            return text
        if _FRAME.match(text):
            self._in_traceback = True
            self._is_of_request = self._is_of_request or bool(_HANDLES_REQUESTS.search(text))
            return text
        if self._in_traceback and (raised := _RAISED.match(text)) is not None:
            self._in_traceback = False
            said = raised["text"]
            if said is None:
                return text
            if self._is_of_request or quotes:
                self.withheld += 1
                return f"{raised['kind']}: {WITHHELD}"
            return f"{raised['kind']}:{self._hide(said)}"
        if self._in_traceback and not text.startswith(" "):
            self._in_traceback = False
        return None
