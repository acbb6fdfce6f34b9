"""What is seen to before a command's modules are imported."""

from __future__ import annotations

import pytest

from specdeck.console.cli.first_and_last import require_clock


def test_a_clock_that_python_cannot_tell_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    def wall() -> float:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    with pytest.raises(SystemExit) as ended:
        require_clock(wall)
    assert ended.value.code == 2
    said = "specdeck: the clock of this machine is beyond the year 2262: set it\n"
    assert capfd.readouterr() == ("", said)
    require_clock()
