"""Writing to a terminal that stalls, or is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Event

import pytest

from specdeck.console.terminal.output import BEHIND, TerminalOutput

PATIENCE_S = 60.0
MORE_THAN_A_PIPE = "x" * 100_000


class Pipe:
    """A terminal of two ends, and what is told of it."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self.hangup, self.caught_up = Event(), Event()
        self.output = TerminalOutput(
            self.writer, on_hangup=self.hangup.set, on_catch_up=self.caught_up.set
        )
        self.output.start()

    def stall(self) -> None:
        """Has more written than fits."""
        for _ in range(BEHIND + 2):
            self.output.write(MORE_THAN_A_PIPE)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe in place of a terminal."""
    opened = Pipe()
    yield opened
    os.close(opened.reader)
    opened.output.stop()
    opened.output.join(PATIENCE_S)
    os.close(opened.writer)


def test_what_is_written_arrives_in_order(pipe: Pipe) -> None:
    pipe.output.write("one ")
    pipe.output.write("twö")
    found = b""
    while len(found) < 8:
        found += os.read(pipe.reader, 100)
    assert found.decode() == "one twö"
    assert not pipe.output.is_behind
    assert not pipe.caught_up.is_set()


def test_a_stalled_terminal_holds_nobody_up_and_catches_up(pipe: Pipe) -> None:
    pipe.stall()
    assert pipe.output.is_behind
    left = (BEHIND + 2) * len(MORE_THAN_A_PIPE)
    while left:
        left -= len(os.read(pipe.reader, 65536))
    assert pipe.caught_up.wait(PATIENCE_S)
    assert not pipe.output.is_behind


def test_a_terminal_that_is_gone_is_reported_once() -> None:
    calls: list[str] = []
    gone, writer = os.pipe()
    output = TerminalOutput(
        writer, on_hangup=lambda: calls.append("gone"), on_catch_up=lambda: None
    )
    output.start()
    os.close(gone)
    output.write("one")
    output.write("two")
    output.stop()
    os.close(writer)
    assert calls == ["gone"]


def test_the_end_of_an_idle_terminal_is_noticed() -> None:
    master, slave = os.openpty()
    hangup = Event()
    output = TerminalOutput(slave, on_hangup=hangup.set, on_catch_up=lambda: None)
    output.start()
    os.close(master)
    assert hangup.wait(PATIENCE_S)
    output.stop()
    os.close(slave)


def test_a_stalled_terminal_does_not_keep_it_from_stopping(pipe: Pipe) -> None:
    pipe.stall()
    pipe.output.stop()  # returns
    assert pipe.output.is_alive()


def test_output_whose_thread_could_not_be_started_ends_at_once() -> None:
    output = TerminalOutput(2, on_hangup=lambda: None, on_catch_up=lambda: None)
    output.write("nobody writes it")
    output.stop()
    assert not output.is_alive()
