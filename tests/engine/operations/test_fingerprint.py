"""Fetching and recalling fingerprints: what is noted, and what cannot be."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from tests.support.fingerprints import Fingerprints as Make
from tests.support.http_engine import HttpEngine

from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.operations.fingerprint import Fingerprints
from specdeck.engine.store.database import Store
from specdeck.engine.store.fingerprints import add

URL = "http://e:1"


def open_fake(engine: str) -> EngineClient:
    return open_client(engine, transport=httpx.MockTransport(HttpEngine()))


def of(folder: Path, notices: list[str]) -> Fingerprints:
    return Fingerprints(
        open_fake, pins=folder / "pins", store=folder / "store.sqlite", on_notice=notices.append
    )


async def test_what_was_fetched_is_a_moment_and_can_be_pinned(tmp_path: Path) -> None:
    notices = list[str]()
    fingerprints = of(tmp_path, notices)
    found = await fingerprints.fetch(URL, ask_own=False)
    (moment,) = await fingerprints.moments(URL)
    assert moment.fingerprint.names == found.names
    assert moment.as_json() == {"moment": "@1", "t": moment.fingerprint.t, **found.names}
    written = await fingerprints.pin(found)
    assert written.place == tmp_path / "pins" / "http-e-1.json"
    assert await fingerprints.read_pin(URL) == moment.fingerprint
    assert notices == []


async def test_a_history_that_cannot_be_written_is_a_notice(tmp_path: Path) -> None:
    notices = list[str]()
    spoil(tmp_path / "store.sqlite")
    await of(tmp_path, notices).fetch(URL)
    (notice,) = notices
    assert notice.startswith("not noted in the history: ")


def spoil(file: Path) -> None:
    file.write_text("no database")


async def test_a_moment_of_another_specdeck_is_named(tmp_path: Path) -> None:
    fingerprints = of(tmp_path, [])
    with Store(tmp_path / "store.sqlite") as store:
        add(store, {**Make().seen().as_json(), "partial": None})
    with pytest.raises(SpecdeckError, match="the fingerprint @1 in the store cannot be read"):
        await fingerprints.moments(number=1)
