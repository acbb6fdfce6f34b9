"""What a command prints beside its work: it waits for whoever reads it, and the work does not.

A terminal that Ctrl-S has stopped, a pager in which nobody pages and a line that is down take
nothing for as long as they like; a disk is full, and has room again.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from specdeck.console.cli.output import divert_to, log, write_from
from specdeck.engine.text import format_count

MOST_BYTES = 4 << 20
"""That wait for a reader: samples of an hour, one a second."""
LAST_LINES_S = 2.0
"""For what waits when the work has come to its end."""
_LAST_NOTICE_S = 0.5
"""For what is said then of lines that were left out."""
_LOOK_S = 0.02
"""Between two looks whether all is written."""

_T = TypeVar("_T")


async def work_beside_output(
    work: Coroutine[Any, Any, _T],
    *,
    ends_at: tuple[type[OSError], ...] = (),
    patience_s: float | None = LAST_LINES_S,
) -> _T:
    """Runs `work`, which waits for no reader of what it prints and ends for none that has gone.

    Once stdout cannot be written for one of the reasons in `ends_at`, the work is cancelled and
    that is raised; any other is said on stderr, and what is printed is left out meanwhile. When
    the work has ended, what nobody has taken yet is awaited for `patience_s`; None awaits it until
    this is cancelled.
    """
    loop, working = asyncio.get_running_loop(), asyncio.ensure_future(work)

    def end() -> None:
        with suppress(RuntimeError):  # the loop has ended itself
            loop.call_soon_threadsafe(working.cancel)

    queues = PrintQueues(
        on_notice=lambda text: log(f"specdeck: {text}"), ends_at=ends_at, on_end=end
    )
    with divert_to(queues.take):
        try:
            try:
                await asyncio.wait({working})
            except asyncio.CancelledError:
                working.cancel()
                await asyncio.wait({working})
                patience_s = LAST_LINES_S
                if working.cancelled() or working.exception() is None:
                    raise
            finally:
                await queues.finish(patience_s)
        finally:
            queues.close()
    if queues.failure is not None:
        raise queues.failure
    return working.result()


@dataclass(frozen=True, slots=True)
class Text:
    """Some lines on their way to a file."""

    content: bytes
    is_data: bool
    """Whether it is for stdout, where the command may end of its not arriving."""

    @property
    def lines(self) -> int:
        """Those that end in it; progress that is drawn over has none."""
        return self.content.count(b"\n")


class PrintQueue:
    """Texts for one file, written in their order by a thread of its own.

    Where nobody takes them, the oldest beyond MOST_BYTES are left out. Where the file cannot be
    written, what comes is left out until it can be.
    """

    def __init__(
        self,
        file: int,
        name: str,
        *,
        on_notice: Callable[[str], None],
        on_failure: Callable[[OSError], bool],
    ) -> None:
        """Begins the thread, which calls `on_notice` with a line for the person, and `on_failure`
        with why data was not written, which says whether the command ends of it.

        Raises RuntimeError where there is no memory for a thread.
        """
        self.has_data = False
        """Whether it was given any data so far."""
        self._file = file
        self._name = name
        self._on_notice = on_notice
        self._on_failure = on_failure
        self._changes = threading.Condition()
        self._waiting: deque[Text] = deque()
        self._size = 0
        """Bytes of those."""
        self._written: Text | None = None
        """The one that is being written."""
        self._left_out = 0
        """Lines since it was last said how many."""
        self._trouble: str | None = None
        """Why the file could not be written the last time; None where it could."""
        self._unfinished = b""
        """Of a text that the file had room for a part of: the rest comes before all else, as half
        a line would spoil a recording."""
        self._is_closed = False
        threading.Thread(target=self._run, name=f"print to {name}", daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether nothing is awaited any more."""
        with self._changes:
            return self._is_closed or (not self._waiting and self._written is None)

    def add(self, text: Text) -> None:
        """Has a text written after those before it."""
        with self._changes:
            if self._is_closed:
                return
            self.has_data = self.has_data or text.is_data
            self._waiting.append(text)
            self._size += len(text.content)
            while self._size > MOST_BYTES and len(self._waiting) > 1:
                self._left_out += self._pop().lines
            self._changes.notify()

    def close(self, *, is_told: bool) -> None:
        """Ends the thread; what still waits is left out, and how much that is may be told."""
        with self._changes:
            if self._is_closed:
                return
            self._is_closed = True
            unwritten = (*self._waiting, *((self._written,) if self._written is not None else ()))
            left = self._left_out + sum(text.lines for text in unwritten)
            self._changes.notify()
        if left and is_told:
            self._on_notice(f"{_left_out(left)} of {self._name}")

    def _run(self) -> None:
        while True:
            with self._changes:
                self._changes.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    return
                text = self._written = self._pop()
            notice = self._write(text)
            if notice is not None:
                self._on_notice(notice)
            with self._changes:
                self._written = None

    def _pop(self) -> Text:
        text = self._waiting.popleft()
        self._size -= len(text.content)
        return text

    def _write(self, text: Text) -> str | None:
        """Writes one text; what there is to say of it."""
        rest = bytearray(self._unfinished + text.content)
        try:
            write_from(rest, self._file, is_given_up=lambda: self._is_closed)
        except OSError as error:
            is_begun = len(rest) < len(text.content)
            self._unfinished = bytes(rest if is_begun else rest[: len(rest) - len(text.content)])
            return self._fail(text, error, lines=0 if is_begun else text.lines)
        self._unfinished = b""
        return None if rest else self._recover()

    def _fail(self, text: Text, error: OSError, *, lines: int) -> str | None:
        reason = (error.strerror or type(error).__name__).lower()
        if text.is_data and self._on_failure(error):
            return None
        with self._changes:
            self._left_out += lines
            is_known, self._trouble = reason == self._trouble, reason
        if is_known:
            return None
        return f"{self._name} cannot be written: {reason}; what is printed is left out meanwhile"

    def _recover(self) -> str | None:
        """Says what was left out, once whoever reads has all the rest."""
        with self._changes:
            if self._waiting or not (self._left_out or self._trouble):
                return None
            left, trouble = self._left_out, self._trouble
            self._left_out, self._trouble = 0, None
        how = "is read again" if trouble is None else "is written again"
        return f"{self._name} {how}: {_left_out(left)}"


