"""What an engine with a secret among its arguments logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from specdeck.engine.plugin.log_mask import mask_logs

ASKED = {"SPECDECK_MASK_LOGS": "1"}


@pytest.fixture(autouse=True)
def factory() -> Iterator[object]:
    """Python's own again after the test."""
    before = logging.getLogRecordFactory()
    yield before
    logging.setLogRecordFactory(before)


def test_no_credential_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    mask_logs(ASKED)
    mask_logs(ASKED)
    args = {"extra": {"store_password": "hush"}, "seed": 1}
    logging.getLogger("vllm").warning("non-default args: %s", args)
    assert "hush" not in caplog.text
    assert "'seed': 1" in caplog.text


def test_what_cannot_be_put_in_words_is_left_to_logging() -> None:
    mask_logs(ASKED)
    record = logging.getLogRecordFactory()("n", 20, "f", 1, "%d of %d", ("x",), None)
    assert record.args == ("x",)


def test_without_a_secret_nothing_is_looked_through(factory: object) -> None:
    mask_logs({})
    assert logging.getLogRecordFactory() is factory
