"""The page of `python -m benchmarks.gpu`: what it says of what did not run."""

from pathlib import Path
from typing import get_args

import pytest
from benchmarks.gpu.page import NEVER, PAGE, Outcome, Page, Status
from benchmarks.gpu.parts import PARTS
from benchmarks.gpu.report import Report

FIRST, SECOND = PARTS[:2]


def test_every_part_that_nobody_has_run_says_so(tmp_path: Path) -> None:
    page = Page(tmp_path / "GPU.md")
    page.write()
    text = (tmp_path / "GPU.md").read_text()
    assert NEVER in text
    assert text.count("**not run yet**") == len(PARTS)


def test_a_section_replaces_its_own_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "GPU.md"
    Page(path).put(Outcome(FIRST, "ran", about="the first run"))
    Page(path).put(Outcome(SECOND, "ran", about="another day"))
    Page(path).put(Outcome(FIRST, "failed", "it ended with 1", about="again"))
    text = path.read_text()
    assert "the first run" not in text
    assert "**FAILED: it ended with 1**\n\nagain" in text
    assert "another day" in text
    assert text.index("## 1. ") < text.index("again") < text.index("## 2. ")


def test_a_section_that_ran_on_a_gpu_takes_the_never_away(tmp_path: Path) -> None:
    page = Page(tmp_path / "GPU.md")
    page.put(Outcome(FIRST, "ran", about="2 cores"))
    assert NEVER in page.as_markdown()
    page.put(Outcome(SECOND, "ran", about="on a GPU: A card (80 GiB)"))
    assert NEVER not in page.as_markdown()


def test_a_part_for_which_no_time_was_left_keeps_what_it_found_before(tmp_path: Path) -> None:
    page = Page(tmp_path / "GPU.md")
    page.put(Outcome(FIRST, "ran", about="the first run"))
    page.put(Outcome(FIRST, "skipped", "the time was over"))
    assert "the first run" in page.as_markdown()


@pytest.mark.parametrize("status", [one for one in get_args(Status) if one != "ran"])
def test_only_what_came_to_its_end_has_run(status: Status) -> None:
    told = Outcome(FIRST, status, "no time").describe_status()
    assert "no time" in told
    assert not told.startswith("ran")
    assert "pass" not in told


def test_a_check_that_does_not_hold_is_in_the_first_line_and_no_success() -> None:
    report = Report()
    report.check("no token id below 0", False, "3")
    report.check("no request failed", True)
    outcome = Outcome(FIRST, "ran", report=report)
    assert not outcome.is_good
    assert outcome.describe_status() == "ran; 1 of 2 checks do not hold"
    assert "**does not hold**: no token id below 0 (3)" in outcome.as_markdown()


def test_the_log_of_a_failure_is_shown_without_credentials() -> None:
    log = ["loading", "HF_TOKEN=hf_abcdefgh refused", "a ``` in the log"]
    text = Outcome(FIRST, "failed", "api_key=sk-123456 refused", log=log).as_markdown()
    assert "hf_abcdefgh" not in text
    assert "sk-123456" not in text
    assert text.count("```") == 2


def test_the_shipped_page_is_of_this_program(tmp_path: Path) -> None:
    copy = tmp_path / "GPU.md"
    copy.write_text(PAGE.read_text())
    assert Page(copy).as_markdown() == PAGE.read_text()
