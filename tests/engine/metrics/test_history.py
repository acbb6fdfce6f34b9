from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from specdeck.engine.control.protocol import EngineState, LastChange
from specdeck.engine.errors import Unreachable
from specdeck.engine.metrics.history import History, Marker, advance
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import Window

State = Callable[..., EngineState]


def up(t: float, state: EngineState | None = None, *, restarted: bool = False) -> Reading:
    window = Window(seconds=1.0, generated=100.0, drafts=10.0, drafted=30.0, accepted=15.0)
    return Reading(
        t,
        "u",
        Sample(t=t, at=t),
        None if restarted else window,
        state,
        restarted=restarted,
    )


def down(t: float) -> Reading:
    return Reading(t, "u", error=Unreachable("no answer for 5 s"))


def after(*readings: Reading) -> History:
    return reduce(advance, readings, History())


def texts(history: History) -> list[str]:
    return [event.text for event in history.events]


def test_a_reading_becomes_a_point() -> None:
    (point,) = after(up(1.0)).points
    assert (point.t, point.tokens_per_second, point.acceptance_rate) == (1.0, 100.0, 0.5)
    assert point.draft_tokens_per_draft == 3.0
    assert point.marker is None


def test_an_outage_is_marked_once_and_breaks_the_line() -> None:
    history = after(up(1.0), down(2.0), down(3.0), up(4.0))
    assert [point.tokens_per_second for point in history.points] == [100.0, None, None, 100.0]
    assert history.markers == (Marker(2.0, "down", "down"),)
    assert texts(history) == ["the engine is down: no answer for 5 s", "the engine answers again"]


def test_a_restart_is_marked_and_changes_of_knobs_across_it_are_not(state: State) -> None:
    history = after(
        up(1.0, state()), down(2.0), up(3.0, state(instance="two", k=3), restarted=True)
    )
    assert history.markers[-1] == Marker(3.0, "restart", "restart")
    assert len(history.markers) == 2
    assert history.points[-1].tokens_per_second is None


def test_another_instance_is_a_restart_even_when_nobody_says_so(state: State) -> None:
    history = after(up(1.0, state()), up(2.0, state(instance="two")))
    assert [marker.kind for marker in history.markers] == ["restart"]


def test_a_change_of_k_is_marked_and_told_with_its_author(state: State) -> None:
    change = LastChange(1.5, "ana", "trying", {"k": 5}, {"k": 3})
    history = after(up(1.0, state()), up(2.0, state(k=3, k_set=3, version=1, last_change=change)))
    assert history.points[-1].marker == Marker(2.0, "k", "k 5→3")
    assert [event.text for event in history.fresh] == ["k 5→3 by ana: trying"]
    assert advance(history, up(3.0, history.state)).fresh == ()


def test_target_only_is_one_marker_and_so_is_the_way_back(state: State) -> None:
    off = state(mode="target-only", k=0, version=1)
    history = after(up(1.0, state()), up(2.0, off), up(3.0, state(version=2)))
    assert [marker.text for marker in history.markers] == ["target-only", "speculate k=5"]


def test_k_set_in_target_only_says_when_it_takes_effect(state: State) -> None:
    off = state(mode="target-only", k=0)
    history = after(up(1.0, off), up(2.0, state(mode="target-only", k=0, k_set=3)))
    assert history.markers == (Marker(2.0, "k", "k 5→3"),)
    assert texts(history) == ["k 5→3 once speculation is back on"]


def test_a_plugin_that_is_silent_for_a_moment_changed_nothing(state: State) -> None:
    assert after(up(1.0, state()), up(2.0), up(3.0, state())).events == ()
    changed = after(up(1.0, state()), up(2.0), up(3.0, state(k=3, k_set=3)))
    assert changed.markers == (Marker(3.0, "k", "k 5→3"),)


def test_the_policy_and_the_breaker_are_told_without_a_marker(state: State) -> None:
    history = after(up(1.0, state()), up(2.0, state(policy="goodput", breaker="open")))
    assert texts(history) == ["policy fixed→goodput", "breaker closed→open"]
    assert history.markers == ()


def test_the_oldest_points_give_way() -> None:
    history = reduce(advance, (up(float(t)) for t in range(10)), History(limit=4))
    assert [point.t for point in history.points] == [6.0, 7.0, 8.0, 9.0]
