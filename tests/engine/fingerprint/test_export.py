"""What Prometheus gets of a verification."""

from pathlib import Path
from typing import Any

from specdeck.engine.fingerprint.compare import Comparison, compare
from specdeck.engine.fingerprint.export import Gauges


def test_gauges_say_which_layer_differs(fingerprints: Any, tmp_path: Path) -> None:
    gauges = Gauges("http://e:1")
    gauges.show(compare(fingerprints.seen(), fingerprints.seen(live__k=5)), 7.0)
    gauges.count_drift()
    gauges.write(tmp_path / "drift.prom")
    text = (tmp_path / "drift.prom").read_text()
    for line in (
        'specdeck_fingerprint_drift{engine="http://e:1",layer="build"} 0.0',
        'specdeck_fingerprint_drift{engine="http://e:1",layer="path"} 1.0',
        'specdeck_fingerprint_drifts_total{engine="http://e:1"} 1.0',
        'specdeck_fingerprint_verdict{engine="http://e:1",kind="knob"} 1.0',
        'specdeck_fingerprint_verified_timestamp_seconds{engine="http://e:1"} 7.0',
    ):
        assert line in text
    assert 'layer="behaviour"' not in text
    gauges.show_failure()
    gauges.write(tmp_path / "drift.prom")
    assert 'up{engine="http://e:1"} 0.0' in (tmp_path / "drift.prom").read_text()


def test_a_layer_that_is_not_compared_any_more_has_no_sample(
    fingerprints: Any, tmp_path: Path
) -> None:
    gauges, found = Gauges("http://e:1"), compare(fingerprints.seen(), fingerprints.seen())
    for layers in ({"build": False, "behaviour": True}, {"build": False, "behaviour": None}):
        gauges.show(_With(found, layers), 7.0)  # type: ignore[arg-type]
        gauges.write(tmp_path / "drift.prom")
        is_told = 'layer="behaviour"' in (tmp_path / "drift.prom").read_text()
        assert is_told is (layers["behaviour"] is not None)


class _With:
    """A comparison with other layers."""

    def __init__(self, found: Comparison, layers: dict[str, bool | None]) -> None:
        self._found, self.layers = found, layers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)
