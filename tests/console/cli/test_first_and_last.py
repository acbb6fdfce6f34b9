"""What is seen to before a command's modules are imported."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from specdeck.console.cli.first_and_last import INTERRUPTED, require_clock

WAITS_BLOCKED = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
from specdeck.console.cli.first_and_last import exit_at_signals
exit_at_signals()
print("ready", flush=True)
signal.sigtimedwait((), 60)
"""


def test_a_clock_that_python_cannot_tell_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    def wall() -> float:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    with pytest.raises(SystemExit) as ended:
        require_clock(wall)
    assert ended.value.code == 2
    said = "specdeck: the clock of this machine is beyond the year 2262: set it\n"
    assert capfd.readouterr() == ("", said)
    require_clock()


def test_a_signal_that_the_parent_blocks_ends_the_command() -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS_BLOCKED], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == INTERRUPTED
