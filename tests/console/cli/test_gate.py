"""`specdeck gate` as scripts and CI see it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import httpx
import pytest
from tests.console.cli.test_check import STATE, CheckedEngine
from tests.support.completion_engine import NAMES
from tests.support.http_engine import serve, serve_engine

from specdeck.console.cli.main import outcome
from specdeck.engine.divergence.baseline import read_baseline, write_baseline
from specdeck.engine.protocol.messages import PREFIX

Captured = pytest.CaptureFixture[str]


STARTS = count()


class MeasuredEngine(CheckedEngine):
    """Drafts at every look at its counters, and says what it is."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted = 20
        """Tokens of the 50 that are drafted between two looks."""
        self.others = 0
        """Tokens that somebody else is given between two looks."""
        self.looks = count()
        self.totals = 0
        state = replace(STATE, instance=f"start {next(STARTS)}")
        self.answers[f"{PREFIX}/state"] = (200, state.as_json())
        self.answers["/metrics"] = self.page
        self.answers[f"{PREFIX}/facts"] = (200, {"facts": {"vllm": "0.32.0"}, **NAMES})

    def page(self, request: httpx.Request) -> httpx.Response:
        look = next(self.looks)
        self.totals += self.accepted
        return httpx.Response(
            200,
            text=f"vllm:spec_decode_num_drafts_total {10 * look}\n"
            f"vllm:spec_decode_num_draft_tokens_total {50 * look}\n"
            f"vllm:spec_decode_num_accepted_tokens_total {self.totals}\n"
            f"vllm:generation_tokens_total {(30 + self.others) * look}\n",
        )


@pytest.fixture
def engine() -> Iterator[MeasuredEngine]:
    with serve_engine(MeasuredEngine()) as engine:
        yield engine


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))


@pytest.fixture
def saved(engine: MeasuredEngine, tmp_path: Path, capsys: Captured) -> str:
    """A baseline of the engine as it is."""
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"prompt {n}\n" for n in range(1, 33)))
    path = str(tmp_path / "base.json")
    words = ["--prompts", str(prompts), "--max-tokens", "8", "--max-mismatch", "20%"]
    assert outcome(["gate", "--save", path, engine.url, *words]) == 0
    said = capsys.readouterr()
    assert "verdict  pass" in said.out
    assert "compares with it" in said.err
    return path


AGAIN = ("--max-mismatch", "20%", "--max-slowdown", "99%")
"""The speed of a fake is the machine's."""


