from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from specdeck.engine.errors import SpecdeckError
from specdeck.engine.store.checks import Checks
from specdeck.engine.store.store import SCHEMA, Action, Start, Store, config_key

ACTION = Action(
    t=1000.0,
    who="ana",
    url="http://gpu-1:8000",
    engine="demo",
    before={"k": 5},
    after={"k": 3},
    undo="specdeck set http://gpu-1:8000 k=5",
    instance="one",
    reason="trying",
    observed=3.0,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "specdeck.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened


def test_an_action_comes_back_as_it_was(store: Store) -> None:
    store.add_action(ACTION)
    assert store.actions() == (ACTION,)
    assert store.last_action(ACTION.url) == ACTION


def test_actions_are_of_one_engine_and_the_newest_first(store: Store) -> None:
    other = replace(ACTION, url="http://gpu-2:8000", instance=None, reason=None, observed=None)
    later = replace(ACTION, t=2000.0)
    for action in (ACTION, other, later):
        store.add_action(action)
    assert store.actions(ACTION.url) == (later, ACTION)
    assert store.actions(limit=1) == (later,)
    assert store.actions(other.url) == (other,)
    assert store.last_action("http://nowhere") is None


def test_what_is_observed_of_a_change_later_is_added_to_it_alone(store: Store) -> None:
    first = replace(ACTION, observed=None)
    entry = store.add_action(first)
    store.add_action(replace(first, t=2000.0))
    store.observed(entry, 2.5)
    assert [action.observed for action in store.actions()] == [None, 2.5]


def test_the_last_start_of_a_config_is_remembered(store: Store, tmp_path: Path) -> None:
    key = config_key(tmp_path / "demo.yaml")
    store.add_start(Start(1000.0, key, 31.0))
    store.add_start(Start(2000.0, key, 28.5))
    store.add_start(Start(3000.0, config_key(tmp_path / "other.yaml"), 90.0))
    assert store.last_start(key) == Start(2000.0, key, 28.5)
    assert store.last_start("unheard-of") is None


def test_the_memory_outlives_the_session(path: Path) -> None:
    with Store(path) as first:
        first.add_action(ACTION)
    with Store(path) as second:
        assert second.actions() == (ACTION,)


def test_only_its_owner_can_read_it(path: Path) -> None:
    with Store(path) as store:
        store.add_action(ACTION)
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert set(modes.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_several_at_once_lose_nothing(path: Path) -> None:
    def write(who: str) -> None:
        with Store(path, patience_s=20) as store:
            for number in range(20):
                store.add_action(replace(ACTION, who=who, t=float(number)))

    threads = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Store(path) as store:
        assert len(store.actions(limit=1000)) == 80


def test_a_file_that_is_held_is_given_up_after_a_while(path: Path) -> None:
    with Store(path, patience_s=0.05) as store:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(SpecdeckError, match="held by another process"):
            store.add_action(ACTION)
        holder.execute("ROLLBACK")
        holder.close()
        store.add_action(ACTION)
        assert store.actions() == (ACTION,)


def test_a_newer_file_is_left_alone(path: Path) -> None:
    Store(path).close()
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    newer.close()
    with pytest.raises(SpecdeckError, match="newer specdeck") as refusal:
        Store(path)
    assert "update specdeck" in refusal.value.line()


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("not a database, and long enough to be looked at as one\n" * 50)
    with pytest.raises(SpecdeckError, match=r"specdeck\.sqlite cannot be used"):
        Store(path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecdeckError, match="cannot be used"):
        Store(tmp_path / "file" / "data" / "specdeck.sqlite")


def test_a_file_of_the_first_schema_gains_the_checks_and_keeps_its_actions(path: Path) -> None:
    with Store(path) as store:
        store.add_action(ACTION)
    old = sqlite3.connect(path)
    old.executescript("DROP TABLE check_cases; DROP TABLE checks; PRAGMA user_version = 1;")
    old.close()
    with Store(path) as store:
        assert store.actions() == (ACTION,)
        Checks(store).begin("key", 1000.0, ACTION.url, {})


def test_a_transaction_that_breaks_leaves_nothing(store: Store) -> None:
    def half() -> None:
        with store.transaction() as db:
            db.execute("INSERT INTO starts (t, config, seconds) VALUES (1, 'a', 1)")
            raise KeyError("broken")

    with pytest.raises(KeyError):
        half()
    assert store.last_start("a") is None
