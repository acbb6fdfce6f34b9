"""The history of fingerprints: only news are written, and moments come back whole."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from specdeck.engine.errors import UsageError
from specdeck.engine.fingerprint.behaviour import Behaviour, ProbeAnswer
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.fingerprint.name import compute_names
from specdeck.engine.store.database import Store
from specdeck.engine.store.fingerprints import add, moments


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "specdeck.sqlite") as store:
        yield store


def seen(k: int = 6, url: str = "http://e:1", t: float = 1.0) -> Fingerprint:
    facts = {"engine": {"vllm": "0.32.0"}, "live": {"k": k}}
    return Fingerprint(t, url, *compute_names(facts, partial=False), facts=facts)


def test_only_another_name_is_news(store: Store) -> None:
    assert [add(store, seen(k, t=t).as_json()) for t, k in enumerate((6, 6, 5, 6))] == [
        True, False, True, True,
    ]  # fmt: skip
    assert [m.data["facts"]["live"]["k"] for m in moments(store)] == [6, 5, 6]


def test_a_behaviour_is_news_and_its_absence_is_none(store: Store) -> None:
    tried = replace(
        seen(), behaviour=Behaviour({"serving": (ProbeAnswer((1,), (-0.5,)),)}, 1, 1.0, 0.0)
    )
    assert [add(store, one.as_json()) for one in (seen(), tried, seen(), tried)] == [
        True,
        True,
        False,
        False,
    ]
    (found,) = moments(store, url="http://e:1", limit=1)
    assert Fingerprint.from_json(found.data) == tried


def test_engines_and_moments_are_told_apart(store: Store) -> None:
    add(store, seen(url="http://a:1").as_json())
    add(store, seen(url="http://b:1").as_json())
    assert [m.data["engine"] for m in moments(store, url="http://a:1")] == ["http://a:1"]
    assert [m.data["engine"] for m in moments(store, number=2)] == ["http://b:1"]
    assert moments(store, url="http://c:1") == ()


def test_facts_that_no_engine_has_are_not_kept(store: Store) -> None:
    """A thousand of them for every engine were gigabytes."""
    facts = {"engine": {"vllm": "v" * 300_000}}
    huge = replace(seen(), facts=facts)
    with pytest.raises(UsageError, match=r"facts of 0\.3 MB are too many to be kept"):
        add(store, huge.as_json())
    assert moments(store) == ()