def _left_out(count: int) -> str:
    """How much is missing.

    >>> _left_out(1), _left_out(12)
    ('1 line was left out', '12 lines were left out')
    """
    return f"{format_count(count, 'line')} {'was' if count == 1 else 'were'} left out"


class PrintQueues:
    """The queues of a command, one for each file that it prints to.

    A terminal is one file, whichever stream leads there: its lines keep their order.
    """

    def __init__(
        self,
        *,
        on_notice: Callable[[str], None],
        ends_at: tuple[type[OSError], ...],
        on_end: Callable[[], None],
    ) -> None:
        """`on_end` is called, by another thread, once data fails with one of `ends_at`."""
        self.failure: OSError | None = None
        """Why data cannot be written, where the command ends of it."""
        self._on_notice = on_notice
        self._ends_at = ends_at
        self._on_end = on_end
        self._lock = threading.Lock()
        self._queues: dict[tuple[int, int], PrintQueue | None] = {}
        """By device and inode; None where there was no memory for a thread."""

    def take(self, file: int, content: bytes, is_data: bool) -> bool:
        """Has something written; False where there is no memory for a thread to do so.

        Raises OSError where it is known that the command ends of it.
        """
        if is_data and self.failure is not None:
            raise self.failure
        if (queue := self._find(file, "stdout" if is_data else "stderr")) is None:
            return False
        queue.add(Text(content, is_data))
        return True

    async def finish(self, patience_s: float | None) -> None:
        """Waits until all is written, for so long at most, and ends the queues.

        None waits until it is cancelled.
        """
        await self._drain(patience_s)
        self._close_data()  # what is said of those goes to the others
        await self._drain(_LAST_NOTICE_S)
        self.close()

    def close(self) -> None:
        """Ends the queues at once; what nobody has taken is left out."""
        for queue in self._open():
            queue.close(is_told=self.failure is None)

    def _close_data(self) -> None:
        for queue in self._open():
            if queue.has_data:
                queue.close(is_told=self.failure is None)

    async def _drain(self, patience_s: float | None) -> None:
        ends = None if patience_s is None else time.monotonic() + patience_s
        while not all(queue.is_done for queue in self._open()):
            if self.failure is not None:
                self._close_data()
            if ends is not None and time.monotonic() > ends:
                return
            await asyncio.sleep(_LOOK_S)

    def _find(self, file: int, name: str) -> PrintQueue | None:
        found = os.fstat(file)
        key = (found.st_dev, found.st_ino)
        with self._lock:
            if key not in self._queues:
                self._queues[key] = None
                with suppress(RuntimeError):
                    self._queues[key] = PrintQueue(
                        file, name, on_notice=self._on_notice, on_failure=self._fail
                    )
            return self._queues[key]

    def _open(self) -> list[PrintQueue]:
        with self._lock:
            return [queue for queue in self._queues.values() if queue is not None]

    def _fail(self, error: OSError) -> bool:
        if not isinstance(error, self._ends_at):
            return False
        if self.failure is None:
            self.failure = error
            self._on_end()
        return True
