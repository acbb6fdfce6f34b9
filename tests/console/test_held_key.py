"""A key does no more on the screen that it has led to, but only for a moment."""

from __future__ import annotations

import pytest
from textual.events import Key
from textual.screen import ModalScreen, Screen

from specdeck.console.held_key import HeldKey


def find_spent(screen: Screen[object], *times: float, key: str = "w") -> list[float]:
    """When the key did nothing on the screen that a first one, at 0 s, has led to."""
    held = HeldKey()

    def press(name: str, t: float, on: Screen[object]) -> bool:
        event = Key(name, name)
        event.time = t
        return held.is_spent(event, on, is_typed=False)

    assert not press("w", 0.0, Screen())
    return [t for t in times if press(key, t, screen)]


@pytest.mark.parametrize("kind", [Screen, ModalScreen])
@pytest.mark.parametrize("apart", [0.5, 0.7])
def test_a_key_that_is_pressed_on_and_on_acts_again_after_a_second(
    kind: type[Screen[object]], apart: float
) -> None:
    spent = find_spent(kind(), *(n * apart for n in range(1, 9)))
    assert spent
    assert max(spent) < 1.0


@pytest.mark.parametrize("kind", [Screen, ModalScreen])
def test_a_key_that_is_held_does_nothing_for_three_seconds(kind: type[Screen[object]]) -> None:
    held = [0.66 + n * 0.05 for n in range(100)]  # as keyboards wait before they repeat
    assert find_spent(kind(), *held) == [t for t in held if t < 3.0]


def test_a_key_that_is_pressed_fast_acts_after_a_second_unless_it_may_answer_something() -> None:
    fast = [n * 0.3 for n in range(1, 15)]
    assert max(find_spent(Screen(), *fast)) < 1.0
    assert find_spent(ModalScreen(), *fast) == [t for t in fast if t < 3.0]


def test_another_key_than_the_one_that_led_to_a_screen_acts_at_once() -> None:
    assert find_spent(Screen(), 0.01, 0.05, 0.2, key="t") == []
