"""Where every change comes from, as data."""

from __future__ import annotations

from tests.support.engine_core import Clock, FakeCore, make_control, poor_step

from specdeck.engine.plugin.control import Control
from specdeck.engine.protocol.messages import Change


def origins(control: Control) -> tuple[str | None, str | None]:
    """Where the last change, and the last move of k, came from."""
    last, moves = control.state().last_change, control.tuning().changes
    return last.origin if last else None, moves[-1].origin if moves else None


def test_every_change_tells_where_it_came_from(
    control: Control, engine: FakeCore, clock: Clock
) -> None:
    control.change(Change.from_json({"k": 4, "who": "an older console"}))
    assert origins(control) == ("operator", "operator")
    control.change(Change(k=5, origin="undo"))
    assert origins(control) == ("undo", "undo")
    control.change(Change(k=2, lease_s=5, origin="sweep"))
    assert origins(control) == ("sweep", "sweep")
    clock.now += 6
    assert origins(control) == ("lease", "lease")
    engine.play(300, by_k={5: 4})
    control.change(Change(k=3, judge=True, trial_s=4.0, lease_s=60))
    assert (engine.k, origins(control)) == (3, ("trial", "trial"))
    control.change(Change(cancel=True))
    assert (engine.k, origins(control)) == (5, ("trial", "trial"))
    control.change(Change(policy="threshold"))
    for step in range(3):
        engine.finish(poor_step(step))
    assert origins(control) == ("operator", "policy")
    control.change(Change(breaker="open", who="ana"))
    assert origins(control) == ("operator", "operator")


def test_an_origin_of_a_newer_client_is_read_as_it_is(control: Control) -> None:
    control.change(Change.from_json({"k": 4, "origin": "weather"}))
    assert control.state().as_json()["last_change"]["origin"] == "weather"


def test_what_the_config_begins_says_so(engine: FakeCore, clock: Clock) -> None:
    control = make_control(engine, clock, {"adaptive_draft": True})
    assert origins(control)[0] == "config"
