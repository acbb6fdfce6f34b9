"""Signals end a command's work in order, whatever the command is."""

import asyncio
import os
import signal

import pytest

from specdeck.console.cli.common import until_signal
from specdeck.console.cli.output import INTERRUPTED


async def stopped(number: signal.Signals, *, tidied: Exception | None = None) -> int:
    """Work that a signal ends, and that may fail at tidying up."""
    os.kill(os.getpid(), number)
    try:
        await asyncio.Event().wait()
    finally:
        if tidied is not None:
            raise tidied
    return 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_the_work_and_how_things_stand_is_said(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await until_signal(stopped(number), on_interrupt=lambda: "k is 3")
    assert code == INTERRUPTED
    assert capsys.readouterr().err == "specdeck: interrupted: k is 3\n"


async def test_work_that_ends_by_itself_has_its_own_code() -> None:
    async def work() -> int:
        return 1

    assert await until_signal(work(), on_interrupt=lambda: "never said") == 1


async def test_what_fails_at_tidying_up_is_not_lost() -> None:
    with pytest.raises(OSError, match="k is not given back"):
        await until_signal(stopped(signal.SIGTERM, tidied=OSError("k is not given back")))
