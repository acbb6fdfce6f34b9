"""`specdeck fingerprint` against a small server that answers as an engine does."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.facts_engine import FactsEngine
from tests.support.http_engine import serve_engine
from tests.support.unread_stdout import unread_stdout

from specdeck.console.cli import fingerprint
from specdeck.console.cli.expectations import open_fingerprints
from specdeck.console.cli.fingerprint import ReadingLog
from specdeck.console.cli.main import outcome
from specdeck.engine.client.webhook import Webhook
from specdeck.engine.fingerprint.fingerprint import Progress
from specdeck.engine.launch import process
from specdeck.engine.launch.registry import Record
from specdeck.engine.operations.drift import DriftWatcher, FactsRead

Captured = pytest.CaptureFixture[str]


def make_engine() -> FactsEngine:
    engine = FactsEngine(
        {
            "engine": {"vllm": "0.32.0"},
            "model": {"draft": {"weights": {"model.safetensors": "a" * 64}}},
        }
    )
    engine.k = 6
    return engine


@pytest.fixture
def engine() -> Iterator[FactsEngine]:
    with serve_engine(make_engine()) as engine:
        yield engine


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def deck(*words: str) -> int:
    return outcome(["fingerprint", *words])


def turn(engine: FactsEngine, k: int) -> None:
    engine.k = k


def started(engine: FactsEngine, home: Path, name: str = "demo") -> None:
    """specdeck has started the engine, which this process serves, under this name."""
    root = home / "state/engines"
    root.mkdir(parents=True, exist_ok=True)
    me, here = process.find_leader(os.getpid()), process.find_host()
    assert me is not None
    record = Record(
        name, engine.url, me.pid, me.born, me.boot, 0.0, "/log", "/token",
        host=here.name, machine=here.machine, namespace=here.namespace,
    )  # fmt: skip
    (root / f"{name}.json").write_text(json.dumps(record.as_json()))


def pinned(home: Path) -> list[str]:
    return sorted(file.name for file in home.rglob("pins/*.json"))


def test_a_pin_of_a_named_engine_outlives_its_port(
    engine: FactsEngine, home: Path, capsys: Captured
) -> None:
    started(engine, home)
    assert deck("pin", "demo") == 0
    assert pinned(home) == ["demo.json"]
    with serve_engine(make_engine()) as elsewhere:
        started(elsewhere, home)
        turn(elsewhere, 5)
        spelt = ("demo", elsewhere.url, elsewhere.url.rpartition(":")[2])
        codes = [deck("verify", each) for each in spelt] + [deck("diff", "demo")]
    assert codes == [1, 1, 1, 1]
    assert capsys.readouterr().out.count("knob changed: k 6 → 5") == 4


def test_two_engines_of_one_config_have_pins_of_their_own(
    engine: FactsEngine, home: Path, capsys: Captured
) -> None:
    started(engine, home, "demo-2")
    assert deck("pin", engine.url) == 0
    assert pinned(home) == ["demo-2.json"]
    started(engine, home, "demo")
    capsys.readouterr()
    assert deck("verify", "demo") == 2
    assert "pins/demo.json" in capsys.readouterr().err


def test_a_pin_from_before_the_name_is_read_and_said_where(
    engine: FactsEngine, home: Path, capsys: Captured
) -> None:
    assert deck("pin", engine.url) == 0
    by_url = pinned(home)
    started(engine, home)
    capsys.readouterr()
    assert deck("verify", "demo") == 0
    assert f"is stored under the engine's URL, in {home}" in capsys.readouterr().err
    assert deck("pin", "demo") == 0
    assert pinned(home) == ["demo.json", *by_url]
    capsys.readouterr()
    assert deck("verify", engine.url) == 0
    assert capsys.readouterr().err == ""


async def test_console_and_watch_find_the_pin_under_the_name(
    engine: FactsEngine, home: Path
) -> None:
    started(engine, home)
    fingerprints = open_fingerprints()
    written = await fingerprints.pin(await fingerprints.fetch(engine.url))
    assert written.place.name == "demo.json"
    assert await open_fingerprints().read_pin(engine.url) is not None
    assert fingerprints.pin_place(engine.url) == written.place
    assert fingerprints.new_pin_place(engine.url) == written.place


@pytest.mark.parametrize("words", [("nosuch.json",), ("nosuch.json", "@1"), ("pins/prod",)])
def test_what_looks_like_a_file_is_one(words: tuple[str, ...], capsys: Captured) -> None:
    assert deck("diff", *words) == 2
    assert capsys.readouterr().err.startswith(f"specdeck: there is not a pin at {words[0]}:")


def test_a_pin_alone_is_nothing_to_compare(
    engine: FactsEngine, tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "prod.json"
    assert deck("pin", engine.url, "-o", str(file)) == 0
    assert deck("diff", str(file)) == 2
    assert "nothing to compare" in capsys.readouterr().err


def test_a_pin_holds_until_a_knob_is_turned(engine: FactsEngine, capsys: Captured) -> None:
    assert deck("pin", engine.url) == 0
    assert deck("verify", engine.url) == 0
    turn(engine, 5)
    capsys.readouterr()
    assert deck("verify", engine.url) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["knob changed: k 6 → 5", "vLLM's own fingerprint did not move"]
    turn(engine, 6)
    assert deck("verify", engine.url) == 0


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize("words", [["verify"], ["diff"], ["verify", "--expect"]], ids=" ".join)
def test_what_moved_is_the_exit_code_also_where_nobody_reads_it(
    words: list[str], form: list[str], engine: FactsEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert deck("pin", engine.url) == 0
    expected = [engine.names()[2]] if "--expect" in words else []
    turn(engine, 5)
    with unread_stdout(monkeypatch):
        assert deck(*words, *expected, engine.url, *form) == 1


def test_verify_in_json_says_what_moved(
    engine: FactsEngine, capsys: Captured, tmp_path: Path
) -> None:
    pin = tmp_path / "evals" / "prod.json"
    assert deck("pin", engine.url, "--expect", str(pin)) == 0
    engine.facts["model"]["draft"]["weights"]["model.safetensors"] = "b" * 64
    capsys.readouterr()
    assert deck("verify", engine.url, "--expect", str(pin), "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["same"], found["verdict"]) == (False, "model")
    assert found["verdicts"][0]["text"] == "model changed: draft"
    assert found["layers"] == {"build": True, "path": True, "behaviour": None}
    assert found["system_fingerprint"]["moved"] is False


def test_a_name_alone_can_be_expected(engine: FactsEngine, capsys: Captured) -> None:
    _, _, path = engine.names()
    assert deck("verify", engine.url, "--expect", path) == 0
    assert deck("verify", engine.url, "--expect", f"vllm-0.32.0-09d54272-{path}") == 0
    turn(engine, 1)
    assert deck("verify", engine.url, "--expect", path) == 1
    assert f"{path} was expected" in capsys.readouterr().out


def test_a_partial_name_is_never_verified_by_itself(engine: FactsEngine, capsys: Captured) -> None:
    engine.partial = [{"fact": "model.target.weights", "reason": "the file changed meanwhile"}]
    for name in engine.names()[1:]:
        assert "~" in name
        assert deck("verify", engine.url, "--expect", name) == 1
        assert f"is {name}; not every fact could be read" in capsys.readouterr().out
        assert deck("verify", engine.url, "--expect", name, "--json") == 1
        found = json.loads(capsys.readouterr().out)
        assert (found["same"], found["found"]) == (False, name)


def test_names_that_moved_while_no_fact_did_are_not_as_pinned(
    engine: FactsEngine, capsys: Captured, tmp_path: Path
) -> None:
    assert deck("pin", engine.url) == 0
    engine.other_names = "sd1:b" + "1" * 16, "sd1:p" + "2" * 16
    capsys.readouterr()
    gauges = tmp_path / "drift.prom"
    assert deck("verify", engine.url, "--json", "--metrics-file", str(gauges)) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["same"], found["verdict"]) == (False, "unknown")
    assert "the build's name moved and no fact tells why" in found["verdicts"][0]["text"]
    assert found["partial"][0]["fact"] == "names"
    assert f'verdict{{engine="{engine.url}",kind="same"}} 0.0' in gauges.read_text()


def test_a_name_of_other_facts_is_not_taken_for_the_expected_one(
    engine: FactsEngine, capsys: Captured
) -> None:
    _, build, path = engine.names()
    engine.other_names = build, path
    engine.facts["engine"]["vllm"] = "0.33.0"
    why = "the names do not follow from the facts that came with them"
    for name in (build, path):
        assert deck("verify", engine.url, "--expect", name) == 1
        assert f"is {name}; {why}" in capsys.readouterr().out
        assert deck("verify", engine.url, "--expect", name, "--json") == 1
        found = json.loads(capsys.readouterr().out)
        assert (found["same"], found["found"], found["reason"]) == (False, name, why)


def test_a_fact_that_is_spelt_like_the_api_key_leaves_an_expected_name_to_the_engine(
    engine: FactsEngine, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "a-name-of-the-house")
    engine.facts["engine"]["comment"] = "a-name-of-the-house"
    path = engine.names()[2]
    given = (engine.url, "--expect", path, "--api-key-env", "A_KEY")
    assert deck("verify", *given) == 0
    assert "the names cannot be checked: a fact is spelt like" in capsys.readouterr().err
    turn(engine, 1)
    assert deck("verify", *given) == 1


@pytest.mark.parametrize("expect", ["nowhere.json", "sd1:p123"])
def test_what_cannot_be_expected_is_wrong_usage(
    engine: FactsEngine, capsys: Captured, expect: str
) -> None:
    assert deck("verify", engine.url, "--expect", expect) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "expect",
    ["sd1:x0123456789abcdef", "sd1:x~0123456789abcdef", "vllm-0.32.0-0-sd1:x0123456789abcdef"],
)
def test_the_name_of_a_behaviour_cannot_be_expected(
    engine: FactsEngine, capsys: Captured, expect: str
) -> None:
    assert deck("pin", engine.url) == 0
    capsys.readouterr()
    assert deck("verify", engine.url, "--expect", expect, "--json") == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["error"]["exit_code"] == 2
    assert "rounded" in said.err
    assert "give a pin's file" in said.err
    assert len(said.err.splitlines()) == 1


def test_a_behaviour_is_compared_with_another_or_not_at_all(
    engine: FactsEngine, capsys: Captured
) -> None:
    assert deck("pin", engine.url) == 0
    for words in (("verify", "--behaviour"), ("diff", "--behaviour")):
        capsys.readouterr()
        assert deck(*words, engine.url) == 2
        assert "what both sides were probed for" in capsys.readouterr().err.splitlines()[-1]
        assert deck(words[0], engine.url) == 0
    assert deck("pin", engine.url, "--behaviour") == 0
    assert deck("verify", "--behaviour", engine.url) == 0


@pytest.mark.parametrize("words", [("verify",), ("diff",), ("pin",)])
def test_an_empty_expectation_is_not_the_default_pin(
    engine: FactsEngine, capsys: Captured, words: tuple[str, ...]
) -> None:
    assert deck("pin", engine.url) == 0
    capsys.readouterr()
    assert deck(*words, engine.url, "--expect", "") == 2
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert "--expect" in said.err


def test_an_empty_second_side_is_not_the_default_pin(engine: FactsEngine) -> None:
    assert deck("pin", engine.url) == 0
    assert deck("diff", engine.url, "") == 2


def test_without_a_pin_the_way_to_one_is_said(engine: FactsEngine, capsys: Captured) -> None:
    assert deck("verify", engine.url) == 2
    assert "specdeck fingerprint pin" in capsys.readouterr().err


def test_an_engine_that_is_away_is_3(capsys: Captured) -> None:
    assert deck("show", "http://127.0.0.1:9") == 3
    assert capsys.readouterr().err.startswith("specdeck: http://127.0.0.1:9 refuses")


def test_verify_waits_for_weights_that_are_being_read(
    engine: FactsEngine, capsys: Captured
) -> None:
    assert deck("pin", engine.url) == 0
    reading = {"finished": False, "bytes": 10**9, "total_bytes": 10**11, "file": "m.safetensors"}
    engine.progress = [reading, {"finished": True}]
    assert deck("verify", engine.url) == 0
    assert "reading m.safetensors, 1.0 of 100.0 GB" in capsys.readouterr().err


def test_a_reading_that_stands_still_is_counted_down(
    capsys: Captured,
) -> None:
    log = ReadingLog()
    for second in (0, 5, 15, 16, 30, 0, 15, 45, 60):
        log.write(Progress(False, 10**9, 10**10, "m"), float(second))
    assert capsys.readouterr().err.splitlines() == [
        "specdeck: the engine is reading m, 1.0 of 10.0 GB",
        "specdeck: the engine has got no further for 15 s: given up in 45 s",
        "specdeck: the engine has got no further for 30 s: given up in 30 s",
        "specdeck: the engine has got no further for 15 s: given up in 45 s",
        "specdeck: the engine has got no further for 45 s: given up in 15 s",
    ]


def test_show_says_in_json_as_well_that_facts_are_still_read(
    engine: FactsEngine, capsys: Captured
) -> None:
    reading = {"finished": False, "bytes": 10**9, "total_bytes": 10**11, "file": "m.safetensors"}
    engine.progress = [reading]
    assert deck("show", engine.url, "--json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["names"]["path"]
    assert "reading m.safetensors, 1.0 of 100.0 GB: the names will move once" in shown.err


def test_an_engine_without_the_plugin_is_partial_and_never_equal(
    engine: FactsEngine, capsys: Captured
) -> None:
    assert deck("pin", engine.url) == 0
    engine.plugin = False
    capsys.readouterr()
    assert deck("show", engine.url, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["names"]["path"].startswith("sd1:p~")
    assert {one["reason"] for one in found["partial"]} == {"only the specdeck plugin can tell"}
    assert found["system_fingerprint"] == "vllm-0.32.0-09d54272"
    assert found["facts"]["outside"]["served"] == ["demo"]
    assert deck("verify", engine.url) == 1
    assert "not every fact is known" in capsys.readouterr().out


def test_without_the_plugin_vllms_own_that_moved_is_a_change(
    engine: FactsEngine, capsys: Captured
) -> None:
    engine.plugin = False
    assert deck("pin", engine.url) == 0
    assert deck("verify", engine.url) == 0
    assert "nothing changed, as far as it is known" in capsys.readouterr().out
    engine.system_fingerprint = "vllm-0.32.0-11111111"
    assert deck("verify", engine.url) == 1
    said = capsys.readouterr().out.splitlines()
    assert said == ["vLLM's own fingerprint moved: vllm-0.32.0-09d54272 → vllm-0.32.0-11111111"]


def test_without_the_plugin_vllms_own_that_is_not_told_is_no_match(
    engine: FactsEngine, capsys: Captured
) -> None:
    engine.plugin = False
    assert deck("pin", engine.url) == 0
    engine.system_fingerprint = None
    capsys.readouterr()
    assert deck("verify", engine.url) == 1
    assert "vllm-0.32.0-09d54272 before, is not told" in capsys.readouterr().out


def test_a_fact_that_cannot_be_read_is_named(engine: FactsEngine, capsys: Captured) -> None:
    engine.partial = [{"fact": "model.draft.weights", "reason": "Permission denied"}]
    assert deck("show", engine.url) == 0
    assert "partial    model.draft.weights: Permission denied" in capsys.readouterr().out


def test_a_series_follows_the_name_to_another_address(
    engine: FactsEngine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    async def verify_twice(watcher: DriftWatcher, *_: Any, url: str, **__: Any) -> int:
        with serve_engine(make_engine()) as moved:
            for where in (engine, moved):
                started(where, home)
                async for event in watcher.verify(time.time(), url):
                    assert isinstance(event, FactsRead)
                    assert event.comparison is not None
                    assert event.comparison.same
                    seen.append(event.fingerprint.url)
            assert seen == [engine.url, moved.url]
        return 0

    monkeypatch.setattr(fingerprint, "verify_on", verify_twice)
    started(engine, home)
    assert deck("pin", "demo") == 0
    assert deck("verify", "demo", "--every", "5s") == 0
    assert len(seen) == 2


def test_moments_are_kept_and_compared(engine: FactsEngine, capsys: Captured) -> None:
    for k in (6, 6, 5):
        turn(engine, k)
        assert deck("show", engine.url) == 0
    capsys.readouterr()
    assert deck("show", engine.url, "--history", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["moment"] for row in rows] == ["@2", "@1"]
    assert deck("diff", "@1", "@2") == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["- live.k = 6", "+ live.k = 5"]
    assert deck("diff", "@2", engine.url) == 0
    assert deck("diff", "@9", engine.url) == 2


def test_diff_probes_an_engine_where_its_pin_was_probed(
    engine: FactsEngine, capsys: Captured
) -> None:
    assert deck("pin", engine.url, "--behaviour") == 0
    for option, compared in (((), True), (("--no-behaviour",), False)):
        capsys.readouterr()
        assert deck("diff", engine.url, "--json", *option) == 0
        found = json.loads(capsys.readouterr().out)["layers"]["behaviour"]
        assert (found is not None) == compared
    assert deck("pin", engine.url) == 0
    capsys.readouterr()
    assert deck("diff", engine.url, "--json") == 0
    assert json.loads(capsys.readouterr().out)["layers"]["behaviour"] is None


def test_diff_of_one_engine_is_since_its_pin(engine: FactsEngine, capsys: Captured) -> None:
    assert deck("pin", engine.url) == 0
    assert deck("diff", engine.url) == 0
    turn(engine, 2)
    assert deck("diff", engine.url, "--json") == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["differences"] == [
        {"fact": "live.k", "kind": "changed", "before": 6, "after": 2}
    ]


def test_verify_leaves_its_outcome_as_gauges(
    engine: FactsEngine, capsys: Captured, tmp_path: Path
) -> None:
    assert deck("pin", engine.url) == 0
    turn(engine, 5)
    capsys.readouterr()
    file = tmp_path / "drift.prom"
    assert deck("verify", engine.url, "--metrics-file", str(file)) == 1
    assert "knob changed: k 6 → 5" in capsys.readouterr().out
    text = file.read_text()
    assert f'specdeck_fingerprint_drift{{engine="{engine.url}",layer="path"}} 1.0' in text
    assert f'specdeck_fingerprint_up{{engine="{engine.url}"}} 1.0' in text


def test_one_verification_posts_its_drift_wherever_the_webhook_is_named(
    engine: FactsEngine, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[Any] = []

    async def post(self: Webhook, body: Mapping[str, Any]) -> None:
        posted.append(body)

    monkeypatch.setattr(Webhook, "post", post)
    monkeypatch.setenv("SPECDECK_WEBHOOK", "https://hooks.example/secret")
    assert deck("pin", engine.url) == 0
    assert deck("verify", engine.url) == 0
    assert posted == []
    turn(engine, 5)
    capsys.readouterr()
    assert deck("verify", engine.url) == 1
    assert [body["event"] for body in posted] == ["fingerprint.drift"]
    said = capsys.readouterr()
    assert said.out.startswith("knob changed: k 6 → 5\n")
    assert "secret" not in said.out + said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--every", "soon"), "is no time"),
        (("--metrics-port", "9123"), "requires --every"),
        (("--webhook-env", "NOT_SET_HERE", "--every", "5s"), "NOT_SET_HERE is not set"),
        (("--metrics-file", "a.prom", "--expect", "sd1:p0123456789abcdef"), "give a pin's file"),
        (("--every", "5s", "--expect", "vllm-0-sd1:p0123456789abcdef"), "give a pin's file"),
    ],
)
def test_verifying_on_and_on_refuses_nonsense(
    engine: FactsEngine, capsys: Captured, words: tuple[str, ...], said: str
) -> None:
    assert deck("pin", engine.url) == 0
    assert deck("verify", engine.url, *words) == 2
    assert said in capsys.readouterr().err
