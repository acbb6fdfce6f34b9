"""`specdeck check` as scripts and CI see it, against a small server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from math import log
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from tests.support.engine_state import engine_state
from tests.support.http_engine import HttpEngine, serve_engine
from tests.support.pages import recorded_page
from tests.support.unread_stdout import unread_stdout

from specdeck.console.cli.check import CheckSeries, read_again
from specdeck.console.cli.check_arguments import CheckArguments
from specdeck.console.cli.main import outcome
from specdeck.engine.divergence.canary import LEAST_NIGHTS
from specdeck.engine.divergence.prompts import (
    load_prompts,
    load_prompts_aside,
    parse_prompt,
    repeat_prompt,
)
from specdeck.engine.errors import Unreachable, UsageError
from specdeck.engine.operations.check import CheckEvent
from specdeck.engine.paths import locations
from specdeck.engine.protocol.messages import PREFIX, TOKEN_HEADER, Capability
from specdeck.engine.store.database import Store

Captured = pytest.CaptureFixture[str]
KEY = "the-api-key"
TOKEN = "the-admin-token"
KEYS = [
    "verdict", "prompts", "mismatches", "mismatch_rate", "ci95", "noise_floor", "classes",
    "per_session", "arms", "cases",
]  # fmt: skip

STATE = engine_state(running=0, capabilities=(Capability("request_k", True),))


class CheckedEngine(HttpEngine):
    """Continues every prompt in the same way, but for the drafted answers in `wrong`."""

    def __init__(self) -> None:
        super().__init__(
            {
                "/version": (200, {"version": "0.32.0"}),
                "/v1/models": (200, {"data": [{"id": "demo"}]}),
                "/metrics": (200, {}),
                f"{PREFIX}/state": (200, STATE.as_json()),
                f"{PREFIX}/facts": (200, {"facts": {"vllm": "0.32.0"}}),
                f"{PREFIX}/control": self._change,
                "/v1/completions": self._complete,
            }
        )
        self.wrong: set[str] = set()
        self.is_idle = False
        """Whether nothing is drafted."""
        self.completions: list[dict[str, Any]] = []
        """The bodies of what was to be continued."""
        self.changes: list[tuple[dict[str, Any], str | None]] = []
        self.refuses = False
        self.knows_causes = True
        self.stalls: dict[str, int] = {}
        """How many more questions the core leaves unanswered, by path."""
        self.answers_left: int | None = None
        """After so many, requests are kept waiting until `released`."""
        self.blocked = threading.Event()
        self.released = threading.Event()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        left = self.stalls.get(path, 0)
        self.stalls[path] = left - 1
        if left > 0:
            stalled = {
                "code": "stalled",
                "message": "the engine core has not answered for 4 s",
                "remedy": None,
            }
            return httpx.Response(503, json={"error": stalled})
        return super().__call__(request)

    def _change(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.changes.append((body, request.headers.get(TOKEN_HEADER)))
        if self.refuses:
            refused = {"code": "conflict", "message": "no breaker here", "remedy": None}
            return httpx.Response(501, json={"error": refused})
        if "cause" in body and not self.knows_causes:
            refused = {"code": "invalid", "message": "unknown key 'cause'", "remedy": None}
            return httpx.Response(400, json={"error": refused})
        before, after = {"breaker": "closed"}, {"breaker": body["breaker"]}
        applied = {"before": before, "applied": after, "version": 1, "step": 1}
        return httpx.Response(200, json=applied)

    def _complete(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.completions.append(body)
        if self.answers_left is not None:
            self.answers_left -= 1
            if self.answers_left < 0:
                self.blocked.set()
                self.released.wait(30)
        reply = json.dumps(self.completion(body))
        text = f"data: {reply}\n\ndata: [DONE]\n\n" if body.get("stream") else reply
        return httpx.Response(200, text=text)

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("prompt_logprobs", 0) > 10:  # of a continuation
            thought = {str(token): {"logprob": log(1 / 3), "rank": 1} for token in (6, 7, 8)}
            return {"choices": [{"prompt_logprobs": [thought] * len(body["prompt"])}]}
        if "prompt_logprobs" in body:
            thought = {"9": {"logprob": -3.0, "rank": 2}, "5": {"logprob": -0.25, "rank": 1}}
            return {"choices": [{"prompt_logprobs": [thought] * len(body["prompt"])}]}
        if isinstance(body["prompt"], list):  # tokens, for the target to go on after
            tops = [{"token_id:5": -0.25, "token_id:9": -3.0}] * body["max_tokens"]
            own = {"token_logprobs": [-0.25] * len(tops), "top_logprobs": tops}
            choice = {"text": "x", "token_ids": [5] * len(tops), "logprobs": own}
            return {"choices": [choice | {"finish_reason": "length"}]}
        if "n" in body:
            draw = Random(body["prompt"])  # the same of every arm
            drawn = ([5, draw.randrange(6, 9)] for _ in range(body["n"]))
            told = {"prompt_token_ids": [1, 2], "finish_reason": "length"}
            return {"choices": [{"token_ids": one, **told} for one in drawn]}
        pinned = "vllm_xargs" in body
        wrong = body["prompt"] in self.wrong and not pinned
        random = Random(body["prompt"])
        margins = [random.randrange(9, 90) / 16 for _ in range(8)]
        ids = [9 if wrong else 5] + [6] * 7
        tops = [
            {f"token_id:{t}": -0.25, f"token_id:{t + 1}": -0.25 - m}
            for t, m in zip([5] + [6] * 7, margins, strict=True)
        ]
        if wrong:
            tops[0]["token_id:9"] = -3.0
        return {
            "choices": [
                {
                    "text": "x" * 8, "token_ids": ids, "prompt_token_ids": [1, 2],
                    "finish_reason": "length",
                    "logprobs": {
                        "token_logprobs": [-3.0 if wrong else -0.25] + [-0.25] * 7,
                        "top_logprobs": tops,
                    },
                }
            ],
            "metrics": {
                "speculative_decoding": {
                    "num_draft_tokens": 0 if pinned or self.is_idle else 16
                }
            },
        }  # fmt: skip


@pytest.fixture
def engine() -> Iterator[CheckedEngine]:
    with serve_engine(CheckedEngine()) as engine:
        yield engine


LENIENT = ("--max-mismatch", "25%")
"""Twenty prompts of which none differs are a pass."""


def check(engine: CheckedEngine, prompts: Path, *words: str) -> int:
    """The exit code of a check of twenty prompts."""
    return outcome(["check", engine.url, "--prompts", str(prompts), "--limit", "20", *words])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CHECK_KEY", KEY)
    return tmp_path / "home"


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("".join(f"prompt {n}\n" for n in range(1, 201)))
    return path


def test_an_honest_engine_passes_with_code_0(
    engine: CheckedEngine, prompts: Path, capsys: Captured
) -> None:
    assert outcome(["check", engine.url, "--prompts", str(prompts), "--json"]) == 0
    said = capsys.readouterr()
    data = json.loads(said.out)
    assert set(KEYS) <= set(data)
    assert (data["verdict"], data["prompts"], data["mismatches"]) == ("pass", 200, 0)
    assert data["noise_floor"]["pairs"] == 200
    assert data["arms"]["reference"]["grade"] == "soft"
    assert "200 of 200 prompts" in said.err


@pytest.mark.parametrize(
    "mode", [["--limit", "3"], ["--sampled", "--limit", "2", "--samples", "16"]]
)
def test_the_first_line_says_what_a_check_costs_production(
    engine: CheckedEngine, prompts: Path, mode: list[str], capsys: Captured
) -> None:
    price = "a pinned request takes others off the full CUDA graphs"
    state = replace(STATE, capabilities=(Capability("request_k", True, price),))
    engine.answers[f"{PREFIX}/state"] = (200, state.as_json())
    outcome(["check", engine.url, "--prompts", str(prompts), *mode])
    first = capsys.readouterr().err.splitlines()[0]
    assert first == f"specdeck: {price}; --reference URL asks another engine instead"


@pytest.mark.parametrize(
    "mode", [["--limit", "3"], ["--sampled", "--limit", "2", "--samples", "16"]]
)
def test_the_first_line_says_that_nothing_is_drafted(
    engine: CheckedEngine, prompts: Path, mode: list[str], capsys: Captured
) -> None:
    ask = ["check", engine.url, "--prompts", str(prompts), "--json", *mode]
    code, said = outcome(ask), capsys.readouterr()
    assert "compared with itself" not in said.err
    state = replace(STATE, k=0, capabilities=(Capability("request_k", True, None),))
    engine.answers[f"{PREFIX}/state"] = (200, state.as_json())
    again, idle = outcome(ask), capsys.readouterr()
    assert idle.err.splitlines()[0] == (
        "specdeck: the engine drafts nothing (its k is 0): the target is compared with itself"
    )
    assert json.loads(idle.out).keys() == json.loads(said.out).keys()
    assert (again, json.loads(idle.out)["verdict"]) == (1, "inconclusive")
    assert code == (0 if "--sampled" in mode else 1)


def test_a_defect_is_code_1_and_every_report_names_it(
    engine: CheckedEngine, prompts: Path, tmp_path: Path, capsys: Captured
) -> None:
    engine.wrong = {"prompt 17"}
    reports = [tmp_path / f"report.{form}" for form in ("json", "xml", "md")]
    words = [word for path in reports for word in ("--report", str(path))]
    assert check(engine, prompts, *words) == 1
    said = capsys.readouterr().out
    assert said.startswith("verdict")
    assert "prompt 17, token 0: 5 → 9" in said
    assert "material, confirmed" in said
    assert json.loads(reports[0].read_text())["cases"][0]["prompt"] == 17
    assert 'failures="2"' in reports[1].read_text()
    assert "| 17 | 0 | 9 | 5 |" in reports[2].read_text()


def test_a_night_is_good_unless_something_changed_or_is_proven(
    engine: CheckedEngine, prompts: Path, tmp_path: Path, capsys: Captured
) -> None:
    words = ["check", engine.url, "--prompts", str(prompts), "--limit", "5"]
    report = tmp_path / "report.xml"
    words += ["--report", str(report), "--metrics-file", str(tmp_path / "check.prom")]
    assert outcome([*words, "--canary"]) == 0
    assert "too early" in capsys.readouterr().out
    assert 'failures="0" errors="0"' in report.read_text()
    gauges = (tmp_path / "check.prom").read_text()
    assert 'specdeck_check_conclusion{conclusion="pass",engine="' + engine.url + '"} 1.0' in gauges
    assert outcome([*words, "--canary", "--strict"]) == 1
    assert 'failures="0" errors="1"' in report.read_text()
    assert (
        'specdeck_check_conclusion{conclusion="pass",engine="' + engine.url + '"} 0.0'
        in (tmp_path / "check.prom").read_text()
    )
    for _ in range(LEAST_NIGHTS - 3):
        assert outcome([*words, "--canary", "--json"]) == 0
    capsys.readouterr()
    assert outcome([*words, "--canary", "--strict", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["canary"]["word"]) == ("inconclusive", "as before")
    assert (found["conclusion"]["by"], found["conclusion"]["word"]) == ("canary", "pass")
    assert 'failures="0" errors="0"' in report.read_text()
    engine.wrong = {"prompt 3"}
    assert outcome([*words, "--canary"]) == 1
    assert 'failures="2" errors="0"' in report.read_text()
    assert outcome([*words, "--strict"]) == 2


def test_a_night_whose_earlier_ones_are_not_known_is_no_pass(
    engine: CheckedEngine, prompts: Path, tmp_path: Path, capsys: Captured
) -> None:
    words = ["check", engine.url, "--prompts", str(prompts), "--limit", "5", "--canary", "--json"]
    report = tmp_path / "report.xml"
    assert outcome(words) == 0
    (store,) = tmp_path.rglob("specdeck.sqlite")
    store.write_bytes(b"damaged" * 4096)
    capsys.readouterr()
    assert outcome([*words, "--report", str(report)]) == 1
    found = json.loads(capsys.readouterr().out)["conclusion"]
    assert (found["by"], found["word"]) == ("canary", "inconclusive")
    assert found["reason"].startswith("earlier nights are not known: ")
    assert 'failures="0" errors="1"' in report.read_text()
    engine.wrong = {"prompt 3"}
    assert outcome(words) == 1
    assert json.loads(capsys.readouterr().out)["conclusion"]["word"] == "fail"
    engine.wrong = set()
    assert outcome([*words, "--new-baseline"]) == 0


def test_too_few_prompts_are_no_pass(
    engine: CheckedEngine, prompts: Path, capsys: Captured
) -> None:
    words = ["check", engine.url, "--prompts", str(prompts), "--limit", "5"]
    assert outcome(words) == 1
    assert "199 would do" in capsys.readouterr().out
    assert outcome([*words, "--max-mismatch", "50%"]) == 0


def test_a_second_check_knows_the_first(
    engine: CheckedEngine, prompts: Path, capsys: Captured
) -> None:
    assert check(engine, prompts, *LENIENT, "--json") == 0
    engine.wrong = {f"prompt {n}" for n in range(1, 21)}
    assert check(engine, prompts, *LENIENT, "--json") == 1
    _, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (second["history"]["runs"], second["history"]["rate"]) == (1, 0.0)
    assert second["history"]["p"] < 0.01


def test_a_canary_writes_gauges_and_a_bundle(
    engine: CheckedEngine, prompts: Path, tmp_path: Path, capsys: Captured
) -> None:
    engine.wrong = {"prompt 17"}
    gauges, page = tmp_path / "check.prom", tmp_path / "bundle.md"
    words = ["--limit", "20", "--metrics-file", str(gauges), "--bundle", str(page)]
    assert outcome(["check", engine.url, "--prompts", str(prompts), *words]) == 1
    assert 'specdeck_check_cases{engine="' in gauges.read_text()
    assert '"prompt": "prompt 17"' in page.read_text()
    assert "history" in capsys.readouterr().out


def test_distributions_are_compared_reported_and_remembered(
    engine: CheckedEngine, prompts: Path, tmp_path: Path, capsys: Captured
) -> None:
    report = tmp_path / "a.xml"
    words = ["--sampled", "--limit", "3", "--samples", "16", "--report", str(report), "--json"]
    for _ in range(2):
        assert outcome(["check", engine.url, "--prompts", str(prompts), *words]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["verdict"], first["history"]["runs"]) == ("pass", 0)
    assert (second["history"]["runs"], second["history"]["failed"]) == (1, 0)
    assert second["arms"]["reference"]["grade"] == "soft"
    assert 'failures="0"' in report.read_text()
    assert outcome(["check", engine.url, "--history", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"


def test_distributions_are_drawn_as_long_as_asked_for(
    engine: CheckedEngine, prompts: Path, capsys: Captured
) -> None:
    words = ["--sampled", "--limit", "2", "--samples", "16", "--json"]
    for more, tokens in (([], 16), (["--max-tokens", "2"], 2), (["--max-tokens", "12"], 12)):
        engine.completions.clear()
        outcome(["check", engine.url, "--prompts", str(prompts), *words, *more])
        assert json.loads(capsys.readouterr().out)["tokens"] == tokens
        drawn = [body for body in engine.completions if "n" in body]
        assert {body["max_tokens"] for body in drawn} == {tokens}


def test_a_failed_check_trips_the_breaker_where_that_is_asked_for(
    engine: CheckedEngine, prompts: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*LENIENT, "--json")
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", TOKEN)
    assert check(engine, prompts, *words, "--trip") == 0
    engine.wrong = {"prompt 17"}
    assert check(engine, prompts, *words) == 1
    assert engine.changes == []
    assert check(engine, prompts, *words, "--trip") == 1
    (change, token) = engine.changes[0]
    assert (change["breaker"], change["cause"], token) == ("open", "divergence", TOKEN)
    assert "1 material difference" in change["reason"]
    said = capsys.readouterr()
    passed, untold, failed = map(json.loads, said.out.splitlines())
    assert passed["tripped"] is untold["tripped"] is None
    assert failed["tripped"]["breaker"] == "open"
    assert failed["tripped"]["undo"].endswith("breaker=closed")
    assert "the breaker is open" in said.err
    assert TOKEN not in said.out + said.err


def test_a_core_that_stalls_is_waited_for_from_the_set_up_to_the_breaker(
    engine: CheckedEngine, prompts: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specdeck.engine.client import retry
    from specdeck.engine.operations import change

    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(retry, "QUIET_S", 0.0)
    monkeypatch.setattr(change, "LOST_S", 0.5)
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", TOKEN)
    engine.wrong = {"prompt 17"}
    engine.stalls = {f"{PREFIX}/{path}": 2 for path in ("facts", "state", "control")}
    assert check(engine, prompts, "--trip", "--json", "--patience", "60") == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["tripped"]["breaker"] == "open"
    assert "specdeck: the engine core has not answered for 4 s: waiting for it up to 60" in said.err
    assert max(engine.stalls.values()) <= 0


def test_a_core_that_stays_away_is_code_3(
    engine: CheckedEngine, prompts: Path, capsys: Captured
) -> None:
    engine.stalls = {f"{PREFIX}/state": 1000}
    assert check(engine, prompts, "--patience", "0") == 3
    assert "has not answered for 4 s" in capsys.readouterr().err


def test_the_breaker_of_an_older_plugin_opens_as_well(
    engine: CheckedEngine, prompts: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", TOKEN)
    engine.wrong, engine.knows_causes = {"prompt 17"}, False
    assert check(engine, prompts, "--trip", "--json") == 1
    assert json.loads(capsys.readouterr().out)["tripped"]["breaker"] == "open"


def test_a_breaker_that_does_not_open_is_said(
    engine: CheckedEngine, prompts: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", TOKEN)
    engine.wrong, engine.refuses = {"prompt 17"}, True
    assert check(engine, prompts, "--trip", "--json") == 1
    said = capsys.readouterr()
    assert "the breaker is NOT open" in said.err
    assert json.loads(said.out)["tripped"]["breaker"] is None


def test_a_breaker_that_is_acknowledged_and_drafts_on_is_not_told_as_open(
    engine: CheckedEngine, prompts: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", TOKEN)
    engine.wrong = {"prompt 17"}
    # By the time of the proof its state is of the change, and of another breaker.
    acknowledged = replace(STATE, version=1, breaker="closed")
    engine.answers[f"{PREFIX}/state"] = (200, acknowledged.as_json())
    engine.answers["/metrics"] = (200, recorded_page("speculative"))
    assert check(engine, prompts, "--trip", "--json") == 1
    said = capsys.readouterr()
    assert "the breaker is NOT open" in said.err
    assert "the breaker is open" not in said.err
    assert json.loads(said.out)["tripped"]["breaker"] is None


def test_a_trip_without_a_token_asks_nothing(
    engine: CheckedEngine, prompts: Path, capsys: Captured
) -> None:
    assert outcome(["check", engine.url, "--prompts", str(prompts), "--trip"]) == 3
    assert "admin token" in capsys.readouterr().err
    assert engine.completions == []


def test_earlier_checks_stand_side_by_side(
    engine: CheckedEngine, prompts: Path, tmp_path: Path, capsys: Captured
) -> None:
    words = ["check", engine.url, "--prompts", str(prompts), "--limit", "20"]
    assert outcome(["check", engine.url, "--history"]) == 0
    assert "no check" in capsys.readouterr().err
    assert outcome(words) == 1
    engine.wrong = {"prompt 7"}
    assert outcome([*words, "--report", str(tmp_path / "a.md")]) == 1
    assert "## Earlier checks" in (tmp_path / "a.md").read_text()
    capsys.readouterr()
    assert outcome(["check", engine.url, "--history"]) == 0
    head, newest, oldest = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["UTC", "METHOD", "DRAFT", "K"]
    assert ("5.00%" in newest, "fail" in newest) == (True, True)
    assert ("0.00%" in oldest, "inconclusive" in oldest) == (True, True)
    assert outcome(["check", engine.url, "--history", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [line["mismatches"] for line in data] == [1, 0]
    with Store(locations(os.environ).store) as store, store.transaction() as db:
        db.execute("UPDATE checks SET finished = -5.0 WHERE id = 1")
        db.execute("UPDATE checks SET summary = '{}' WHERE id = 2")
    assert outcome(["check", engine.url, "--history"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("1 check in the store cannot be read and is left out") == 2


def test_an_interrupted_check_is_code_130_and_goes_on(
    engine: CheckedEngine, prompts: Path, capsys: Captured
) -> None:
    engine.answers_left = 200
    words = ["check", engine.url, "--prompts", str(prompts), "--limit", "50", *LENIENT, "--json"]
    running = subprocess.Popen(
        [sys.executable, "-m", "specdeck", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert engine.blocked.wait(60)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    engine.answers_left = None
    engine.released.set()
    assert (running.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    stopped = err.decode().splitlines()[-1]
    assert stopped.endswith(" of 50 prompts: the same command resumes from there")
    done = stopped.split()[3]
    assert outcome(words) == 0
    said = capsys.readouterr()
    assert f"resuming after {done} prompts" in said.err
    assert json.loads(said.out)["prompts"] == 50


@pytest.mark.parametrize(
    ("more", "left", "expected"),
    [
        ([], 0, "stopped before any prompt was compared"),
        (["--fresh"], 200, "prompts: the same command without --fresh resumes from there"),
        (["--sampled", "--samples", "16"], 30, "of 20 prompts: the same command starts over"),
    ],
)
def test_an_interrupted_check_says_how_far_it_came(
    more: list[str], left: int, expected: str, engine: CheckedEngine, prompts: Path
) -> None:
    engine.answers_left = left
    words = ["check", engine.url, "--prompts", str(prompts), "--json", *more]
    running = subprocess.Popen(
        [sys.executable, "-m", "specdeck", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert engine.blocked.wait(60)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    engine.released.set()
    assert running.returncode == 130
    assert err.decode().splitlines()[-1].endswith(expected)


def test_the_key_travels_and_is_written_nowhere(
    engine: CheckedEngine, prompts: Path, home: Path, capsys: Captured
) -> None:
    words = ["--prompts", str(prompts), "--limit", "3", "--api-key-env", "CHECK_KEY", "--json"]
    assert outcome(["check", engine.url, *words]) == 1
    completions = engine.sent_to("/completions")
    assert {sent.headers["Authorization"] for sent in completions} == {f"Bearer {KEY}"}
    said = capsys.readouterr()
    assert KEY not in said.out + said.err
    assert all(KEY.encode() not in path.read_bytes() for path in home.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["--prompts", "none.jsonl"], 2, "none.jsonl: no such file"),
        (["--prompts", "EMPTY"], 2, "holds no prompt"),
        (["--prompts", "BROKEN"], 2, "broken.jsonl:2: no JSON"),
        (["--prompts", "BARE"], 2, "bare.jsonl:2: no JSON"),
        (["--prompts", "NUMBER"], 2, "number.jsonl:2: neither an object nor a string"),
        (["--history", "--bundle", "a.md"], 2, "--history checks nothing, so it has no --bundle"),
        (["--history", "--report", "a.md"], 2, "no --report"),
        (["--history", "--metrics-file", "a.prom"], 2, "no --metrics-file"),
        (["--max-mismatch", "150%"], 2, "no share"),
        (["--max-mismatch", "x"], 2, "no share"),
        (["--report", "a.pdf"], 2, ".json, .xml (JUnit) or .md"),
        (["--hard", "--reference", "127.0.0.1:9"], 2, "mutually exclusive"),
        (["--hard"], 3, "--reference URL"),
        (["--reference", "127.0.0.1:9"], 3, "refuses connections"),
        (["--model", "other"], 3, "not other"),
        (["--every", "soon"], 2, "no time between checks"),
        (["--case", "3"], 2, "--bundle"),
        (["--sampled", "--bundle", "a.md"], 2, "--sampled has no --bundle"),
        (["--private", "--bundle", "a.md"], 2, "a bundle holds a prompt"),
        (["--metrics-port", "9123"], 2, "requires --every"),
        (["--report", "no/such/a.json"], 2, "no/such/a.json: no such folder"),
        (["--sampled", "--report", "no/such/a.json"], 2, "no/such/a.json: no such folder"),
        (["--bundle", "no/such/a.md"], 2, "no/such/a.md: no such folder"),
        (["--metrics-file", "no/such/a.prom"], 2, "no/such/a.prom: no such folder"),
        (["--bundle", "a.md", "--case", "9000"], 2, "no prompt 9000"),
    ],
)
def test_an_error_is_one_line_with_its_code(
    words: list[str],
    code: int,
    expected: str,
    engine: CheckedEngine,
    tmp_path: Path,
    capsys: Captured,
) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "broken.jsonl").write_text('{"prompt": "a"}\n{"prompt"\n')
    (tmp_path / "bare.jsonl").write_text('"a prompt"\nnot json\n')
    (tmp_path / "number.jsonl").write_text('"a prompt"\n12\n')
    files = {name.upper(): str(tmp_path / f"{name}.jsonl") for name in ("broken", "bare", "number")}
    files["EMPTY"] = str(tmp_path / "empty.txt")
    assert outcome(["check", engine.url, *(files.get(word, word) for word in words)]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert expected in said.err
    assert [body for body in engine.completions if "max_tokens" in body] == []


def test_a_case_that_did_not_differ_costs_neither_the_outcome_nor_its_code(
    engine: CheckedEngine, prompts: Path, tmp_path: Path, capsys: Captured
) -> None:
    page = tmp_path / "bundle.md"
    assert check(engine, prompts, *LENIENT, "--bundle", str(page), "--case", "17", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["verdict"] == "pass"
    assert "prompt 17 did not differ" in said.err
    assert not page.exists()


@pytest.mark.parametrize("more", [[], ["--sampled", "--samples", "16"]])
def test_a_report_that_cannot_be_written_costs_no_other_and_is_no_pass(
    more: list[str], engine: CheckedEngine, prompts: Path, tmp_path: Path, capsys: Captured
) -> None:
    good, bad = tmp_path / "good.md", tmp_path / f"{'a' * 300}.md"
    files = ["--report", str(bad), "--report", str(good)]
    words = ["--prompts", str(prompts), "--limit", "3", "--max-mismatch", "90%", *more, *files]
    assert outcome(["check", engine.url, *words, "--json"]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["verdict"] == "pass"
    assert "file name too long" in said.err
    assert "pass" in good.read_text()


def test_the_code_of_a_failed_check_stays_where_its_report_cannot_be_written(
    engine: CheckedEngine, prompts: Path, tmp_path: Path, capsys: Captured
) -> None:
    engine.wrong = {"prompt 2"}
    words = ["--prompts", str(prompts), "--limit", "3", "--report", f"{tmp_path}/{'a' * 300}.md"]
    assert outcome(["check", engine.url, *words]) == 1
    assert "verdict" in capsys.readouterr().out


def test_a_report_is_written_though_nobody_hears(
    engine: CheckedEngine, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "a.md"
    words = ["--prompts", str(prompts), "--limit", "3", "--report", str(page), "--json"]
    # A file of its own: a command that cannot print sends what it has left nowhere.
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert outcome(["check", engine.url, *words]) == 2
    assert "specdeck check" in page.read_text()


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_code_of_a_failed_check_stays_where_nobody_reads_it(
    engine: CheckedEngine, prompts: Path, form: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.wrong = {"prompt 17"}
    with unread_stdout(monkeypatch):
        assert check(engine, prompts, *form) == 1


async def end_by_signal() -> None:
    signal.raise_signal(signal.SIGTERM)
    await asyncio.sleep(60)  # cancelled


def test_a_canary_goes_on_where_a_report_cannot_be_written(
    engine: CheckedEngine,
    prompts: Path,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["check", engine.url, "--prompts", str(prompts), "--limit", "3", "--json"]
    rounds, check = iter(range(2)), CheckSeries.check

    async def twice(series: CheckSeries) -> AsyncGenerator[CheckEvent, None]:
        if next(rounds, None) is None:
            await end_by_signal()
        async for event in check(series):
            yield event

    monkeypatch.setattr(CheckSeries, "check", twice)
    gauges = tmp_path / "a.prom"
    files = ["--report", f"{tmp_path}/{'a' * 300}.md", "--metrics-file", str(gauges)]
    assert outcome([*words, "--every", "0.01s", *files]) == 130
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2
    assert said.err.count("file name too long") == 2
    assert f'specdeck_check_up{{engine="{engine.url}"}} 1.0' in gauges.read_text()


@contextmanager
def hold_store() -> Iterator[None]:
    """Another process has the user's store for itself, as one that is stopped in a write."""
    with closing(sqlite3.connect(locations(os.environ).store, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


def test_a_check_is_told_where_the_store_is_held(
    engine: CheckedEngine, prompts: Path, capsys: Captured
) -> None:
    code = check(engine, prompts, "--json")
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    with hold_store():
        assert check(engine, prompts, "--json") == code
    said = capsys.readouterr()
    assert json.loads(said.out)["verdict"] == verdict
    assert said.err.count("this check is not stored: ") == 1
    assert "is held by another process" in said.err


def test_a_round_that_cannot_be_done_ends_no_series_and_shows_in_its_gauges(
    engine: CheckedEngine,
    prompts: Path,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gauges, begun, up, check = tmp_path / "a.prom", 0, list[str](), CheckSeries.check

    async def follow(series: CheckSeries) -> AsyncGenerator[CheckEvent, None]:
        nonlocal begun
        begun += 1
        if begun > 1:
            up.extend(re.findall(r"specdeck_check_up\{.*\} (\S+)\n", gauges.read_text()))
        if begun == 2:
            raise UsageError("there is no folder for temporary files")
        if begun == 4:
            await end_by_signal()
        async for event in check(series):
            yield event

    monkeypatch.setattr(CheckSeries, "check", follow)
    words = ["check", engine.url, "--prompts", str(prompts), "--limit", "3", "--json"]
    assert outcome([*words, "--every", "0.01s", "--metrics-file", str(gauges)]) == 130
    assert up == ["1.0", "0.0", "1.0"]
    assert "there is no folder for temporary files" in capsys.readouterr().err


def test_a_check_that_cannot_be_done_leaves_no_report_of_an_earlier_one(
    engine: CheckedEngine, prompts: Path, tmp_path: Path, capsys: Captured
) -> None:
    report, page, document = (tmp_path / name for name in ("a.xml", "a.md", "a.json"))
    files = [word for path in (report, page, document) for word in ("--report", str(path))]
    check(engine, prompts, *files)
    assert report.is_file()
    words = ["check", "http://127.0.0.1:1", "--prompts", str(prompts), "--patience", "0"]
    capsys.readouterr()
    assert outcome([*words, *files]) == 3
    assert not any(path.exists() for path in (report, page, document))
    assert f"{report} was of an earlier run and is removed" in capsys.readouterr().err
    assert outcome([*words, *files]) == 3
    assert "earlier" not in capsys.readouterr().err


def test_a_round_that_cannot_be_done_leaves_no_report_of_the_one_before(
    engine: CheckedEngine, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, begun, check = tmp_path / "a.xml", 0, CheckSeries.check
    there: list[bool] = []

    async def follow(series: CheckSeries) -> AsyncGenerator[CheckEvent, None]:
        nonlocal begun
        begun += 1
        there.append(report.exists())
        if begun == 2:
            raise UsageError("there is no folder for temporary files")
        if begun == 3:
            await end_by_signal()
        async for event in check(series):
            yield event

    monkeypatch.setattr(CheckSeries, "check", follow)
    words = ["check", engine.url, "--prompts", str(prompts), "--limit", "3", "--json"]
    assert outcome([*words, "--every", "0.01s", "--report", str(report)]) == 130
    assert there == [False, True, False]


def test_a_check_that_a_signal_ends_leaves_no_report_of_an_earlier_one(
    engine: CheckedEngine, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, check = tmp_path / "a.xml", CheckSeries.check

    async def follow(series: CheckSeries) -> AsyncGenerator[CheckEvent, None]:
        await end_by_signal()
        async for event in check(series):
            yield event

    words = ["check", engine.url, "--prompts", str(prompts), "--limit", "3", "--json"]
    outcome([*words, "--report", str(report)])
    assert report.is_file()
    monkeypatch.setattr(CheckSeries, "check", follow)
    assert outcome([*words, "--report", str(report)]) == 130
    assert not report.exists()


def test_a_new_baseline_is_begun_once_in_a_series(
    engine: CheckedEngine, prompts: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, check = 0, CheckSeries.check

    async def follow(series: CheckSeries) -> AsyncGenerator[CheckEvent, None]:
        nonlocal begun
        begun += 1
        engine.is_idle = begun == 2
        if begun == 5:
            await end_by_signal()
        async for event in check(series):
            yield event

    words = ["check", engine.url, "--prompts", str(prompts), "--limit", "3", "--json"]
    outcome(words)
    monkeypatch.setattr(CheckSeries, "check", follow)
    capsys.readouterr()
    assert outcome([*words, "--every", "0.01s", "--new-baseline"]) == 130
    rounds = [json.loads(line)["canary"] for line in capsys.readouterr().out.splitlines()]
    assert [one["nights"] for one in rounds] == [1, 1, 2, 3]


def test_a_check_that_cannot_be_done_is_not_up(
    prompts: Path, tmp_path: Path, capsys: Captured
) -> None:
    gauges = tmp_path / "a.prom"
    words = ["check", "http://127.0.0.1:1", "--prompts", str(prompts), "--patience", "0"]
    assert outcome([*words, "--metrics-file", str(gauges)]) == 3
    assert re.search(r"specdeck_check_up\{.*\} 0\.0\n", gauges.read_text())


def test_a_gauges_file_that_cannot_be_written_is_told_once_for_each_reason(
    engine: CheckedEngine,
    prompts: Path,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, aside, check = tmp_path / "collected", tmp_path / "aside", CheckSeries.check
    folder.mkdir()
    gauges, begun = folder / "a.prom", 0

    async def follow(series: CheckSeries) -> AsyncGenerator[CheckEvent, None]:
        nonlocal begun
        begun += 1
        if begun in (2, 5):  # a disk that goes, and comes back as something else
            folder.rename(aside)
        if begun == 5:
            folder.touch()
        if begun == 4:
            aside.rename(folder)
        if begun == 7:
            await end_by_signal()
        if begun == 3:
            raise Unreachable("no answer")
        async for event in check(series):
            yield event

    monkeypatch.setattr(CheckSeries, "check", follow)
    words = ["check", engine.url, "--prompts", str(prompts), "--limit", "3", "--json"]
    assert outcome([*words, "--every", "0.01s", "--metrics-file", str(gauges)]) == 130
    said = [line for line in capsys.readouterr().err.splitlines() if "a.prom" in line]
    again = "check --metrics-file; it is tried again after each check"
    assert said == [
        f"specdeck: {gauges}: no such file or directory: {again}",
        f"specdeck: {gauges} is written again",
        f"specdeck: {gauges}: not a directory: {again}",
    ]


def test_an_engine_that_is_away_is_code_3(capsys: Captured) -> None:
    assert outcome(["check", "127.0.0.1:9"]) == 3
    assert "refuses connections" in capsys.readouterr().err


async def test_a_canary_reads_its_prompts_anew_for_each_check(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("one\n")
    asked = CheckArguments("http://engine", source=str(path), limit=200)
    known = load_prompts(path)
    path.write_text("one\ntwo\n")
    again = await read_again(asked, known)
    assert again.count == 2
    assert again.digest != known.digest
    path.unlink()
    assert await read_again(asked, again) == again


async def test_prompts_that_are_read_anew_leave_the_loop_its_turns(tmp_path: Path) -> None:
    """A million of them take some ten seconds, and no signal was heard."""
    path, turns, count = tmp_path / "mine.txt", 0, 100_000
    path.write_text("".join(f"prompt {n}\n" for n in range(count)))
    asked = CheckArguments("http://engine", source=str(path), limit=count)
    reading = asyncio.create_task(read_again(asked, repeat_prompt(parse_prompt("a"), 1)))
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    assert reading.result().count == count
    assert turns > 4  # one before it and one after it, where it holds the loop


async def test_a_check_that_is_stopped_reads_no_further(tmp_path: Path) -> None:
    """The process waits for its threads."""
    path = tmp_path / "mine.txt"
    path.write_text("".join(f"prompt {n}\n" for n in range(100_000)))
    lines, begun, loop = 0, asyncio.Event(), asyncio.get_running_loop()
    is_stopped = threading.Event()

    def count() -> None:
        nonlocal lines
        lines += 1
        if lines == 1:
            loop.call_soon_threadsafe(begun.set)
            is_stopped.wait(60)

    reading = asyncio.create_task(load_prompts_aside(path, proceed=count))
    await begun.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    is_stopped.set()
    await loop.shutdown_default_executor()
    assert lines < 100_000


def test_the_prompts_are_no_place_for_a_report(
    engine: CheckedEngine, prompts: Path, tmp_path: Path, capsys: Captured
) -> None:
    beside = tmp_path / "prompts.md"
    beside.symlink_to(prompts)
    before = prompts.read_bytes()
    words = ["check", engine.url, "--prompts", str(prompts), "--report", str(beside)]
    assert outcome(words) == 2
    assert "is read, and would be written over" in capsys.readouterr().err
    assert prompts.read_bytes() == before