def test_an_engine_is_held_against_its_own_baseline(
    engine: MeasuredEngine, saved: str, tmp_path: Path, capsys: Captured
) -> None:
    junit, page = tmp_path / "gate.xml", tmp_path / "gate.md"
    words = ["--json", "--junit", str(junit), "--page", str(page)]
    assert outcome(["gate", saved, *AGAIN, *words]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"] == "pass"
    assert [line["name"] for line in data["lines"]] == [
        "divergence", "structure", "acceptance", "tokens/s", "fingerprint", "answers",
    ]  # fmt: skip
    assert data["engine"] == data["baseline"]["engine"] == engine.url
    assert data["workload"]["prompts"] == 32
    assert 'failures="0"' in junit.read_text()
    assert page.read_text().startswith("# specdeck gate: pass\n")
    assert outcome(["gate", saved, engine.url, *AGAIN]) == 0
    assert capsys.readouterr().out.startswith("verdict      pass: ")


def test_drafts_that_are_rejected_more_often_close_the_gate(
    engine: MeasuredEngine, saved: str, capsys: Captured
) -> None:
    engine.accepted = 10
    assert outcome(["gate", saved, engine.url, *AGAIN, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"] == "fail"
    assert data["reason"].startswith("acceptance: 3.00 → 2.00 tokens a round")


def test_an_engine_with_other_traffic_makes_no_baseline_that_passes(
    engine: MeasuredEngine, saved: str, tmp_path: Path, capsys: Captured
) -> None:
    engine.others = 300
    path = str(tmp_path / "busy.json")
    words = ["--prompts", str(tmp_path / "prompts.txt"), "--max-tokens", "8"]
    assert outcome(["gate", "--save", path, engine.url, *words, "--max-mismatch", "20%"]) == 1
    assert "served others in 8 of 8 blocks while it was measured" in capsys.readouterr().out
    assert outcome(["gate", saved, engine.url, *AGAIN, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "inconclusive"
    engine.others = 0
    assert outcome(["gate", path, engine.url, *AGAIN, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "inconclusive"


def test_other_outputs_close_the_gate(engine: MeasuredEngine, saved: str, capsys: Captured) -> None:
    engine.wrong = {f"prompt {n}" for n in range(1, 20)}
    assert outcome(["gate", saved, engine.url, *AGAIN, "--json"]) == 1
    words = {line["name"]: line["word"] for line in json.loads(capsys.readouterr().out)["lines"]}
    assert words["divergence"] == "fail"


def test_a_second_engine_is_asked_in_turn(
    engine: MeasuredEngine, saved: str, capsys: Captured
) -> None:
    with serve_engine(MeasuredEngine()) as other:
        assert outcome(["gate", saved, other.url, "--against", engine.url, *AGAIN, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["against"] == engine.url
    (speed,) = [line for line in data["lines"] if line["name"] == "tokens/s"]
    assert "measured in turn" in speed["said"]


def test_an_engine_does_not_take_turns_with_itself_by_another_address(
    engine: MeasuredEngine, saved: str, capsys: Captured
) -> None:
    with serve(engine) as elsewhere:
        assert outcome(["gate", saved, engine.url, "--against", elsewhere, *AGAIN]) == 2
    said = capsys.readouterr()
    assert f"--against is the engine itself: {elsewhere} is another address of it" in said.err
    assert said.out == ""


NONSENSE = (
    (["nowhere.json"], "there is no baseline"),
    (["{saved}", "{url}", "more"], "one baseline and one engine"),
    (["{saved}", "{url}", "--limit", "5"], "other prompts"),
    (["{saved}", "{url}", "--max-tokens", "5"], "8 tokens"),
    (["{saved}", "{url}", "--against", "{url}"], "the engine itself"),
    (["{saved}", "{url}", "--page", "/nowhere/a.md"], "no such folder"),
    (["--save", "{saved}", "{url}", "{url}"], "takes one engine"),
    (["{saved}", "--api-key-env", "HOME"], "an API key is not sent to where a file says"),
    (["--save", "{saved}", "{url}", "--page", "a.md"], "compares nothing"),
)


def test_what_makes_no_sense_is_refused(
    engine: MeasuredEngine, saved: str, capsys: Captured
) -> None:
    for words, why in NONSENSE:
        given = [word.format(saved=saved, url=engine.url) for word in words]
        assert outcome(["gate", *given]) == 2
        assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"), [([], "no baseline to compare with"), (["--save", "a.json"], "no engine to")]
)
def test_a_gate_without_names_says_what_it_takes(
    words: list[str], why: str, capsys: Captured
) -> None:
    assert outcome(["gate", *words]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert "`specdeck gate --save FILE URL` saves one" in said


def test_an_engine_that_is_away_is_no_verdict(saved: str, capsys: Captured) -> None:
    assert outcome(["gate", saved, "http://127.0.0.1:9", "--patience", "0"]) == 3
    assert capsys.readouterr().out == ""


def test_a_gate_that_cannot_be_done_leaves_no_report_of_an_earlier_one(
    saved: str, tmp_path: Path, capsys: Captured
) -> None:
    reports = tmp_path / "a.xml", tmp_path / "a.md"
    files = ["--junit", str(reports[0]), "--page", str(reports[1])]
    damaged = tmp_path / "damaged.json"
    damaged.write_text("{")
    for words in ([str(tmp_path / "gone.json")], [str(damaged)], [saved, "http://127.0.0.1:1:1"]):
        reports[0].write_text('<testsuite name="specdeck gate" tests="6"/>')
        reports[1].write_text("# specdeck gate: pass\n\nall good.\n\n| | | |\n|---|---|---|\n")
        assert outcome(["gate", *words, *files]) == 2
        assert not any(path.exists() for path in reports)
        assert "was of an earlier run and is removed" in capsys.readouterr().err


def test_a_gate_that_cannot_be_done_leaves_what_is_no_report(
    saved: str, tmp_path: Path, capsys: Captured
) -> None:
    readme, before = tmp_path / "README.md", Path(saved).read_bytes()
    runbook = "# specdeck gate: what to do where it fails\n\nCall Ann.\n"
    readme.write_text(runbook)
    assert outcome(["gate", "--junit", saved, str(tmp_path / "gone.json")]) == 2
    assert outcome(["gate", str(tmp_path / "gone.json"), "--page", str(readme)]) == 2
    assert "removed" not in capsys.readouterr().err
    assert readme.read_text() == runbook
    assert outcome(["gate", saved, "--page", saved]) == 2
    assert "is read, and would be written over" in capsys.readouterr().err
    assert Path(saved).read_bytes() == before


def test_the_prompts_of_a_gate_are_no_place_for_its_files(
    engine: MeasuredEngine, saved: str, tmp_path: Path, capsys: Captured
) -> None:
    prompts = tmp_path / "prompts.txt"
    before = prompts.read_bytes()
    for words in ([saved, "--page", str(prompts)],
                  ["--save", str(prompts), engine.url, "--prompts", str(prompts)]):  # fmt: skip
        assert outcome(["gate", *words]) == 2
        assert "is read, and would be written over" in capsys.readouterr().err
    assert prompts.read_bytes() == before


def test_a_source_that_is_no_path_is_wrong_usage(
    engine: MeasuredEngine, saved: str, tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "nul.json"
    found = read_baseline(Path(saved))
    write_baseline(replace(found, workload=replace(found.workload, source="a\0b")), path)
    assert outcome(["gate", str(path), engine.url]) == 2
    assert "is no path" in capsys.readouterr().err
