"""Speed by batch size and k, as it was measured: the interval is of the value that is shown."""

from specdeck.engine.policy.estimates import Curve
from specdeck.engine.policy.step import Step


def test_the_interval_holds_its_value_where_a_block_took_a_pause() -> None:
    curve = Curve()
    for number in range(16 * 8):
        # A pause of the machine in one block: means of ratios know nothing of its length.
        seconds = 5.0 if number == 40 else 0.02
        curve.add(1, Step(number, number * 0.02, 2, 16, 7, 2, 14, 4, seconds, 6, settled=True))
    (point,) = curve.points()
    low, high = point.tokens_per_second_low, point.tokens_per_second_high
    assert low is not None
    assert high is not None
    assert 0 <= low <= point.tokens_per_second <= high
