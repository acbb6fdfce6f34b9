"""A check as CI systems show it."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from specdeck.engine.divergence.conclusion import Conclusion
from specdeck.engine.divergence.report import check_junit

CASE = {
    "prompt": 7, "index": 1, "serving_token": 50, "reference_token": 2, "margin_serving": 0.05,
    "margin_reference": 0.06, "class": "structural", "recheck": None,
    "structure": [{"path": "limit", "kind": "value", "reference": 50, "serving": 500}],
}  # fmt: skip


def suite(verdict: str, *cases: dict[str, Any], conclusion: Conclusion | None = None) -> ET.Element:
    data: dict[str, Any] = {"verdict": verdict, "reason": "why", "seconds": 1.0, "cases": cases}
    if conclusion is not None:
        data["conclusion"] = conclusion.as_json()
    return ET.fromstring(check_junit(data))


@pytest.mark.parametrize("verdict", ["pass", "inconclusive"])
def test_only_a_fail_has_failures(verdict: str) -> None:
    found = suite(verdict, CASE)
    assert (found.get("tests"), found.get("failures")) == ("2", "0")
    assert found.find(".//failure") is None
    told = found.findtext("testcase[@name='prompt 7 token 1']/system-out")
    assert told is not None
    assert "limit: 50 → 500" in told


def test_what_could_not_be_judged_is_an_error() -> None:
    found, passed = suite("inconclusive"), suite("pass")
    assert (found.get("errors"), found.get("skipped")) == ("1", "0")
    assert (passed.get("errors"), passed.get("skipped")) == ("0", "0")
    (error,) = found.findall(".//error")
    assert error.get("message") == "could not be judged: why"
    assert passed.find(".//error") is None


def test_a_fail_names_every_case_that_is_no_near_tie() -> None:
    found = suite("fail", CASE, {**CASE, "prompt": 8, "class": "near_tie"})
    assert (found.get("tests"), found.get("failures")) == ("2", "2")
    assert len(found.findall(".//failure")) == 2
    assert found.find(".//system-out") is None


def test_a_night_is_as_red_as_its_exit_code_whatever_its_verdict() -> None:
    usual = suite("fail", CASE, conclusion=Conclusion("canary", "pass", "as before"))
    assert (usual.get("tests"), usual.get("failures"), usual.get("errors")) == ("3", "0", "0")
    assert usual.find(".//failure") is None
    assert usual.findtext("testcase[@name='verdict']/system-out") == "fail: why"
    worse = suite("pass", CASE, conclusion=Conclusion("canary", "fail", "changed"))
    assert (worse.get("tests"), worse.get("failures"), worse.get("errors")) == ("3", "2", "0")
    told = worse.find("testcase[@name='canary']/failure")
    assert told is not None
    assert told.get("message") == "changed"
    early = suite("pass", conclusion=Conclusion("canary", "inconclusive", "too early"))
    assert (early.get("tests"), early.get("failures"), early.get("errors")) == ("2", "0", "1")
    error = early.find("testcase[@name='canary']/error")
    assert error is not None
    assert error.get("message") == "could not be judged: too early"
