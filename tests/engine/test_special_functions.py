"""SciPy is imported where there is room for it, and never where its OpenBLAS would try for ever."""

import sys

import pytest
from tests.support.little_memory import limit_memory

from specdeck.engine.divergence import likelihood, statistics, upgrade
from specdeck.engine.errors import NoMemory
from specdeck.engine.special_functions import require_memory, special_functions
from specdeck.engine.why.figures import Trials


def test_what_is_imported_already_requires_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = special_functions()
    limit_memory(monkeypatch)
    monkeypatch.setitem(sys.modules, "scipy.special", loaded)
    require_memory()
    assert special_functions() is loaded


def test_it_is_not_imported_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_memory(monkeypatch)
    few = likelihood.Surprise(tokens=2, rare=1)
    for work in (
        statistics.load,
        lambda: statistics.Rate(1, 5).ci95,
        lambda: Trials(1, 5).limits(0.95),
        lambda: upgrade.mean_bounds([1.0, 2.0]),
        lambda: likelihood.contrast(few, few),
    ):
        with pytest.raises(NoMemory, match="and the limit is 100 MB"):
            work()
    assert "scipy.special" not in sys.modules
