"""Names are held against the facts that came with them."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.support.facts_engine import FactsEngine

from specdeck.engine.client.engine_client import open_client
from specdeck.engine.client.secret import Secret
from specdeck.engine.fingerprint.compare import compare
from specdeck.engine.fingerprint.fingerprint import Fingerprint, Unread
from specdeck.engine.fingerprint.name_check import NameDoubt, check_names
from specdeck.engine.fingerprint.query import fetch_fingerprint

KEY = "sk-correct-horse-battery"
READ = Unread("model", "Permission denied")


async def fetch(engine: FactsEngine, api_key: Secret | None = None) -> Fingerprint:
    transport = httpx.MockTransport(engine)
    client = open_client("http://e:1", api_key=api_key, transport=transport)
    try:
        return await fetch_fingerprint(client)
    finally:
        await client.close()


@pytest.mark.parametrize("partial", [[], [{"fact": "model", "reason": "gone"}]])
async def test_an_honest_engine_is_believed(partial: list[dict[str, str]]) -> None:
    engine = FactsEngine({"engine": {"vllm": "0.32.0"}, "odd": [1.5, None, {"a": "…ü"}]})
    engine.partial = partial
    found = await fetch(engine)
    assert check_names(found) is None
    assert len(found.unread) == len(partial)
    engine.progress = [{"finished": False}]
    assert check_names(await fetch(engine)) is None


async def test_names_of_other_facts_are_not_known_to_be_the_engines() -> None:
    engine = FactsEngine({"config": {"max_num_seqs": 32}})
    before = await fetch(engine)
    engine.other_names = before.build, before.path
    engine.facts = {"config": {"max_num_seqs": 1}}
    after = await fetch(engine)
    assert check_names(after) == "differ"
    kinds = [kind for kind, _ in compare(before, after).verdicts]
    assert kinds == ["knob", "unknown"]
    line = "names: do not follow from the facts that came with them"
    assert after.unread[0].line() == line
    assert line in compare(before, after).lines()[1]


@pytest.mark.parametrize(
    ("changed", "doubt"),
    [
        ({}, None),
        ({"unread": (READ,)}, "differ"),
        ({"path": "sd1:p" + "0" * 16}, "differ"),
        ({"build": "sd1:b" + "0" * 16}, "differ"),
        ({"path": "sd2:p" + "0" * 16}, "schema"),
        ({"build": "sd1:p" + "0" * 16}, "schema"),
    ],
)
def test_a_doubt_has_its_reason(
    fingerprints: Any, changed: dict[str, Any], doubt: NameDoubt | None
) -> None:
    assert check_names(replace(fingerprints.seen(), **changed)) == doubt


async def test_a_secret_that_is_taken_out_of_the_facts_is_no_fault_of_the_engine() -> None:
    engine = FactsEngine({"config": {"model": {"comment": f"made for {KEY}"}}})
    found = await fetch(engine, Secret(KEY))
    assert KEY not in str(found.facts)
    assert check_names(found) == "hidden"
    assert found.unread[0].line().startswith("names: cannot be checked: a fact is spelt like")
    assert compare(found, await fetch(engine, Secret(KEY))).same
