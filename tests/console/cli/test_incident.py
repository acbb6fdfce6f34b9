"""`specdeck incident`: one file about what happened, of an engine that is gone, without secrets."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
import xml.etree.ElementTree as ET
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_state import engine_state
from tests.support.http_engine import HttpEngine, serve_engine
from tests.support.incident_engine import (
    FALL,
    SECONDS,
    collapsed_readings,
    record_collapse,
    record_poison,
)
from tests.support.pages import recorded_page
from tests.support.readings import START, URL
from tests.support.recorded_engine import record

from specdeck.console.cli.incident import write_around
from specdeck.console.cli.main import outcome
from specdeck.engine.blackbox.file import open_for_reading
from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.history import History
from specdeck.engine.incident import write as write_module
from specdeck.engine.incident.archive import extract_recording
from specdeck.engine.launch import process
from specdeck.engine.launch.registry import Record, Registry
from specdeck.engine.paths import locations
from specdeck.engine.protocol.messages import PREFIX, LastChange
from specdeck.engine.store import fingerprints
from specdeck.engine.store.audit import Action, AuditLog
from specdeck.engine.store.checks import Checks
from specdeck.engine.store.database import Store

Captured = pytest.CaptureFixture[str]

KEY = "zq7-planted-credential-x1"
HOOK, PAGER = "https://chat.internal/hooks/plantedhook", "https://pager.internal/plantedpager"
TOKEN = "planted.admin.token-4711"
PROMPT = "PLANTEDPROMPT dear Ann your biopsy"
REASON = f"after “{PROMPT}”, with token {KEY}"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("SPECDECK_HOME", str(folder))
    monkeypatch.setenv("MY_HF_TOKEN", KEY)
    monkeypatch.setenv("PAGER", PAGER)
    monkeypatch.setattr(time, "time", lambda: START + SECONDS + 30.0)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def known(home: Path) -> Path:
    """Everything that this machine may know of an engine, with secrets and prompts in all of it."""
    places = locations({"SPECDECK_HOME": str(home)})
    record_collapse(
        box_path(places.black_boxes, URL), reason=REASON, event=f"fallback cold because: {REASON}"
    )
    with Store(places.store) as store:
        AuditLog(store).add(
            Action(
                START + FALL - 5, "mira", URL, "demo", {"fallback": "warm"}, {"fallback": "cold"},
                f"specdeck set {URL} fallback=warm", reason=REASON, origin="operator",
            )
        )  # fmt: skip
        checks = Checks(store)
        run = checks.begin("a", START + 10, URL, {"prompts": [PROMPT], "api_key": KEY})
        checks.finish(run.id, START + 20, {"verdict": "pass", "prompts": 20, "mismatches": 1})
        fingerprints.add(
            store,
            {
                "t": START, "engine": URL, "facts": {
                    "environment": {"HF_TOKEN": KEY, "GREETING": PROMPT, "A": "1"},
                    "config": {"chat_template": PROMPT, "url": f"http://ann:{KEY}@hub/"},
                },
                "names": {"build": "sd1:b1", "path": "sd1:p1", "behaviour": None},
                "partial": [],
            },
        )  # fmt: skip
    config, log, token = home / "demo.yaml", home / "engine.log", home / "state/tokens/demo"
    config.write_text(
        f"model: /m/target # {PROMPT}\nenvironment:\n  MY_KEY: {KEY}\n  GREETING: {PROMPT}\n"
        f"  SLACK_WEBHOOK_URL: {HOOK}\n"
        f"alerts:\n  webhook_env: PAGER\n  webhook: https://hooks/{KEY}\n"
    )
    head = "(APIServer pid=17) INFO 11-22 17:19:32 [logger.py:40]"
    log.write_text(
        f"{head} non-default args: {{'api_key': ['{KEY}'], 'port': 8000}}\n"
        f"{head} Received request cmpl-1: prompt: '{PROMPT}', params: x\n{PROMPT}\n"
        f"{head} calling https://ann:{KEY}@hub/?key={KEY} with Authorization: Bearer {KEY}\n"
        f"(EngineCore pid=9) ERROR 11-22 17:19:32 [core.py:1] EngineCore died: {TOKEN}\n"
        f"{head} not posted to {PAGER}: SLACK_WEBHOOK_URL={HOOK}\n"
    )
    token.parent.mkdir(parents=True)
    token.write_text(TOKEN)
    token.chmod(0o600)
    Registry(places.engines).add(
        Record("demo", URL, 2**22 + 1, 1, None, START, str(log), str(token), str(config))
    )
    return home


def write(*words: str) -> Path:
    assert outcome(["incident", *words, "-o", "a.zip"]) == 0
    return Path("a.zip")


def test_what_a_config_names_as_secret_is_one_wherever_it_stands(known: Path) -> None:
    value = "blue-lamp-tower"  # of no shape, and not in this process's environment
    config, log = known / "demo.yaml", known / "engine.log"
    config.write_text(
        f"model: /m/target\nenvironment:\n  REDIS_PASSWORD: {value}\n  PLACE: {value}\n"
    )
    log.write_text(f"(EngineCore pid=9) ERROR 11-22 17:19:32 [core.py:1] refused {value}\n")
    found = b"".join(members(write("demo", "--last", "10m")).values())
    assert b"refused ***" in found
    assert value.encode() not in found


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def walk_database(path: Path) -> Iterator[bytes]:
    """Every value of the file, unpacked where it is packed."""
    with closing(open_for_reading(path)) as db:
        tables = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        for table in tables:
            for row in db.execute(f"SELECT * FROM {table}"):
                for value in row:
                    data = value if isinstance(value, bytes) else str(value).encode()
                    yield data
                    with suppress(zlib.error):
                        yield zlib.decompress(data)


def test_neither_key_nor_prompt_is_in_any_byte(known: Path, tmp_path: Path) -> None:
    path = write("demo", "--last", "20m")
    found = members(path)
    database = tmp_path / "unpacked.db"
    database.write_bytes(found["recording.db"])
    contents = [*found.values(), *walk_database(database), path.read_bytes()]
    assert sum(map(len, contents)) > 100_000
    for planted in (KEY, TOKEN, "plantedhook", "plantedpager", "PLANTEDPROMPT", "biopsy"):
        for spelt in (planted, planted.replace("-", "%2D")):
            assert not any(spelt.encode() in content for content in contents), planted


def test_the_page_tells_the_story(known: Path, capsys: Captured) -> None:
    path = write("demo", "--last", "20m")
    page = members(path)["incident.md"].decode()
    assert "acceptance fell from 69% to 20%" in page
    assert "mira set fallback warm → cold" in page
    assert f"`specdeck set {URL} fallback=warm`" in page
    assert "did not answer" in page.lower()
    assert "to the end of the recording" in page
    assert "sampled" in page
    assert "EngineCore died" in page
    order = ["In short", "Charts", "Before and after", "Changes", "What happened", "Why",
             "Who suffers", "Settings", "What is in this file"]  # fmt: skip
    places = [page.index(f"## {one}") for one in order]
    assert places == sorted(places)
    said = capsys.readouterr()
    assert "acceptance fell from 69% to 20%" in said.out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_commands_have_the_file_of_the_token_and_not_the_token(home: Path) -> None:
    places = locations({"SPECDECK_HOME": str(home)})
    record_poison(box_path(places.black_boxes, URL))
    token = Path("night token")
    token.write_text(TOKEN)
    token.chmod(0o600)
    page = members(write(URL, "--admin-token-file", str(token)))["incident.md"].decode()
    assert f"specdeck set {URL} --admin-token-file '{token.absolute()}' policy=goodput" in page
    assert TOKEN not in page
    page = members(write(URL, "--force"))["incident.md"].decode()
    assert f"specdeck set {URL} --admin-token-file TOKEN_FILE policy=goodput" in page
    assert "SPECDECK_ADMIN_TOKEN" in page


def test_the_cause_stands_in_why(known: Path) -> None:
    found = members(write("demo", "--last", "20m"))
    why = json.loads(found["why.json"])
    assert why["causes"][0]["cause"] == "temperature"
    kinds = {(one["by"], one["word"]): one for one in json.loads(found["cohorts.json"])["kinds"]}
    sampled = kinds["temperature", "sampled"]
    assert sampled["before"]["acceptance"] == pytest.approx(0.6, abs=0.02)
    assert sampled["after"]["acceptance"] == pytest.approx(0.05, abs=0.02)


def test_all_members_are_there_and_what_is_not_has_its_reason(known: Path) -> None:
    found = members(write("demo", "--last", "20m"))
    assert list(found) == [
        "incident.md", "acceptance.svg", "tokens.svg", "manifest.json", "why.json", "cohorts.json",
        "audit.json", "checks.json", "fingerprint.json", "facts.json", "state.json", "config.yaml",
        "engine.log", "recording.db",
    ]  # fmt: skip
    manifest = json.loads(found["manifest.json"])
    assert set(manifest["members"]) == set(found)
    assert manifest["readings"] == SECONDS + 20
    assert {"metrics", "state", "steps"} <= set(manifest["missing"])
    assert json.loads(found["checks.json"])[0]["summary"]["verdict"] == "pass"
    assert b"model: /m/target" in found["config.yaml"]
    for name in ("acceptance.svg", "tokens.svg"):
        drawn = ET.fromstring(found[name])
        assert drawn.tag.endswith("svg")
        assert "cold" in "".join(drawn.itertext())


def test_a_config_of_aliases_without_an_end_is_left_out(known: Path) -> None:
    lines = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)]
    (known / "demo.yaml").write_text("a0: &a0 [x, x]\n" + "".join(lines))
    found = members(write("demo", "--last", "20m"))
    assert "config.yaml" not in found
    missing = json.loads(found["manifest.json"])["missing"]
    assert "more values than a config ever has" in missing["config.yaml"]


def test_the_recording_opens_as_the_whole_does(known: Path) -> None:
    path = write("demo", "--last", "20m")
    places = locations({"SPECDECK_HOME": str(known)})
    with (
        extract_recording(path) as extracted,
        closing(History(extracted)) as part,
        closing(History(box_path(places.black_boxes, URL))) as whole,
    ):
        start, end = START, START + SECONDS
        assert part.overview(start, end, 60) == whole.overview(start, end, 60)
        assert [one.window for one in part.readings(start, end)] == [
            one.window for one in whole.readings(start, end)
        ]
        assert part.cohorts_at(end) == whole.cohorts_at(end)


def test_the_same_engine_gives_the_same_file(known: Path) -> None:
    one = write("demo", "--last", "20m").read_bytes()
    Path("a.zip").unlink()
    assert write("demo", "--last", "20m").read_bytes() == one


def test_an_engine_that_nothing_knows_any_more_is_found_by_its_recording(home: Path) -> None:
    places = locations({"SPECDECK_HOME": str(home)})
    record_collapse(box_path(places.black_boxes, URL))
    found = members(write("demo", "--last", "20m"))
    assert json.loads(found["manifest.json"])["answered"] is None
    assert "config.yaml" not in found
    page = found["incident.md"].decode()
    assert "It was not asked" in page
    assert "config.yaml" in page


def test_an_engine_that_has_ended_has_its_config_and_log_by_its_url(known: Path) -> None:
    engines = locations({"SPECDECK_HOME": str(known)}).engines
    registry = Registry(engines)
    (record_,) = registry.records()
    here = process.find_host()
    (engines / f"{record_.name}.json").unlink()  # its token stays
    registry.add(
        replace(
            record_, host=here.name, machine=here.machine, namespace=here.namespace,
            boot=process.boot(),
        )
    )  # fmt: skip
    found = members(write(URL, "--last", "20m"))
    assert {"config.yaml", "engine.log"} <= set(found)
    assert b"EngineCore died: ***" in found["engine.log"]


def test_an_engine_that_ended_long_ago_has_the_end_of_its_recording(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    places = locations({"SPECDECK_HOME": str(home)})
    record_collapse(box_path(places.black_boxes, URL))
    monkeypatch.setattr(time, "time", lambda: START + 86_400.0)
    manifest = json.loads(members(write("demo"))["manifest.json"])
    assert manifest["readings"] == SECONDS + 20
    assert "the recording ended" in capsys.readouterr().err


def test_without_anything_there_is_no_file(capsys: Captured) -> None:
    assert outcome(["incident", "http://127.0.0.1:9", "-o", "a.zip"]) == 3
    assert "nothing of it is recorded" in capsys.readouterr().err
    assert not Path("a.zip").exists()
    assert outcome(["incident", "nobody"]) == 2
    assert "no engine called nobody" in capsys.readouterr().err


def test_a_file_that_is_there_stays(known: Path, capsys: Captured) -> None:
    Path("a.zip").write_text("mine")
    assert outcome(["incident", "demo", "-o", "a.zip"]) == 2
    assert "--force" in capsys.readouterr().err
    assert Path("a.zip").read_text() == "mine"
    assert outcome(["incident", "demo", "-o", "a.zip", "--force", "--json"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert said["file"] == "a.zip"
    assert said["falls"][0]["figure"] == "acceptance"


@pytest.mark.parametrize(
    "words",
    [["--last", "0m"], ["--last", "x"], ["--from", "25:00"], ["--last", "5m", "--from", "-5m"],
     ["--from", "-5m", "--to", "-10m"], ["--last", "30d"]],
)  # fmt: skip
def test_nonsense_is_refused(words: list[str], capsys: Captured) -> None:
    assert outcome(["incident", URL, *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_console_writes_into_a_folder(known: Path, tmp_path: Path) -> None:
    said: list[str] = []
    found = asyncio.run(write_around(URL, tmp_path, (START - 1200.0, None), said.append))
    path = found.path
    assert found.left_out is not None
    assert "config.yaml, engine.log: specdeck runs no such engine" in found.left_out
    assert path.parent == tmp_path
    assert path.name.startswith("incident-")
    assert "recording.db" in members(path)
    assert said


def test_the_console_writes_the_time_around_a_moment(known: Path, tmp_path: Path) -> None:
    stretch = (START + 100.0, START + 400.0)
    path = asyncio.run(write_around(URL, tmp_path, stretch, lambda what: None)).path
    manifest = json.loads(members(path)["manifest.json"])
    assert manifest["span"] == {"start": stretch[0], "end": stretch[1]}
    assert manifest["readings"] == 301


def test_since_and_until_are_from_and_to(known: Path) -> None:
    spans = []
    for words in (("--since", "-8m", "--until", "-3m"), ("--from", "-8m", "--to", "-3m")):
        spans.append(json.loads(members(write("demo", *words, "--force"))["manifest.json"])["span"])
    assert spans[0] == spans[1]
    assert spans[0]["end"] - spans[0]["start"] == 300.0


def test_a_live_engine_without_a_recording_tells_what_it_is() -> None:
    with serve_engine(HttpEngine()) as engine:
        found = members(write(engine.url))
    manifest = json.loads(found["manifest.json"])
    assert manifest["answered"] is True
    assert {"recording", "recording.db"} <= set(manifest["missing"])
    assert "nothing is recorded" in manifest["missing"]["recording.db"]
    assert json.loads(found["state.json"])["state"]["vllm"] == "0.32.0"
    assert "acceptance.svg" not in found
    page = found["incident.md"].decode()
    assert "It answered" in page
    assert "What could not be had" in page


def test_an_engine_without_the_plugin_has_its_counters_alone(home: Path) -> None:
    places = locations({"SPECDECK_HOME": str(home)})
    readings = [replace(one, state=None) for one in collapsed_readings()]
    record(box_path(places.black_boxes, URL), readings, rows=60).close()
    found = members(write(URL))
    page = found["incident.md"].decode()
    assert "acceptance fell from 69% to 20%" in page
    assert "state.json" not in found
    assert "why.json" not in found


def test_a_damaged_recording_is_told_as_far_as_it_goes(home: Path) -> None:
    places = locations({"SPECDECK_HOME": str(home)})
    path = box_path(places.black_boxes, URL)
    record_collapse(path)
    data = path.read_bytes()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(data[: len(data) // 2])
    code = outcome(["incident", URL, "-o", "a.zip"])
    assert code in (0, 3)
    assert Path("a.zip").exists() == (code == 0)


def test_what_an_engine_answers_is_taken_out_as_well(known: Path) -> None:
    state = engine_state(
        policy_reason=REASON, alarm=f"prompt: {PROMPT}",
        last_change=LastChange(START, f"ann token {KEY}", REASON, {"k": 5}, {"k": 3}, "operator"),
    )  # fmt: skip
    answers: dict[str, Any] = {
        "/metrics": (200, recorded_page("speculative")),
        f"{PREFIX}/state": (200, state.as_json()),
        f"{PREFIX}/facts": (
            200, {"facts": {"environment": {"A_TOKEN": KEY, "HELLO": PROMPT}}, "names": {"a": KEY}},
        ),
    }  # fmt: skip
    with serve_engine(HttpEngine(answers)) as engine:
        found = members(write(engine.url))
    assert {"state.json", "facts.json"} <= set(found)
    for content in found.values():
        assert KEY.encode() not in content
        assert b"biopsy" not in content


def test_a_file_that_cannot_be_written_is_one_line(known: Path, capsys: Captured) -> None:
    assert outcome(["incident", "demo", "-o", "no/such/folder/a.zip"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    Path("closed").mkdir(mode=0o500)
    if os.geteuid() != 0:
        assert outcome(["incident", "demo", "-o", "closed/a.zip"]) == 2


def test_a_recording_that_is_too_large_loses_its_beginning(
    known: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_module, "_LARGEST_RECORDING", 1)
    found = members(write("demo", "--last", "20m"))
    manifest = json.loads(found["manifest.json"])
    assert 59 <= manifest["readings"] < SECONDS
    assert any("too large" in note for note in manifest["notes"])
    assert "acceptance fell" in found["incident.md"].decode()


def test_states_that_differ_each_second_are_looked_through_to_a_bound(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_module, "_MOST_TEXT", 300_000)
    readings = [
        replace(one, state=replace(one.state, policy_reason=f"{n} {'w' * 1000}"))
        for n, one in enumerate(collapsed_readings(down=0))
        if one.state is not None
    ]
    record(box_path(locations({"SPECDECK_HOME": str(home)}).black_boxes, URL), readings).close()
    manifest = json.loads(members(write(URL, "--last", "20m"))["manifest.json"])
    assert 50 < manifest["readings"] < 200
    assert any("too large" in note for note in manifest["notes"])
