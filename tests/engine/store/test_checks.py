from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from specdeck.engine.store.checks import Checks, Compared
from specdeck.engine.store.database import Store

URL = "http://gpu-1:8000"


@pytest.fixture
def checks(tmp_path: Path) -> Iterator[Checks]:
    with Store(tmp_path / "store.sqlite") as store:
        yield Checks(store)


def test_a_prompt_is_counted_once(checks: Checks) -> None:
    run = checks.begin("key", 1000.0, URL, {"vllm": "0.32.0"})
    rows = [Compared(1, "cross", "abc"), Compared(1, "reference", "abc")]
    assert checks.add(run.id, rows, {"prompts": 1})
    assert not checks.add(run.id, rows, {"prompts": 2})
    assert checks.has(run.id, 1)
    assert not checks.has(run.id, 2)
    found = checks.find_unfinished("key")
    assert found is not None
    assert (found.totals, found.facts) == ({"prompts": 1}, {"vllm": "0.32.0"})


def test_only_the_latest_unfinished_run_goes_on(checks: Checks) -> None:
    first = checks.begin("key", 1000.0, URL, {})
    checks.finish(first.id, 2000.0, {"verdict": "pass"})
    assert checks.find_unfinished("key") is None
    second = checks.begin("key", 3000.0, URL, {})
    assert checks.find_unfinished("key") == second
    assert checks.find_unfinished("other") is None


def test_divergences_come_in_pages_and_by_prompt(checks: Checks) -> None:
    run = checks.begin("key", 1000.0, URL, {})
    for prompt in range(450, 0, -1):
        detail = {"index": prompt} if prompt % 2 else None
        checks.add(run.id, [Compared(prompt, "cross", "abc", detail=detail)], {})
    found = [case.prompt for case in checks.divergences(run.id, "cross")]
    assert found == list(range(1, 450, 2))
    assert not list(checks.divergences(run.id, "serving"))


def test_the_history_is_of_one_engine_and_the_newest_first(checks: Checks) -> None:
    for n, url in enumerate((URL, "http://other", URL)):
        run = checks.begin("key", 1000.0 + n, url, {})
        checks.finish(run.id, 2000.0 + n, {"mismatch_rate": n / 100})
    rates = [run.summary and run.summary["mismatch_rate"] for run in checks.history(URL)]
    assert rates == [0.02, 0.0]
    assert len(checks.history(URL, limit=1)) == 1


def test_a_finished_run_keeps_its_divergences_only(checks: Checks) -> None:
    run = checks.begin("key", 1000.0, URL, {})
    checks.add(run.id, [Compared(1, "cross", "a"), Compared(1, "serving", "a", detail={})], {})
    checks.add(run.id, [Compared(2, "cross", "b", refused="too long")], {})
    checks.finish(run.id, 2000.0, {})
    assert [case.prompt for case in checks.divergences(run.id, "serving")] == [1]
    assert checks.refusals(run.id) == ((2, "too long"),)
    assert not checks.has(run.id, 3)


def test_a_run_that_another_process_is_at_is_not_gone_on_with(tmp_path: Path) -> None:
    place = tmp_path / "shared.sqlite"
    with Store(place) as one:
        run = Checks(one).begin("key", 1.0, "http://e", {})
        with Store(place) as other:
            assert Checks(other).resume("key") is None
    with Store(place) as later:
        found = Checks(later).resume("key")
        assert found is not None
        assert found.id == run.id
        Checks(later).finish(run.id, 2.0, {})
        assert Checks(later).resume("key") is None
    assert not list(tmp_path.glob("*.lock"))


def test_a_run_that_shows_nothing_is_forgotten_whole(tmp_path: Path) -> None:
    with Store(tmp_path / "one.sqlite") as store:
        checks = Checks(store)
        run = checks.begin("key", 1.0, "http://e", {})
        checks.add(run.id, [Compared(1, "cross", "h", refused="no")], {})
        checks.forget(run.id)
        assert checks.find_unfinished("key") is None
        assert not checks.has(run.id, 1)


@pytest.mark.parametrize(
    "damage",
    ["finished = -5.0", "finished = 1e12", "t = -5.0", "facts = '{'", "summary = '{'"],
)
def test_a_run_that_cannot_be_read_hides_no_other(
    tmp_path: Path, checks: Checks, damage: str
) -> None:
    runs = [checks.begin("key", 1000.0 + n, URL, {}) for n in range(3)]
    for run in runs:
        checks.finish(run.id, run.t + 1.0, {})
    with Store(tmp_path / "store.sqlite") as other, other.transaction() as db:
        db.execute(f"UPDATE checks SET {damage} WHERE id = ?", (runs[1].id,))
    assert [run.id for run in checks.history(URL)] == [runs[2].id, runs[0].id]
    (line,) = checks.left_out
    assert line.startswith("1 check in the store cannot be read and is left out: ")


def test_an_unfinished_run_that_cannot_be_read_is_passed_over(
    tmp_path: Path, checks: Checks
) -> None:
    first, second = (checks.begin("key", t, URL, {}) for t in (1000.0, 2000.0))
    with Store(tmp_path / "store.sqlite") as other, other.transaction() as db:
        db.execute("UPDATE checks SET totals = '{' WHERE id = ?", (second.id,))
    assert checks.find_unfinished("key") == first
    assert len(checks.left_out) == 1
