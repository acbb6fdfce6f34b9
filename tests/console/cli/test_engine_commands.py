"""The command line against a small server that answers as an engine does."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import httpx
import pytest
from tests.support.engine_state import engine_state
from tests.support.http_engine import Answer, HttpEngine, answer, serve_engine
from tests.support.pages import recorded_page

from specdeck.console.cli.audit import history_lines
from specdeck.console.cli.check import trip
from specdeck.console.cli.common import until_signal
from specdeck.console.cli.engines import Access
from specdeck.console.cli.main import outcome
from specdeck.console.cli.operator import find_operator
from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.errors import NoReply
from specdeck.engine.operations.check import Trip
from specdeck.engine.protocol.messages import PREFIX, TOKEN_HEADER, Capability
from specdeck.engine.protocol.tuning import BreakerTuning, TrialTuning, Tuning
from specdeck.engine.store.audit import Action, AuditLog
from specdeck.engine.store.database import Store

Captured = pytest.CaptureFixture[str]

TOKEN = "the-admin-token"

STATE = engine_state(
    running=0,
    capabilities=(
        Capability("live_k", True),
        Capability("cold", False, "it has no drafter", "start it with one"),
    ),
)

REVERTED = Tuning(
    "one", 1, 0.0, "fixed", None, (), (), BreakerTuning("closed", False),
    TrialTuning(
        "reverted", find_operator(), {"k": 5}, {"k": 3}, 30.0, 1.0, verdict="worse",
        reason="worse: -3 %", number=1,
    ),
)  # fmt: skip
"""Of an engine that has just taken a trial back."""


@pytest.fixture
def engine() -> Iterator[HttpEngine]:
    with serve_engine(HttpEngine()) as engine:
        engine.answers[f"{PREFIX}/state"] = (200, STATE.as_json())
        yield engine


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", TOKEN)
    return tmp_path / "home"


@pytest.fixture
def watch(engine: HttpEngine) -> Callable[..., int]:
    def watched(*words: str) -> int:
        return outcome(["watch", engine.url, "--interval", "0.05", *words])

    return watched


def test_watch_prints_a_sample_a_line(
    watch: Callable[..., int], engine: HttpEngine, capsys: Captured
) -> None:
    assert watch("--json", "--count", "2") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2
    assert all(line["up"] and line["engine"] == engine.url for line in lines)
    assert (lines[0]["k"], lines[0]["k_max"], lines[0]["mode"]) == (5, 5, "speculate")


def test_watch_without_json_is_a_table(watch: Callable[..., int], capsys: Captured) -> None:
    assert watch("--count", "2") == 0
    heading, first, _ = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["TIME", "MODE", "K"]
    assert first.split()[1:3] == ["speculate", "5/5"]


def test_an_engine_without_the_plugin_is_watched_all_the_same(
    watch: Callable[..., int], engine: HttpEngine, capsys: Captured
) -> None:
    del engine.answers[f"{PREFIX}/state"]
    assert watch("--json", "--count", "1") == 0
    assert json.loads(capsys.readouterr().out)["k"] is None


@pytest.mark.parametrize(
    ("path", "answer", "said"),
    [
        ("/metrics", (200, "<html>hello</html>"), "specdeck: "),
        ("/metrics", (404, "nothing"), "no vLLM"),
        ("/metrics", (401, "key"), "--api-key-env"),
        (f"{PREFIX}/state", (401, {"error": "Unauthorized"}), "--api-key-env"),
    ],
)
def test_what_no_later_sample_can_mend_is_exit_3(
    watch: Callable[..., int],
    engine: HttpEngine,
    capsys: Captured,
    path: str,
    answer: Answer,
    said: str,
) -> None:
    engine.answers[path] = answer
    assert watch("--json", "--count", "1") == 3
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_an_engine_that_was_never_up_is_lines_and_exit_3(capsys: Captured) -> None:
    assert outcome(["watch", "127.0.0.1:9", "--json", "--interval", "0.05", "--count", "2"]) == 3
    said = capsys.readouterr()
    assert [json.loads(line)["up"] for line in said.out.splitlines()] == [False, False]
    assert "refuses connections" in said.err


def test_the_api_key_travels_in_a_header_only(
    watch: Callable[..., int],
    engine: HttpEngine,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret")
    assert watch("--json", "--count", "1", "--api-key-env", "MY_KEY") == 0
    assert engine.asked[0].headers["Authorization"] == "Bearer s3cret"
    said = capsys.readouterr()
    assert "s3cret" not in said.out + said.err


def test_set_shows_requested_applied_and_observed(
    engine: HttpEngine, capsys: Captured, home: Path
) -> None:
    assert outcome(["set", engine.url, "k=3", "--reason", "try", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["requested"], told["applied"], told["before"]) == ({"k": 3}, {"k": 3}, {"k": 5})
    assert told["undo"] == f"specdeck set {engine.url} k=5"
    assert told["observed_k"] is None
    (sent,) = engine.sent_to("/control")
    assert sent.headers[TOKEN_HEADER] == TOKEN
    assert json.loads(sent.content)["k"] == 3
    with Store(home / "data" / "specdeck.sqlite") as store:
        (action,) = AuditLog(store).actions(engine.url, 1)
    assert (action.before, action.after, action.reason) == ({"k": 5}, {"k": 3}, "try")


def test_what_was_changed_is_read_back_the_newest_first(
    engine: HttpEngine, capsys: Captured, home: Path
) -> None:
    assert outcome(["set", engine.url, "--history"]) == 0
    assert "no change of" in capsys.readouterr().err
    for value, reason in (("k=3", "try"), ("mode=target-only", "night")):
        assert outcome(["set", engine.url, value, "--reason", reason]) == 0
    with Store(home / "data" / "specdeck.sqlite") as store:
        AuditLog(store).set_observed(1, 3.0)
    capsys.readouterr()
    asked = len(engine.asked)
    assert outcome(["set", engine.url, "--history"]) == 0
    head, night, first = capsys.readouterr().out.splitlines()
    assert head.split() == ["TIME", "(UTC)", "WHO", "CHANGE", "OBSERVED", "REASON", "UNDO"]
    assert "night" in night
    assert "k 5 → 3" in first
    assert "3.00" in first
    assert first.endswith(f"specdeck set {engine.url} k=5")
    assert outcome(["set", engine.url, "--history", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["before"], one["reason"], one["observed_k"]) for one in told[1:]] == [
        ({"k": 5}, "try", 3.0)
    ]
    assert {one["origin"] for one in told} == {"operator"}
    assert len(engine.asked) == asked  # it need not run
    with Store(home / "data" / "specdeck.sqlite") as store, store.transaction() as db:
        db.execute("UPDATE actions SET t = -5.0 WHERE id = 2")
    assert outcome(["set", engine.url, "--history"]) == 0
    said = capsys.readouterr()
    assert [line.split() for line in said.out.splitlines()] == [head.split(), first.split()]
    assert "1 change in the store cannot be read and is left out" in said.err


def test_a_history_fits_the_terminal_and_stays_a_table_in_a_pipe() -> None:
    undo = "specdeck set http://127.0.0.1:52151 k=6 policy=goodput --reason 'as it was before'"
    action = Action(
        0.0, "ann", "http://e:1", "e", {"k": 6, "policy": "goodput"}, {"k": 3, "policy": "fixed"},
        undo, reason="a\x1b[2J reason " * 8, observed=3.0,
    )  # fmt: skip
    narrow = history_lines([action, action], 80)
    assert all(len(line) <= 80 for line in narrow if "undo" not in line)
    assert narrow[-1].split("undo")[1].strip() == undo  # in one piece, to be copied
    assert narrow[0] == "1970-01-01 00:00:00 UTC  ann"
    assert narrow[1] == "  change    k 6 → 3, policy goodput → fixed"
    table = history_lines([action, action], None)
    assert len(table) == 3
    assert history_lines([action, action], len(table[1])) == table


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--lease", "abc"], "'abc' is not a valid number"), (["--lease", "0"], "0")],
)
def test_a_number_that_is_none_is_told_as_that(
    engine: HttpEngine, words: list[str], said: str, capsys: Captured
) -> None:
    assert outcome(["set", engine.url, "k=3", *words]) == 2
    assert said in capsys.readouterr().err
    assert engine.asked == []


@pytest.mark.parametrize("words", [[], ["k=3", "--history"]])
def test_set_wants_something_to_set_or_to_show(engine: HttpEngine, words: list[str]) -> None:
    assert outcome(["set", engine.url, *words]) == 2
    assert engine.asked == []


def test_a_lease_is_said_to_end(engine: HttpEngine, capsys: Captured) -> None:
    assert outcome(["set", engine.url, "k=3", "--lease", "30"]) == 0
    said = capsys.readouterr()
    assert "reverts this in 30 s" in said.err
    assert "requested  k=3" in said.out
    sent = engine.sent_to("/control")[0].content
    assert json.loads(sent)["lease_s"] == 30.0


def test_a_lease_that_ends_meanwhile_is_told_as_ended(engine: HttpEngine, capsys: Captured) -> None:
    last = {"t": 1000.0, "who": "specdeck", "reason": "the lease ran out", "before": {"k": 3},
            "after": {"k": 5}, "origin": "lease"}  # fmt: skip
    over = {**engine_state().as_json(), "version": 2, "last_change": last}
    engine.answers[f"{PREFIX}/state"] = (200, over)
    words = ["set", engine.url, "k=3", "--lease", "1"]
    assert outcome(words) == 0
    said = capsys.readouterr()
    assert said.err == ("specdeck: not observed: the lease has ended: the engine is back at k=5\n")
    assert "undo" not in said.out
    assert outcome([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["applied"], found["reverted"]) == ({"k": 3}, {"k": 5})


def test_parameters_and_the_breaker_are_sent_as_they_are_spelled(
    engine: HttpEngine, capsys: Captured
) -> None:
    words = ["goodput.margin=0.03", "breaker=open", "breaker.acceptance_floor=none"]
    made = {"goodput.margin": 0.03, "breaker": "open", "breaker.acceptance_floor": None}
    engine.answers[f"{PREFIX}/control"] = (
        200, {"before": {}, "applied": made, "version": 1, "step": 1},
    )  # fmt: skip
    assert outcome(["set", engine.url, *words, "--json"]) == 0
    sent = engine.sent_to("/control")[0].content
    asked = json.loads(sent)
    assert asked["parameters"] == {"goodput.margin": 0.03, "breaker.acceptance_floor": "none"}
    assert asked["breaker"] == "open"


def test_a_trial_stays_until_its_verdict_and_is_in_the_audit_log(
    engine: HttpEngine, capsys: Captured, home: Path
) -> None:
    engine.answers[f"{PREFIX}/tuning"] = (200, REVERTED.as_json())
    assert outcome(["set", engine.url, "k=3", "--trial", "30", "--reason", "why", "--json"]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert (told["requested"], told["applied"], told["before"]) == ({"k": 3}, {"k": 5}, {"k": 5})
    assert (told["trial"]["state"], told["trial"]["verdict"]) == ("reverted", "worse")
    assert "trial reverted: worse: -3 %" in said.err
    sent = json.loads(engine.sent_to("/control")[0].content)
    assert (sent["judge"], sent["trial_s"], sent["lease_s"]) == (True, 30.0, 10.0)
    with Store(home / "data" / "specdeck.sqlite") as store:
        (action,) = AuditLog(store).actions(engine.url, 1)
    assert action.reason == "trial reverted: worse: -3 %"


def test_a_trial_that_was_reverted_says_what_was_tried_and_offers_no_undo(
    engine: HttpEngine, capsys: Captured
) -> None:
    engine.answers[f"{PREFIX}/tuning"] = (200, REVERTED.as_json())
    notice = "the change is made after 7 s of work as it is now"
    engine.answers[f"{PREFIX}/control"] = (
        200,
        {"before": {"k": 5}, "applied": {"k": 5}, "version": 1, "step": 1, "trial": 1,
         "notices": [notice]},
    )  # fmt: skip
    assert outcome(["set", engine.url, "k=3", "--trial", "30"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "requested  k=3",
        "on trial   k=3, reverted: k=5 applies again",
        "observed   –",
        "trial      reverted: worse: -3 %",
    ]
    assert said.err.splitlines() == [
        f"specdeck: {notice}", "specdeck: trial reverted: worse: -3 %"
    ]  # fmt: skip


def test_a_breaker_that_is_to_come_back_by_itself_is_a_word(
    engine: HttpEngine, capsys: Captured
) -> None:
    knobs = {"before": {"breaker": "closed"}, "applied": {"breaker": "open"}}
    engine.answers[f"{PREFIX}/control"] = (200, {**knobs, "version": 1, "step": 1})
    assert outcome(["set", engine.url, "breaker=probe", "--json"]) == 0
    sent = json.loads(engine.sent_to("/control")[0].content)
    assert (sent["breaker"], sent["probe"]) == ("open", True)
    assert json.loads(capsys.readouterr().out)["requested"] == {"breaker": "probe"}


def stopped_at(engine: HttpEngine, path: str, number: signal.Signals) -> None:
    """Sends a signal to this process once `path` is asked for after a change, and never answers."""
    usual = engine.answers[path]
    sent: list[signal.Signals] = []

    def respond(request: httpx.Request) -> httpx.Response:
        if sent or not engine.sent_to("/control"):
            return usual(request) if callable(usual) else answer(*usual)
        sent.append(number)
        os.kill(os.getpid(), number)
        engine.ended.wait()
        raise httpx.ReadError("ended")

    engine.answers[path] = respond


def audited(home: Path, engine: HttpEngine) -> list[tuple[object, ...]]:
    with Store(home / "data" / "specdeck.sqlite") as store:
        found = AuditLog(store).actions(engine.url)
    return [(one.before, one.after, one.undo, one.reason) for one in found]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_change_that_is_no_longer_watched_is_in_the_audit_log_and_its_undo_is_told(
    engine: HttpEngine, capsys: Captured, home: Path,
    number: signal.Signals,
) -> None:  # fmt: skip
    stopped_at(engine, "/metrics", number)
    assert outcome(["set", engine.url, "k=3", "--reason", "try"]) == 130
    undo = f"specdeck set {engine.url} k=5"
    assert f"specdeck: interrupted: the change is made: `{undo}`" in capsys.readouterr().err
    assert audited(home, engine) == [({"k": 5}, {"k": 3}, undo, "try")]


def test_what_is_observed_of_a_change_is_in_the_audit_log_with_it(
    engine: HttpEngine, home: Path
) -> None:
    after = re.sub(
        r"(?m)^(vllm:(?:generation_tokens|spec_decode_num_draft\w*)_total\{[^}]*\}) (\S+)$",
        lambda found: f"{found[1]} {float(found[2]) + (3 if 'draft_tokens' in found[1] else 1)}",
        recorded_page("speculative"),
    )
    pages = iter([recorded_page("speculative")])
    engine.answers["/metrics"] = lambda _: httpx.Response(200, text=next(pages, after))
    engine.answers[f"{PREFIX}/state"] = (200, replace(STATE, step=200).as_json())
    assert outcome(["set", engine.url, "k=3"]) == 0
    with Store(home / "data" / "specdeck.sqlite") as store:
        assert [action.observed for action in AuditLog(store).actions()] == [3.0]


def test_a_trip_of_an_open_breaker_names_what_resets_it(
    engine: HttpEngine, capsys: Captured, home: Path
) -> None:
    knobs = {"before": {"breaker": "open"}, "applied": {"breaker": "open"}}
    engine.answers[f"{PREFIX}/control"] = (200, {**knobs, "version": 1, "step": 1})
    found = asyncio.run(trip(Access(engine.url), "2 of 9 differ", retry_s=9.0))
    reset = f"specdeck set {engine.url} breaker=closed"
    assert found == Trip("open", reset)
    assert found.as_json() == {"breaker": "open", "undo": reset, "error": None}
    assert f"`{reset}` resets it" in capsys.readouterr().err
    assert [reason for _, _, _, reason in audited(home, engine)] == [
        "specdeck check: 2 of 9 differ"
    ]


@pytest.mark.parametrize(("breaker", "opened"), [("open", True), ("closed", False)])
def test_somebody_s_change_after_a_trip_does_not_tell_whether_the_breaker_is_open(
    breaker: Literal["open", "closed"], opened: bool, engine: HttpEngine, capsys: Captured
) -> None:
    knobs = {"before": {"breaker": "closed"}, "applied": {"breaker": "open"}}
    engine.answers[f"{PREFIX}/control"] = (200, {**knobs, "version": 1, "step": 1})
    after = replace(STATE, version=2, k_set=3, breaker=breaker)
    engine.answers[f"{PREFIX}/state"] = lambda _: answer(
        200, (after if engine.sent_to("/control") else STATE).as_json()
    )
    engine.answers["/metrics"] = (200, recorded_page("speculative"))
    found = asyncio.run(trip(Access(engine.url), "2 of 9 differ", retry_s=0.0))
    assert found.breaker == ("open" if opened else None)
    said = capsys.readouterr().err
    assert ("the breaker is NOT open" in said) != opened
    assert (f"`specdeck set {engine.url} breaker=closed` resets it" in said) == opened
    assert "a newer change took its place" in said


def test_a_trip_that_is_interrupted_says_what_may_be_left(
    engine: HttpEngine, capsys: Captured
) -> None:
    knobs = {"before": {"breaker": "closed"}, "applied": {"breaker": "open"}}
    engine.answers[f"{PREFIX}/control"] = (200, {**knobs, "version": 1, "step": 1})
    engine.answers["/metrics"] = (200, recorded_page("speculative"))
    stopped_at(engine, "/metrics", signal.SIGTERM)

    async def trip_alone() -> int:
        await trip(Access(engine.url), "2 of 9 differ", retry_s=9.0)
        return 0

    assert asyncio.run(until_signal(trip_alone())) == 130
    reset = f"`specdeck set {engine.url} breaker=closed` reverts it"
    assert f"--trip was interrupted: the change is made: {reset}" in capsys.readouterr().err


def test_an_attended_trial_that_the_engine_does_not_revert_is_exit_code_1(
    engine: HttpEngine, capsys: Captured
) -> None:
    trial = replace(REVERTED.trial, state="changed", who=find_operator())  # type: ignore[type-var]  # it has one
    tuning = replace(REVERTED, trial=trial).as_json()
    engine.answers[f"{PREFIX}/tuning"] = (200, tuning)
    engine.answers[f"{PREFIX}/control"] = (
        200, {"before": {"k": 5}, "applied": {"k": 3}, "version": 1, "step": 1, "trial": 1},
    )  # fmt: skip
    left = replace(STATE, version=1, k=3, k_set=3)
    engine.answers[f"{PREFIX}/state"] = lambda _: answer(
        200, (left if engine.sent_to("/control") else STATE).as_json()
    )
    engine.answers["/metrics"] = (200, recorded_page("speculative"))
    stopped_at(engine, "/metrics", signal.SIGINT)
    assert outcome(["set", engine.url, "k=3", "--trial", "30"]) == 1
    said = capsys.readouterr().err
    undo = f"`specdeck set {engine.url} k=5` reverts it"
    assert f"its state has k=3: {undo}" in said


def test_a_detached_trial_that_is_not_seen_is_begun_and_in_the_audit_log(
    engine: HttpEngine, capsys: Captured, home: Path
) -> None:
    engine.answers[f"{PREFIX}/tuning"] = (503, "busy")
    assert outcome(["set", engine.url, "k=3", "--trial", "30", "--detach", "--reason", "why"]) == 0
    assert "the trial has started and is not visible yet" in capsys.readouterr().err
    undo = f"specdeck set {engine.url} k=5"
    assert audited(home, engine) == [({"k": 5}, {"k": 3}, undo, "on trial: why")]


def test_an_attended_trial_whose_take_back_fails_is_not_said_to_be_taken_back(
    engine: HttpEngine, capsys: Captured, home: Path
) -> None:
    engine.answers[f"{PREFIX}/tuning"] = (503, "busy")
    engine.answers[f"{PREFIX}/control"] = (
        200, {"before": {"k": 5}, "applied": {"k": 5}, "version": 1, "step": 1, "trial": 1},
    )  # fmt: skip
    stopped_at(engine, f"{PREFIX}/tuning", signal.SIGTERM)
    assert outcome(["set", engine.url, "k=3", "--trial", "30"]) == 130
    said = capsys.readouterr().err
    assert "interrupted: the engine reverts the change within 10 s" in said
    assert [after for _, after, _, _ in audited(home, engine)] == [{"k": 3}]


def test_a_change_that_is_cut_short_before_the_engines_word_is_not_said_to_be_made(
    engine: HttpEngine, capsys: Captured, home: Path
) -> None:
    engine.asked.append(
        httpx.Request("PUT", "http://e/control")
    )  # so that the first look is cut short
    stopped_at(engine, f"{PREFIX}/state", signal.SIGINT)
    assert outcome(["set", engine.url, "k=3"]) == 130
    said = capsys.readouterr().err
    assert "interrupted: no reply from the engine yet: `specdeck watch" in said
    assert audited(home, engine) == []


@pytest.mark.parametrize(
    "words",
    [
        ["k=3", "--detach"],
        ["k=3", "--trial", "5", "--lease", "5"],
        ["breaker=open", "--trial", "5"],
        ["breaker=ajar"],
        ["goodput=1"],
        ["speed.limit=3"],
        ["goodput.margin=1;2"],
        ["goodput.margin=1", "goodput.margin=2"],
    ],
)
def test_what_cannot_be_asked_is_exit_2(engine: HttpEngine, words: list[str]) -> None:
    assert outcome(["set", engine.url, *words]) == 2
    assert engine.asked == []


def test_a_refusal_is_one_line_with_its_remedy_and_exit_3(
    engine: HttpEngine, capsys: Captured
) -> None:
    error = {"code": "k", "message": "k=9 is above k_max=5", "remedy": "start it with more"}
    engine.answers[f"{PREFIX}/control"] = (501, {"error": error})
    assert outcome(["set", engine.url, "k=9"]) == 3
    assert capsys.readouterr().err == "specdeck: k=9 is above k_max=5: start it with more\n"


def test_a_change_without_a_token_is_not_even_asked(
    engine: HttpEngine, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPECDECK_ADMIN_TOKEN")
    assert outcome(["set", engine.url, "k=3"]) == 3
    assert "admin token" in capsys.readouterr().err
    assert engine.sent_to("/control") == []


def test_the_token_may_lie_in_a_file(
    engine: HttpEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPECDECK_ADMIN_TOKEN")
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o644)
    assert outcome(["set", engine.url, "k=3", "--admin-token-file", str(file)]) == 2
    assert engine.asked == []
    file.chmod(0o600)
    assert outcome(["set", engine.url, "k=3", "--admin-token-file", str(file)]) == 0


def test_doctor_names_what_an_engine_cannot_do_and_the_remedy(
    engine: HttpEngine, capsys: Captured
) -> None:
    assert outcome(["doctor", engine.url]) == 0
    said = capsys.readouterr().out
    assert "✓ live_k" in said
    assert "· cold: it has no drafter: start it with one" in said
    assert TOKEN not in said


def test_doctor_says_when_the_plugin_is_missing(engine: HttpEngine, capsys: Captured) -> None:
    del engine.answers[f"{PREFIX}/state"]
    assert outcome(["doctor", engine.url, "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["control"]["level"] == "warning"
    assert "plugin" in found["control"]["message"]


def test_doctor_fails_where_the_engine_behind_the_api_server_does_not_answer(
    engine: HttpEngine, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(self: EngineClient) -> None:
        raise NoReply(f"{self.url} does not answer within 5 s")

    monkeypatch.setattr(EngineClient, "state", hang)
    assert outcome(["doctor", engine.url]) == 3
    assert "does not answer within 5 s" in capsys.readouterr().err


def test_doctor_warns_where_a_web_page_can_read_an_engine_without_a_key(
    engine: HttpEngine, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(request: httpx.Request) -> httpx.Response:
        allowed = {"Access-Control-Allow-Origin": "*"} if "Origin" in request.headers else {}
        return httpx.Response(200, json={"version": "0.32.0"}, headers=allowed)

    def warnings(*options: str) -> set[str]:
        assert outcome(["doctor", engine.url, "--json", *options]) == 0
        found = json.loads(capsys.readouterr().out)
        return {one["name"] for one in found if one["level"] == "warning"}

    assert warnings() == set()
    engine.answers["/version"] = version
    assert warnings() == {"allowed_origins"}
    monkeypatch.setenv("ENGINE_KEY", "secret")
    assert warnings("--api-key-env", "ENGINE_KEY") == set()


def test_an_engine_that_wants_a_key_is_exit_3(engine: HttpEngine, capsys: Captured) -> None:
    engine.answers["/v1/models"] = (401, {"error": "Unauthorized"})
    assert outcome(["doctor", engine.url]) == 3
    assert "--api-key-env" in capsys.readouterr().err


def test_a_server_that_is_no_vllm_is_not_taken_for_one_without_the_plugin(
    engine: HttpEngine, capsys: Captured
) -> None:
    del engine.answers[f"{PREFIX}/state"]
    del engine.answers[f"{PREFIX}/control"]
    assert outcome(["set", engine.url, "k=3"]) == 3
    assert "without the specdeck plugin" in capsys.readouterr().err
    del engine.answers["/version"]
    assert outcome(["set", engine.url, "k=3"]) == 3
    assert "has no vLLM at this path" in capsys.readouterr().err


def test_doctor_masks_none_of_its_own_words(
    engine: HttpEngine, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPECDECK_ADMIN_TOKEN", raising=False)
    assert outcome(["doctor", engine.url]) == 0
    said = capsys.readouterr().out
    assert "token: without the admin token this is read-only: set SPECDECK_ADMIN_TOKEN" in said
    assert "***" not in said
