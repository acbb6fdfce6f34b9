"""Knobs as words of a command line, and back; those of an engine that lies included."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.engine_state import engine_state
from tests.support.escapes import ESCAPES
from tests.support.http_engine import HttpEngine, serve_engine

from specdeck.console.cli.main import outcome
from specdeck.engine.errors import UsageError
from specdeck.engine.operations.assignments import format_undo, parse_assignments
from specdeck.engine.protocol.messages import PREFIX

URL = "http://gpu-1:8000"
SHELL = ("; reboot", "$(reboot)", "`reboot`", "| sh", "> /etc/passwd", "& x", "\nreboot", "'", '"',
         " --admin-token-file=/etc/shadow", *ESCAPES)  # fmt: skip

_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(SHELL),
)
_values = st.one_of(_scalars, st.lists(_scalars, max_size=2), st.just({"k": 1}))
_blocks = st.sampled_from(["goodput.", "breaker.", "trial.", "threshold.x."])
_names = st.one_of(
    st.sampled_from(["k", "mode", "policy", "breaker", "fallback", "--reason", "goodput.margin"]),
    st.text(max_size=12),
    st.builds(str.__add__, _blocks, st.one_of(st.text(max_size=8), st.sampled_from(SHELL))),
)


def words(undo: str) -> list[str]:
    """The assignments of an undo, as a shell reads it."""
    if not undo:
        return []
    program, command, url, *assignments = shlex.split(undo)
    assert (program, command, url) == ("specdeck", "set", URL)
    return assignments


@given(st.dictionaries(_names, _values, max_size=6))
def test_an_undo_is_one_line_of_what_set_takes_whatever_the_engine_says(
    knobs: dict[str, Any],
) -> None:
    undo = format_undo(URL, knobs)
    assert undo.isascii()
    assert undo.isprintable()
    for word in words(undo):
        parse_assignments([word])
    if "'" not in undo:
        assert not set(undo) & set(';$`|&<>(){}*?!\\"')


@pytest.mark.parametrize("tail", SHELL)
@pytest.mark.parametrize("name", ["mode", "k", "goodput.margin"])
def test_a_value_or_a_name_with_more_to_it_is_left_out(name: str, tail: str) -> None:
    assert format_undo(URL, {name: f"speculate{tail}", f"{name}{tail}": 3}) == ""
    assert words(format_undo(URL, {f"{name}{tail}": 3, "k": 5})) == ["k=5"]


def test_what_an_engine_had_before_comes_back_as_it_was() -> None:
    knobs = {"k": 5, "mode": "speculate", "policy": "goodput", "fallback": "warm",
             "breaker": "probe", "goodput.margin": 1e-07, "goodput.max_draft_length": None,
             "breaker.enabled": False, "trial.seconds": -3}  # fmt: skip
    assert parse_assignments(words(format_undo(URL, knobs))).knobs() == knobs | {
        "goodput.max_draft_length": "none"
    }


def test_the_url_is_one_word() -> None:
    undo = format_undo("http://[::1]:8000/a;b", {"k": 5})
    assert shlex.split(undo) == ["specdeck", "set", "http://[::1]:8000/a;b", "k=5"]
    assert undo == "specdeck set 'http://[::1]:8000/a;b' k=5"


@pytest.mark.parametrize("text", ["k=4=5", "k=٣", "mode=", "=3", "goodput.=\n", "--json"])
def test_nonsense_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        parse_assignments([text])


def test_the_undo_that_set_prints_and_keeps_runs_nothing_else(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", "the-admin-token")

    def lies() -> Iterator[dict[str, Any]]:
        for tail in (SHELL[1], SHELL[-1]):
            yield {"k": 5, "mode": f"speculate{tail}", f"goodput.a{tail}": 1}

    with serve_engine(HttpEngine()) as engine:
        engine.answers[f"{PREFIX}/state"] = (200, engine_state(running=0).as_json())
        for lie in lies():
            reply = {"before": lie, "applied": {"k": 3}, "version": 1, "step": 100, "undo": lie}
            engine.answers[f"{PREFIX}/control"] = (200, json.dumps(reply))
            assert outcome(["set", engine.url, "k=3", "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["undo"] == f"specdeck set {engine.url} k=5"
        assert outcome(["set", engine.url, "--history", "--json"]) == 0
    for action in json.loads(capsys.readouterr().out):
        assert action["undo"] == f"specdeck set {engine.url} k=5"
