"""The canary's units name a command that exists, with options that it has."""

from __future__ import annotations

import shlex
from configparser import ConfigParser
from pathlib import Path

from specdeck.console.cli.check import command

FOLDER = Path(__file__).parents[3] / "sample_configs" / "systemd"


def test_the_service_calls_check_with_options_it_has() -> None:
    unit = ConfigParser(interpolation=None, strict=False)
    unit.read(FOLDER / "specdeck-check.service")
    program, *words = shlex.split(unit["Service"]["ExecStart"].replace("%%", "%"))
    assert program.endswith("/specdeck")
    assert words.pop(0) == "check"
    context = command.make_context("check", [word.replace("%h", "/tmp") for word in words])
    assert context.params["gentle"]
    assert context.params["private"]
    assert context.params["max_mismatch"] == 0.015


def test_the_timer_wants_the_service_of_its_name() -> None:
    timer = ConfigParser(interpolation=None)
    timer.read(FOLDER / "specdeck-check.timer")
    assert timer["Timer"]["OnCalendar"]
    assert (FOLDER / "specdeck-check.service").exists()
