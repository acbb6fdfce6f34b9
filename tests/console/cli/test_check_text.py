"""What models answer and engines say of themselves, in everything that `specdeck check` writes."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt
from tests.support.completion_engine import STEP, CompletionEngine, Fault
from tests.support.escapes import PLANTED, assert_harmless
from tests.support.http_engine import serve

from specdeck.console.cli import check
from specdeck.console.cli.main import outcome
from specdeck.engine.divergence.runner import CheckProgress
from specdeck.engine.divergence.running import RunningFigures
from specdeck.engine.divergence.statistics import Rate
from specdeck.engine.text import escape_markdown

Captured = pytest.CaptureFixture[str]

MARKUP = (
    "<img src=x onerror=alert(1)>", "<!--", "a|b", "`a`", "```", "[a](javascript:b)",
    "![a](http://b.example/c.png)", "<http://b.example>", "http://b.example/a", "www.b.example",
    "**a**", "~~a~~", "&lt;b&gt;", "\\|", "\\", "| # a", "[a]: http://b.example",
)  # fmt: skip


def html(markdown: str) -> str:
    """As a site shows it that passes HTML on, has tables and makes links of bare addresses."""
    page = MarkdownIt("gfm-like", {"html": True}).render(markdown)
    assert isinstance(page, str)
    return page


def assert_without_markup(markdown: str) -> None:
    """Fails where text of others became part of the page."""
    page = html(markdown)
    for tag in ("<img", "<a ", "<!--", "<em", "<strong", "<del", "<s>", "<blockquote"):
        assert tag not in page, tag


@pytest.mark.parametrize("text", [*MARKUP, " ".join(MARKUP), PLANTED], ids=ascii)
def test_markdown_shows_foreign_text_as_it_is(text: str) -> None:
    table = f"| a | b |\n|---|---|\n| {escape_markdown(text)} | {escape_markdown(text)} |\n"
    assert_harmless(escape_markdown(text))
    assert_without_markup(table)
    assert html(table).count("<td>") == 2
    assert "<code" not in html(table)
    assert_without_markup(f"{escape_markdown(text)}\n")
    if text.isprintable():
        cell = html(table).partition("<td>")[2].partition("</td>")[0]
        shown = cell.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"')
        assert shown.replace("&amp;", "&") == text


@dataclass(frozen=True)
class Served:
    """An engine that completes prompts, at an address of its own."""

    engine: CompletionEngine
    url: str
    prompts: Path

    def check(self, *words: str) -> int:
        return outcome(["check", self.url, "--prompts", str(self.prompts), *words])


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Served]]:
    """Says `text` wherever it can: as the key of a tool call, and of itself."""
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))
    body = {"messages": [{"role": "user", "content": "list"}], "tools": [{"type": "function"}]}
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(f'{json.dumps(body)}\n{{"prompt": "two"}}\n')
    engine = CompletionEngine(faults={"list": Fault(4, margin=STEP)})

    def say(text: str) -> Served:
        calls = ({text: "a", "é": 50}, {text: text, "é": 500})
        engine.calls["list"] = (json.dumps(calls[0]), json.dumps(calls[1]))
        whole = text.replace("\ud800", "")  # the fake answers in UTF-8
        engine.refuse["two"] = (400, whole)
        engine.version, engine.facts, engine.named = whole, {"vllm": whole, whole: 1}, [whole]
        return Served(engine, url, prompts)

    with serve(lambda request: asyncio.run(engine(request))) as url:
        yield say


@pytest.mark.parametrize("text", [PLANTED, " ".join(MARKUP)], ids=["escapes", "markup"])
def test_a_key_in_model_output_is_text_in_every_report(
    text: str, served: Callable[[str], Served], tmp_path: Path, capsys: Captured
) -> None:
    names = ("a.md", "a.xml", "a.json", "bundle.md")
    report, junit, data, bundle = (tmp_path / name for name in names)
    words = [word for path in (report, junit, data) for word in ("--report", str(path))]
    one = served(text)
    assert one.check(*words, "--bundle", str(bundle)) == 1
    said = capsys.readouterr()
    assert "structural" in said.out
    assert "refused" in said.out
    for written in (said.out, said.err, report.read_text(), bundle.read_text()):
        assert_harmless(written)
    assert_without_markup(report.read_text())
    assert_without_markup(bundle.read_text())
    assert html(bundle.read_text()).count("<pre>") == 3
    assert_harmless(junit.read_text())
    assert ET.fromstring(junit.read_text()).tag == "testsuite"
    assert data.read_text().isascii()
    found: dict[str, Any] = json.loads(data.read_text())
    paths = [change["path"] for change in found["cases"][0]["structure"]]
    assert text.replace("\ud800", "\ufffd") in paths  # half a character is none


def test_a_check_in_json_is_ascii_and_so_is_its_history(
    served: Callable[[str], Served], capsys: Captured
) -> None:
    one = served(PLANTED)
    assert one.check("--json") == 1
    assert outcome(["check", one.url, "--history", "--json"]) == 0
    assert outcome(["check", one.url, "--history"]) == 0
    said = capsys.readouterr()
    assert_harmless(said.out)
    assert said.out.splitlines()[0].isascii()


def test_the_line_of_progress_moves_with_the_answers_and_keeps_the_figures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    none, seen = Rate(0, 0), Rate(2, 32)
    empty, found = (RunningFigures(one, none, none, none, {}) for one in (none, seen))

    def show(*events: CheckProgress) -> str:
        for event in events:
            now[0] += 20
            ticker.show(event)
        return capsys.readouterr().err

    ticker = check.Ticker()
    show(CheckProgress(0, 50, 0, 0, None, None, empty))
    assert "0 of 50 prompts (37 of 250 answers)" in show(
        CheckProgress(0, 50, 0, 0, None, 720.0, None, 37, 250)
    )
    block = CheckProgress(31, 50, 2, 0, 1.0, 20.0, None, 160, 250)
    assert not show(block)  # what its block found comes in the same moment
    show(CheckProgress(32, 50, 2, 0, 1.0, 20.0, found, 160, 250))
    line = show(CheckProgress(32, 50, 2, 0, 1.0, 18.0, None, 171, 250))
    assert "32 of 50 prompts (171 of 250 answers), 2 differ: 6.25%" in line


def test_a_terminal_shows_at_once_what_a_check_goes_on_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    none = Rate(0, 0)
    found = RunningFigures(none, none, none, none, {})
    ticker = check.Ticker()
    ticker.show(CheckProgress(0, 20, 0, 0, None, 3.0, found, 99, 100))
    capsys.readouterr()
    ticker.show(CheckProgress(0, 20, 0, 0, None, None, None, 100, 100, "rechecking 3 answers"))
    shown = capsys.readouterr().err
    assert "(100 of 100 answers), 0 differ, rechecking 3 answers" in shown
    assert "left" not in shown
    ticker.close()
