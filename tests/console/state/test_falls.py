"""Falls are looked for hour by hour."""

import math
from dataclasses import dataclass
from typing import cast

import pytest

from specdeck.console.state.falls import HOUR_S, MOST_HOURS, Falls
from specdeck.console.state.past import History


@dataclass
class Ends:
    """A record of which nothing but its ends is asked."""

    first: float
    last: float


@pytest.mark.parametrize("last", [1.79e9, 1e11])
def test_the_last_week_of_a_record_that_claims_centuries_is_looked_through(last: float) -> None:
    falls = Falls(cast(History, Ends(1.0, last)), live=False)
    hours = falls.list_hours(1.0, last, last)
    assert hours[0] == math.floor(last / HOUR_S)
    assert len(hours) == MOST_HOURS


def test_every_hour_of_a_week_is_looked_through() -> None:
    last = 1.79e9
    first = last - 7 * 86_400
    falls = Falls(cast(History, Ends(first, last)), live=False)
    hours = falls.list_hours(first, last, last)
    assert hours[-1] == math.floor(first / HOUR_S)
