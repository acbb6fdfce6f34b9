"""What is kept of a reply about requests, however long it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdeck.engine.protocol.codec import WrongType
from specdeck.engine.protocol.requests import (
    MOST_FINISHED,
    MOST_RANKS,
    MOST_RUNNING,
    MOST_WAITING,
    RequestLine,
    Requests,
    merge_requests,
)

LINE = RequestLine(1, "running", 1.0, 9, 4, None, 1, 5, 2, 0, "0%", "none", "none", "greedy")
OPEN = MOST_RUNNING + MOST_WAITING


def reply(active: int, finished: int) -> Requests:
    """Of an engine of one rank, numbered from 0."""
    lines = [
        tuple(replace(LINE, number=number) for number in range(count))
        for count in (active, finished)
    ]
    return Requests("i", 1.0, 5, active, 0, lines[0], lines[1])


def test_a_plugins_own_reply_is_kept_whole() -> None:
    one = reply(OPEN, MOST_FINISHED)
    for told in (one, merge_requests([one] * MOST_RANKS)):
        assert Requests.from_json(told.as_json()) == told


def test_of_a_longer_reply_no_more_is_kept_of_each_rank() -> None:
    kept = Requests.from_json(reply(15_000, 900).as_json())
    assert [line.number for line in kept.active] == list(range(OPEN))
    assert [line.number for line in kept.finished] == list(range(MOST_FINISHED))
    assert kept.running == 15_000


def test_ranks_that_no_engine_has_are_left_out() -> None:
    told = replace(reply(2000, 0), active=tuple(replace(LINE, rank=rank) for rank in range(2000)))
    kept = Requests.from_json(told.as_json())
    assert [line.rank for line in kept.active] == list(range(MOST_RANKS))


@pytest.mark.parametrize(
    "name", ["number", "prompt_tokens", "output_tokens", "drafts", "drafted", "accepted",
             "preemptions", "rank"]
)  # fmt: skip
@pytest.mark.parametrize("count", [-1, 2**53 + 1])
def test_a_count_that_none_is_is_refused(name: str, count: int) -> None:
    told = reply(0, 2).as_json()
    told["finished"][0][name] = count
    with pytest.raises(WrongType, match=name):
        Requests.from_json(told)


@pytest.mark.parametrize("name", ["running", "waiting"])
def test_fewer_requests_than_none_are_refused(name: str) -> None:
    with pytest.raises(WrongType, match=name):
        Requests.from_json(reply(0, 0).as_json() | {name: -1})
