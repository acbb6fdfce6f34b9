from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.memory_audit import ACTION

from specdeck.engine.store.audit import AuditLog
from specdeck.engine.store.database import Store
from specdeck.engine.store.starts import Start, Starts, config_key


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "specdeck.sqlite") as opened:
        yield opened


def test_an_action_comes_back_as_it_was(store: Store) -> None:
    log = AuditLog(store)
    log.add(ACTION)
    assert log.actions() == (ACTION,)
    assert log.actions(ACTION.url, 1) == (ACTION,)


def test_actions_are_of_one_engine_and_the_newest_first(store: Store) -> None:
    log = AuditLog(store)
    other = replace(ACTION, url="http://gpu-2:8000", instance=None, reason=None, observed=None)
    later = replace(ACTION, t=2000.0)
    for action in (ACTION, other, later):
        log.add(action)
    assert log.actions(ACTION.url) == (later, ACTION)
    assert log.actions(limit=1) == (later,)
    assert log.actions(other.url) == (other,)
    assert log.actions("http://nowhere", 1) == ()


def test_what_is_observed_of_a_change_later_is_added_to_it_alone(store: Store) -> None:
    log = AuditLog(store)
    first = replace(ACTION, observed=None)
    entry = log.add(first)
    log.add(replace(first, t=2000.0))
    log.set_observed(entry, 2.5)
    assert [action.observed for action in log.actions()] == [None, 2.5]


def test_what_has_come_of_a_change_takes_the_place_of_what_was_asked_for(store: Store) -> None:
    log = AuditLog(store)
    asked = replace(ACTION, observed=None, outcome="unknown")
    first, second = log.add(asked), log.add(replace(asked, t=2000.0))
    log.replace(first, ACTION)
    assert log.actions() == (replace(asked, t=2000.0), ACTION)
    log.remove(second)
    assert log.actions() == (ACTION,)


@pytest.mark.parametrize(
    ("column", "value"),
    [("t", -5.0), ("t", 1e12), ("before", "{"), ("after", "[]"), ("before", b"{\xff")],
    ids=["before 1970", "far ahead", "no JSON", "no object", "no text"],
)
def test_a_change_that_cannot_be_read_hides_no_other(
    store: Store, column: str, value: object
) -> None:
    log = AuditLog(store)
    later = replace(ACTION, t=2000.0)
    for action in (ACTION, replace(ACTION, t=3000.0), later):
        log.add(action)
    with store.transaction() as db:
        db.execute(f"UPDATE actions SET {column} = CAST(? AS {kind(value)}) WHERE id = 2", (value,))
    assert log.actions() == (later, ACTION)
    assert log.actions(limit=1) == (later,)
    assert len(store.left_out) == 1
    assert store.left_out[0].startswith("1 change in the store cannot be read and is left out: ")


def kind(value: object) -> str:
    """The type of the column that takes it."""
    return "REAL" if isinstance(value, float) else "TEXT"


def test_the_last_start_of_a_config_is_remembered(store: Store, tmp_path: Path) -> None:
    starts = Starts(store)
    key = config_key(tmp_path / "demo.yaml")
    starts.add(Start(1000.0, key, 31.0))
    starts.add(Start(2000.0, key, 28.5))
    starts.add(Start(3000.0, config_key(tmp_path / "other.yaml"), 90.0))
    assert starts.last(key) == Start(2000.0, key, 28.5)
    assert starts.last("unheard-of") is None
