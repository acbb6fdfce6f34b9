"""Files that were honest before they were changed, through the commands that read them.

Each test has as many examples as the profile says: 100, and with `make fuzz` 5,000.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.console import settings, theme
from specdeck.console.screens.live import view as live_view
from specdeck.console.state.engine_state import Track, fold_reading
from specdeck.engine.client.engine_client import open_client
from specdeck.engine.client.token import admin_token
from specdeck.engine.config.loader import load
from specdeck.engine.divergence.prompts import load_prompts
from specdeck.engine.divergence.requests import RequestSettings, request_body
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.fingerprint.digest import checksum
from specdeck.engine.fingerprint.name import compute_names
from specdeck.engine.fingerprint.pins import write_pin
from specdeck.engine.launch.registry import Record
from specdeck.engine.metrics.recording import read_recording, reading_as_json
from specdeck.engine.operations.check import ArmPair, CheckOptions
from specdeck.engine.protocol.messages import Change
from specdeck.engine.store import fingerprints
from specdeck.engine.store.audit import Action, AuditLog
from specdeck.engine.store.checks import Checks
from specdeck.engine.store.database import Store
from tests.hostile.busy_engine import BusyEngine
from tests.hostile.commands import home_in, run
from tests.hostile.judge import TOKEN
from tests.hostile.mutations import (
    STRANGE,
    Turn,
    apply_turns,
    mutated_bytes,
    mutated_json,
    mutated_values,
    spell,
    turns,
)
from tests.support.checks import finish_check
from tests.support.completion_engine import CompletionEngine, Fault
from tests.support.fingerprints import Fingerprints
from tests.support.lying_engine import LyingEngine
from tests.support.readings import down, readings

# What is drawn is large now and then, and its repr is nobody's concern.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

NOBODY = "http://127.0.0.1:9"
"""Where nobody listens."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home for every test of this module; the working folder is beside it."""
    with home_in(tmp_path_factory.mktemp("files")) as made:
        yield made


RECORDED = [reading_as_json(each) for each in (*readings(3), down(3), *readings(2, first=4))]


def as_lines(values: Any) -> bytes:
    """JSON lines."""
    return b"".join(
        spell(each) + b"\n" for each in (values if isinstance(values, list) else [values])
    )


@given(st.one_of(mutated_values(RECORDED).map(as_lines), mutated_bytes(as_lines(RECORDED))))
def test_a_recording(home: Path, body: bytes) -> None:
    file = Path("recording.jsonl")
    file.write_bytes(body)
    said = run(["replay", str(file), "--json"])
    assert said.code in (0, 2)
    if said.code:
        return
    recording = read_recording(file)
    for engine in recording.engines:
        track = Track(engine, engine, recorded=True)
        for reading in recording.readings(engine):
            json.dumps(reading_as_json(reading), allow_nan=False)
            track = fold_reading(track, reading)
            live_view.live(
                track, (track,), 0, armed=False, stretch=None, local=time.gmtime, key_label=str
            )


def pinned() -> dict[str, Any]:
    """An honest pin."""
    write_pin(Fingerprints().seen(), Path("honest.json"))
    found: dict[str, Any] = json.loads(Path("honest.json").read_text())
    return found


@given(st.data())
def test_a_pin(home: Path, data: st.DataObject) -> None:
    honest = pinned()
    body = data.draw(mutated_json(honest))
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        # As somebody would forge it: with a checksum, and with names that follow from its facts.
        forged = json.loads(body)
        build, path = compute_names(forged["facts"], partial=False)
        forged["names"] |= {"build": build, "path": path}
        body = json.dumps({**forged, "checksum": checksum(forged)}).encode()
    Path("forged.json").write_bytes(body)
    words = data.draw(
        st.sampled_from(
            (["diff", "honest.json", "forged.json"], ["diff", "forged.json", "honest.json"])
        )
    )
    said = run(["fingerprint", *words, *data.draw(st.sampled_from(([], ["--json"])))])
    assert said.code in (0, 1, 2)


SETTINGS = b"""\
interval: 1.0
theme: dark
keymap:
  mode.toggle: f2
  k.up: "+,="
retention_days: 90
"""
PAIRS = {"interval": 1.0, "theme": "dark", "keymap": {"mode.toggle": "f2"}, "retention_days": 9}


@given(st.one_of(mutated_bytes(SETTINGS), mutated_json(PAIRS)))
def test_settings(home: Path, body: bytes) -> None:
    file = home / "config" / "settings.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(body)
    with suppress(SpecdeckError):
        settings.read(file)
    assert run(["set", NOBODY, "--history"]).code == 0
    file.unlink()


THEME = Path(theme.SHIPPED / "dark.yaml").read_bytes()
COLOURS = {
    "name": "mine", "primary": "#112233", "dark": True, "luminosity_spread": 0.1,
    "variables": {"muted": "#445566"},
}  # fmt: skip


