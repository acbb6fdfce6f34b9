"""What `specdeck sweep` says, and how it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from specdeck.console.cli import outcome
from specdeck.console.commandline import sweep_words as words
from specdeck.console.commandline.sweep import Screen
from specdeck.engine.sweep.runner import Progress


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--k", "0-x"], 2, "names no k's"),
        (["--k", "5-2"], 2, "runs backwards: give 2-5"),
        (["--k", "3"], 2, "one k is nothing to compare"),
        (["--k", "-1"], 2, "names no k's"),
        (["--k", ""], 2, "names no k's"),
        (["--seconds", "nan"], 2, "no finite number"),
        (["--seconds", "0"], 2, "0"),
        (["--rounds", "1"], 2, "1"),
        ([], 3, "refuses connections"),
    ],
)
def test_nonsense_and_silence_are_one_line(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(["sweep", "127.0.0.1:9", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert len(printed.err.splitlines()) == 1


def document() -> dict[str, Any]:
    """What a sweep over three k's came to."""
    return {
        "k": [0, 3, 4],
        "visits": [{"k": k, "seconds": 1.5, "tokens_per_second": 1.0} for k in (0, 3, 4)],
        "curve": [
            {
                "k": k,
                "tokens_per_second": {"value": rate, "ci95": [rate - 20, rate + 20]},
                "ms_per_token": {"value": 4000 / rate, "ci95": [1.0, 2.0]},
            }
            for k, rate in ((0, 400.0), (3, 820.0), (4, 800.0))
        ],
        "optimum": {
            "k": 3, "clear": False, "tied": [4], "next": 4,
            "gain_over_next": {"value": 0.025, "ci95": [-0.01, 0.06]},
            "gain_over_target_only": {"value": 1.05, "ci95": [0.98, 1.12]},
        },
        "batch": 4.02,
        "schedule": {"num_speculative_tokens_per_batch_size": [[1, 32, 3]]},
        "measured_batch_sizes": ["4"],
        "before": {"k": 5, "mode": "speculate", "policy": "fixed", "fallback": "warm"},
        "after": {"k": 5, "mode": "speculate", "policy": "fixed", "fallback": "warm"},
        "restored": True,
    }  # fmt: skip


def test_the_curve_marks_the_best_and_fits_the_width() -> None:
    lines = words.curve(document(), 80)
    assert [line[0] for line in lines] == [" ", " ", "►", " "]
    assert all(len(line) <= 80 for line in lines)
    assert "800.0–840.0" in lines[2]


def test_the_verdict_names_what_is_tied_and_how_the_engine_was_left() -> None:
    text = "\n".join(words.verdict(document()))
    assert "best k     3: +105.0 % (+98.0 to +112.0) over target-only" in text
    assert "k=4 cannot be told from it" in text
    assert '"num_speculative_tokens_per_batch_size": [[1, 32, 3]]' in text
    assert "as it was found: k=5 mode=speculate policy=fixed" in text


def test_an_engine_that_is_not_as_it_was_found_is_named() -> None:
    left = {**document(), "restored": False, "after": {"k": 2}}
    assert words.verdict(left)[-1].startswith("engine     k=2; it was found with k=5")


def test_a_log_has_a_line_for_each_round(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(document, terminal=False)
    for done in range(7):
        screen(Progress(done, 6, done % 3, 1.0))
    screen.close()
    assert capsys.readouterr().err.splitlines() == [
        "sweep: 3 of 6 visits, best so far k=3",
        "sweep: 6 of 6 visits, best so far k=3",
    ]


def test_a_terminal_shows_the_curve_and_is_left_clean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = Screen(document, terminal=True, columns=lambda: 60)
    screen(Progress(1, 6, 3, 9.0))
    screen(Progress(2, 6, 0, 8.0))
    screen.close()
    drawn = capsys.readouterr().err
    assert drawn.count("\x1b[5A") == 2
    assert drawn.endswith("\r\x1b[J")
    assert "sweep: 2 of 6 visits, at k=0, 8 s left" in drawn
