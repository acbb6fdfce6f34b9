"""Who makes a change, whatever the environment holds."""

import os

import pytest

from specdeck.console.cli.operator import find_operator


@pytest.mark.parametrize("name", [b"\xff", b"j\xf6rg", b"a\x1b]0;b\x07", b"a\nb", b"x" * 5000])
def test_the_operator_is_text_that_can_be_sent(name: bytes) -> None:
    found = find_operator({"LOGNAME": os.fsdecode(name), "SSH_CONNECTION": "10.0.0.7 51 x 22"})
    assert found.isprintable()
    assert len(found.encode()) <= 1000
