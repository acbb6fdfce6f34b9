from __future__ import annotations

import pytest

from specdeck.engine.client.address import engine_url
from specdeck.engine.errors import UsageError


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("8000", "http://127.0.0.1:8000"),
        (" http://GPU-1:8000/ ", "http://gpu-1:8000"),
        ("http://h:1/v1", "http://h:1"),
        ("http://h:1/v1/", "http://h:1"),
        ("http://h:1/metrics", "http://h:1"),
        ("http://h:1/v1/specdeck", "http://h:1"),
        ("https://gateway/a/v1", "https://gateway/a"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("gpu-1", "http://gpu-1"),
    ],
)
def test_spellings_of_one_engine_are_one_url(text: str, url: str) -> None:
    assert engine_url(text) == url
    assert engine_url(url) == url


@pytest.mark.parametrize(
    "text",
    ["", "   ", "http://[v1.x]:9", "ftp://h:1", "http://", "h:port", "h:99999", "h:0", "h:", "http://h:1/?a=b",
     "a b", "http://h:1#x", ":8000", "http://[::1", "k=3;rm"],
)  # fmt: skip
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no engine's URL"):
        engine_url(text)


@pytest.mark.parametrize("rest", ["?api_key=hunter2", "#hunter2", ":no?api_key=hunter2"])
def test_what_may_hold_a_key_is_not_repeated(rest: str) -> None:
    with pytest.raises(UsageError, match="is no engine's URL") as refused:
        engine_url(f"http://h{rest}")
    assert "hunter2" not in refused.value.line()


@pytest.mark.parametrize(
    "text",
    ["http://ana:hunter2@h:1", "ana:hunter2@h:1", "//hunter2@h", "http://ana%3Ahunter2%40h:1",
     "ana%3ahunter2%2540h", " HTTP://ana:hunter2%40h/v1", "http://hunter2\uff20h"],
)  # fmt: skip
def test_credentials_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        engine_url(text)
    assert "hunter2" not in refusal.value.line()
    assert "--api-key-env" in refusal.value.line()


def test_an_encoded_at_in_a_path_is_no_credential() -> None:
    assert engine_url("http://gateway/team%40site/v1") == "http://gateway/team%40site"
