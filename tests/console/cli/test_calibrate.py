"""What `specdeck sweep --calibrate` says, and which options it has none of."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from specdeck.console.cli.calibrate import describe_truth, table_lines, verdict_lines
from specdeck.console.cli.main import outcome
from specdeck.engine.errors import Conflict
from specdeck.engine.operations.calibration import CalibrationOutcome
from specdeck.engine.sweep.calibration import Shapes, ShapeTime, Truth


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--hard"], 2, "mutually exclusive"),
        (["--reference", "127.0.0.1:8"], 2, "mutually exclusive"),
        (["--load", "hard"], 2, "a calibration requires an engine without requests"),
        (["--streams", "4"], 2, "a calibration requires an engine without requests"),
        (["--k", "5-2"], 2, "runs backwards"),
        (["--seconds", "0"], 2, "0"),
        ([], 3, "refuses connections"),
    ],
)
def test_nonsense_and_silence_are_one_line(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(["sweep", "127.0.0.1:9", "--calibrate", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert len(printed.err.splitlines()) == 1


def found() -> CalibrationOutcome:
    """A calibration that a request ended in its first round."""
    times = (
        ShapeTime(1, 0, [0.0101, 0.0103, 0.0102], 0.0110),
        ShapeTime(1, 3, [0.020] * 4),
        ShapeTime(32, 0, [0.1234] * 4),
    )
    shapes = Shapes((1, 32), (0, 3))
    return CalibrationOutcome(
        "http://e:1", shapes, times, 0, 3.4, "demo", "draft_model", Conflict("busy")
    )


def test_the_table_has_a_dash_where_nothing_was_made() -> None:
    assert table_lines(found()) == [
        "requests      k=0      k=3   ms a step",
        "       1     10.2     20.0",
        "      32    123.4        –",
    ]


def test_the_verdict_says_what_was_made_and_how_true_it_is() -> None:
    lines = verdict_lines(found())
    assert lines[0] == "measured   3 of 4 shapes, 11 dummy steps in 3 s"
    assert lines[1] == "stopped    busy"
    assert "0.93 of real ones (1 shape, 0.93 to 0.93)" in lines[2]
    assert all(len(line) <= 80 for line in lines)


def test_an_engine_that_ended_is_not_said_to_be_as_it_was() -> None:
    lines = verdict_lines(replace(found(), engine_after="silent"))
    assert lines[-1] == "engine     it did not answer after that: see its log"
    restarted = verdict_lines(replace(found(), engine_after="restarted"))
    assert restarted[-1] == "engine     it was restarted, and has learned nothing of this"
    assert "as it was found" in verdict_lines(found())[-1]


def test_what_is_far_from_real_steps_is_said() -> None:
    assert describe_truth(Truth(0.8, 0.7, 0.9, 3)).endswith("more than 15% apart")
    assert "apart" not in describe_truth(Truth(0.9, 0.7, 0.95, 3))


def test_the_json_has_every_key_and_null_for_what_is_not_known() -> None:
    document = json.loads(json.dumps(found().as_json()))
    assert document["stopped"] == "busy"
    assert document["complete"] is False
    assert [shape["real_ms"] for shape in document["shapes"]] == [11.0, None, None]
    assert document["against_real"] == {"ratio": 0.927, "range": [0.927, 0.927], "shapes": 1}
