"""Long texts of an engine or a client: none takes longer to read than it is long.

Expressions run in C, where no signal is heard and no other thread gets a turn. As many examples as
the profile says: 100, and with `make fuzz` 5,000.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.fingerprint.secrecy import find_secrets, redact
from specdeck.engine.incident.engine_log import clean_log
from specdeck.engine.incident.redaction import Redactor
from specdeck.engine.launch.failure_reason import find_reason
from specdeck.engine.plugin.secret_values import make_mask

LONG = 12_000
MOST_S = 0.75
"""Of the processor: an honest reader takes 0.04, one by the square of the length 1.5 or more."""
SECRETS = ("correct-horse-battery", "s3cr'et\\x")
REDACTOR = Redactor(SECRETS)
READERS: dict[str, Callable[[str], object]] = {
    "redact": redact,
    "find_secrets": lambda text: list(find_secrets("extra", text)),
    "mask": make_mask(SECRETS),
    "hide_said": REDACTOR.hide_said,
    "hide_settings": REDACTOR.hide_settings,
    "clean_log": lambda text: clean_log(text, REDACTOR),
    "find_reason": find_reason,
}
PIECES = st.sampled_from([
    *("</", "<", "<a", "/>", ">", "<a>", "</a>", "[", "(", "{", "]", ")", "}", " ", "\n", "\\n"),
    *("\\", '"', "'", '\\"', "\\'", "b'", "=", ":", ":=", "->", "=>", ",", ";", "?", "&", "#", "@"),
    *("-", "--a", ".", ".-a", "_", "a", "A", "1", "é", "\u200b", "|", ">-", "- ", "\r\n", "…"),
    *("\t", "...", "://", "a://", "name", "name=", "value=", "data:", "key", "password"),
    *("password=", "password: ", "'password', ", "token ", "bearer ", "basic ", "cookie"),
    *("Authorization", "sha256:", "sk-", "-eyJ", "prompt=", "messages ", "asked ", "-----BEGIN "),
    *("KEY-----", "input_value=", "[1,", 'File "', "Error: ", "correct-horse", "%"),
    "Traceback (most recent call last):\n",
])  # fmt: skip


def seconds(read: Callable[[str], object], text: str) -> float:
    """Of the processor; the better of two, as a machine may be held for a moment."""
    least = float("inf")
    for _ in range(2):
        began = time.process_time()
        read(text)
        least = min(least, time.process_time() - began)
        if least < MOST_S:
            break
    return least


@pytest.mark.parametrize("name", READERS)
@given(
    before=st.lists(PIECES, max_size=3).map("".join),
    repeated=st.lists(PIECES, min_size=1, max_size=4).map("".join),
    after=st.lists(PIECES, max_size=2).map("".join),
)
def test_mutated_texts_take_no_longer_than_they_are_long(
    name: str, before: str, repeated: str, after: str
) -> None:
    text = before + repeated * (LONG // len(repeated)) + after
    assert seconds(READERS[name], text) < MOST_S
