"""What `GET tuning` answers, on the wire."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from tests.support.tuned_engine import TRIAL, tuning

from specdeck.engine.protocol.tuning import CurvePoint, KChange, Tuning

POINT = CurvePoint(1, 2, 1.5, 3, 160, 0.02, 250.0, 8.0, 240.0, 260.0, 1.5)
MOVE = KChange(9.0, 5, 3, "why", "ann", "operator")


@pytest.mark.parametrize("points", [0, 3])
def test_every_record_is_on_the_wire_as_it_is(points: int) -> None:
    found = replace(tuning(), trial=TRIAL, curve=(POINT,) * points, changes=(MOVE,) * points)
    assert found.as_json() == asdict(found)
    assert list(found.as_json()) == list(asdict(found))
    assert Tuning.from_json(json.loads(json.dumps(found.as_json()))) == found
