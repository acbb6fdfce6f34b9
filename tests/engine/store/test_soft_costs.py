"""What soft k = 0 was measured to cost, by config and arguments."""

from pathlib import Path

from specdeck.engine.store.database import Store
from specdeck.engine.store.soft_costs import SoftCost, SoftCosts


def test_the_latest_measurement_of_the_same_engine_is_found(tmp_path: Path) -> None:
    first = SoftCost(1.0, "c", "a", 0.07, 0.05, 0.09, 4.0, "predictable, 4 streams")
    later = SoftCost(2.0, "c", "a", 0.21, 0.2, 0.22, None, "hard, 16 streams")
    other = SoftCost(3.0, "c", "another k_max", 0.5, 0.4, 0.6, 4.0, "hard, 4 streams")
    with Store(tmp_path / "store.sqlite") as store:
        for each in (later, first, other):
            SoftCosts(store).add(each)
    with Store(tmp_path / "store.sqlite") as store:
        assert SoftCosts(store).last("c", "a") == later
        assert SoftCosts(store).last("d", "a") is None