@given(st.one_of(mutated_bytes(THEME), mutated_json(COLOURS)))
def test_a_theme(home: Path, body: bytes) -> None:
    file = Path("theme.yaml")
    file.write_bytes(body)
    with suppress(SpecdeckError):
        theme.read(file).to_color_system().generate()


CONFIG = b"""\
model: ./target
speculative_config:
  method: draft_model
  model: ./draft
  num_speculative_tokens: 5
max_model_len: 4096
orchestration:
  policy: goodput
  goodput: {margin: 0.02}
exact_models: [exact]
sampling: {temperature: 0.0}
alerts: {acceptance_below: 0.4, webhook_env: HOOK}
attach: {engines: ["http://127.0.0.1:9"], api_key_env: PLANTED_KEY}
"""
TREE = {
    "model": "m", "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
    "orchestration": {"policy": "fixed", "k": 3}, "sampling": {"top_p": 0.9}, "exact_models": ["x"],
    "alerts": {"acceptance_below": 0.4}, "attach": {"engines": [NOBODY]}, "max_num_seqs": 8,
}  # fmt: skip


@given(st.one_of(mutated_bytes(CONFIG), mutated_json(TREE)))
def test_a_config(home: Path, body: bytes) -> None:
    file = Path("config.yaml")
    file.write_bytes(body)
    with suppress(SpecdeckError):
        load(file)
    assert run(["watch", str(file), "--count", "1"]).code in (2, 3)


RECORD = Record(
    name="demo", url=NOBODY, pid=2**22 + 5, born=1, boot="b", started=1.0, log="log",
    token_file="token", config="config.yaml", model="m", ready=2.0, version="0.1",
)  # fmt: skip


@given(
    mutated_json(asdict(RECORD)),
    st.sampled_from(
        (["ps"], ["ps", "--json"], ["watch", "demo", "--count", "1"], ["set", "demo", "k=1"])
    ),
)
def test_a_record_of_an_engine(home: Path, body: bytes, words: list[str]) -> None:
    folder = home / "state" / "engines"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "demo.json").write_bytes(body)
    Path("config.yaml").write_bytes(CONFIG)
    run(words)


@given(mutated_bytes(f"{TOKEN}\n".encode()))
def test_a_token_file(home: Path, body: bytes) -> None:
    file = Path("token")
    file.write_bytes(body)
    file.chmod(0o600)
    run(["set", NOBODY, "k=3", "--admin-token-file", str(file)])
    transport = httpx.MockTransport(lambda request: httpx.Response(503))

    async def put() -> None:
        client = open_client(NOBODY, token=admin_token({}, file), transport=transport)
        try:
            await client.put(Change(k=3))
        finally:
            await client.close()

    with pytest.raises(SpecdeckError):
        asyncio.run(put())


ASKED = [
    {"prompt": "def f("},
    {
        "messages": [{"role": "user", "content": "b"}],
        "tools": [{"type": "function"}],
        "max_tokens": 5,
    },
    "text",
]


@given(
    st.one_of(mutated_values(ASKED).map(as_lines), mutated_bytes(as_lines(ASKED))), st.booleans()
)
def test_prompts(home: Path, body: bytes, is_text: bool) -> None:
    file = Path("prompts.txt" if is_text else "prompts.jsonl")
    file.write_bytes(body)
    assert run(["check", NOBODY, "--prompts", str(file), "--patience", "0"]).code in (2, 3)
    with suppress(SpecdeckError):
        for prompt in load_prompts(file):
            json.dumps(request_body(prompt, RequestSettings(), model="m")).encode()


ANSWERED = [
    {"prompt": "a", "structured_outputs": {"json": {"$ref": "#/$defs/a", "$defs": {"a": {}}}}},
    {
        "messages": [{"role": "user", "content": "b"}],
        "tools": [
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        ],
        "tool_choice": "required",
        "max_tokens": 4,
    },
    {"prompt": [1, 2], "structured_outputs": {"regex": "a{3}"}},
]


@pytest.fixture(scope="module")
def answering() -> Iterator[str]:
    """The URL of an engine that answers whatever it is asked."""
    with LyingEngine({}, honest=BusyEngine().answer) as engine:
        yield engine.url


@given(mutated_values(ANSWERED).map(as_lines))
def test_prompts_that_are_answered(home: Path, answering: str, body: bytes) -> None:
    Path("answered.jsonl").write_bytes(body)
    words = ["check", answering, "--prompts", "answered.jsonl", "--max-tokens", "4", "--fresh"]
    run([*words, "--limit", "3", "--patience", "0"])


