"""An event loop whose end waits for no thread that hangs.

Names of hosts are looked up in threads, and a name server that is away keeps one for half a minute
and more; so do a driver and a file on a mount that has gone. asyncio's own end waits for them all,
deaf to every signal, and its few threads are soon taken. The standard library only.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from concurrent.futures.thread import ThreadPoolExecutor
from contextlib import closing
from typing import Any, ParamSpec, TypeVar

from specdeck.engine.errors import NoMemory

PATIENCE_S = 2.0
"""At the end of a loop, for what is under way in threads, such as a file that is being written."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """As `asyncio.run`; threads that are under way at the end have `PATIENCE_S` to finish."""
    with closing(work), asyncio.Runner() as runner:  # closed: Python warns of work never begun
        runner.get_loop().set_default_executor(LooseThreads())
        return runner.run(work)


class LooseThreads(ThreadPoolExecutor):
    """Gives each call a thread of its own, which the end of the process does not wait for."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)  # it makes none until it is asked, which it never is
        self._calls: set[Future[Any]] = set()

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Calls `fn` in a new thread; raises NoMemory where there can be none."""
        call: Future[_T] = Future()

        def work() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001  # it belongs to whoever waits for it
                call.set_exception(error)
            else:
                call.set_result(result)

        call.set_running_or_notify_cancel()
        try:
            threading.Thread(target=work, name="loose", daemon=True).start()
        except RuntimeError as error:
            raise NoMemory(
                "cannot start another thread",
                remedy="raise the limits (`ulimit -v`, `ulimit -u`), or end other processes",
            ) from error
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Waits a little for what is under way; every call has begun, so that none is cancelled."""
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        if wait:
            wait_for(tuple(self._calls), timeout=PATIENCE_S)