def check_in(store: Store) -> None:
    """A check of two prompts that fails, finished."""
    engine = CompletionEngine(url=NOBODY, faults={"a": Fault(2, 4.0)}, calls={"b": ("{}", "[1]")})
    Path("asked.jsonl").write_text(
        '{"prompt": "a"}\n{"messages": [{"role": "user", "content": "b"}]}\n'
    )

    async def check() -> None:
        options = CheckOptions(max_tokens=6, streams=2, retry_s=0.0)
        async with ArmPair(engine.connect(), None, options, wall=time.time) as pair:
            await finish_check(pair, load_prompts("asked.jsonl"), Checks(store))

    asyncio.run(check())


def fill(path: Path) -> None:
    """A store with a change, a check that has failed, and two fingerprints, none of them old."""
    with Store(path) as store:
        AuditLog(store).add(
            Action(
                time.time(),
                "ann",
                NOBODY,
                "demo",
                {"k": 5},
                {"k": 3},
                "specdeck set URL k=5",
                "i",
                "why",
                3.0,
            )
        )
        check_in(store)
        for k in (5, 3):
            seen = Fingerprints().seen(live__k=k)
            fingerprints.add(store, replace(seen, t=time.time(), url=NOBODY).as_json())


@pytest.fixture(scope="module")
def stored(home: Path) -> bytes:
    """The bytes of a store that is well."""
    # Apart from what other tests have left in this home: checks without an end among it.
    alone = home / "alone" / "specdeck.sqlite"
    alone.parent.mkdir()
    fill(alone)
    with closing(sqlite3.connect(alone)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert db.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
        assert db.execute("SELECT summary IS NULL FROM checks").fetchall() == [(0,)]
    return alone.read_bytes()


HISTORIES = (
    ["set", NOBODY, "--history"], ["set", NOBODY, "--history", "--json"],
    ["check", NOBODY, "--history"], ["check", NOBODY, "--history", "--json"],
    ["check", NOBODY, "--history", "--report", "report.html"],
    ["check", NOBODY, "--bundle", "bundle.tar.gz"],
    ["fingerprint", "show", NOBODY, "--history"],
    ["fingerprint", "show", NOBODY, "--history", "--json"], ["fingerprint", "diff", "@1", "@2"],
    ["fingerprint", "diff", "@1", "@2", "--json"],
)  # fmt: skip


def put_back(home: Path, body: bytes) -> Path:
    """The store, as these bytes."""
    place = home / "data" / "specdeck.sqlite"
    place.parent.mkdir(mode=0o700, exist_ok=True)
    for beside in place.parent.glob("specdeck.sqlite*"):
        beside.unlink(missing_ok=True)  # SQLite may be about to
    place.write_bytes(body)
    return place


@given(st.data())
def test_the_bytes_of_a_store(home: Path, stored: bytes, data: st.DataObject) -> None:
    words, body = data.draw(st.sampled_from(HISTORIES)), data.draw(mutated_bytes(stored))
    put_back(home, body)
    run(words)


COLUMNS = (
    ("actions", "before"), ("actions", "after"), ("checks", "facts"), ("checks", "totals"),
    ("checks", "summary"), ("check_cases", "detail"), ("fingerprints", "seen"),
)  # fmt: skip


@given(st.data())
def test_documents_in_a_store(home: Path, stored: bytes, data: st.DataObject) -> None:
    place = put_back(home, stored)
    table, column = data.draw(st.sampled_from(COLUMNS))
    with closing(sqlite3.connect(place, isolation_level=None)) as db:
        (text,) = db.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL").fetchone()
        body = data.draw(mutated_json(json.loads(text)))
        db.execute(
            f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE {column} IS NOT NULL", (body,)
        )
    run(data.draw(st.sampled_from(HISTORIES)))


@given(st.sampled_from(("facts", "totals", "summary")), turns)
def test_a_check_beside_damaged_ones(
    home: Path, stored: bytes, column: str, drawn: list[Turn]
) -> None:
    """What was compared for an hour is not lost for what is stored of others."""
    place = put_back(home, stored)
    with closing(sqlite3.connect(place, isolation_level=None)) as db:
        (text,) = db.execute(f"SELECT {column} FROM checks").fetchone()
        body = spell(apply_turns(json.loads(text), drawn))
        db.execute(f"UPDATE checks SET {column} = CAST(? AS TEXT)", (body,))
        if column == "totals":
            db.execute("UPDATE checks SET finished = NULL, summary = NULL")
    with suppress(SpecdeckError), Store(place) as store:
        check_in(store)


@given(st.data())
def test_values_in_a_store(home: Path, stored: bytes, data: st.DataObject) -> None:
    words, value = data.draw(st.sampled_from(HISTORIES)), data.draw(st.sampled_from(STRANGE))
    place = put_back(home, stored)
    with closing(sqlite3.connect(place, isolation_level=None)) as db:
        table = data.draw(st.sampled_from(("actions", "checks", "check_cases", "fingerprints")))
        names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        name = data.draw(st.sampled_from(names))
        with suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
            db.execute(f"UPDATE {table} SET {name} = ?", (value,))
    run(words)
