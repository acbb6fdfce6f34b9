"""Weights that are changed in a running engine, and the path's name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.engine_core import Clock, FakeCore, make_control

from specdeck.engine.plugin.weights import WeightWatch


class Core:
    """As much of vLLM's engine core as new weights go through."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def collective_rpc(
        self, method: str, timeout: float | None = None, args: tuple[Any, ...] = ()
    ) -> list[str]:
        """Asks every worker, of which there is one; `fail` fails."""
        self.called.append(method)
        if method == "update_weights_that_fail":
            raise RuntimeError("half of them are new")
        return [method]

    def set_weight_version(self, weight_version: str) -> None:
        """Names them."""
        self.called.append(weight_version)


def watched() -> tuple[Core, FakeCore, Any]:
    """A core, whose weights the control's engine goes by, and that control."""
    core, engine = Core(), FakeCore()
    control = make_control(engine, Clock())

    def follow() -> None:
        engine.new_weights = watch.facts()
        control.on_new_weights()

    watch = WeightWatch(core, follow)
    return core, engine, control


def path(control: Any) -> str:
    """The path's name."""
    return str(control.facts()["names"]["path"])


@pytest.mark.parametrize(
    "method",
    ["start_draft_weight_update", "update_weights", "reload_weights", "update_weights_from_ipc"],
)
def test_new_weights_give_the_path_another_name_each_time(method: str) -> None:
    core, _, control = watched()
    names = [path(control)]
    for _ in range(2):
        assert core.collective_rpc(method) == [method]
        names.append(path(control))
    assert len(set(names)) == 3


def test_an_update_that_failed_may_have_changed_half() -> None:
    core, _, control = watched()
    before = path(control)
    with pytest.raises(RuntimeError, match="half"):
        core.collective_rpc("update_weights_that_fail")
    assert path(control) != before


def test_other_calls_of_the_workers_leave_the_name() -> None:
    core, engine, control = watched()
    before = path(control)
    for method in ("specdeck_worker", "init_weight_transfer_engine", "compute_weight_checksums"):
        core.collective_rpc(method)
    assert path(control) == before
    assert engine.new_weights is None


def test_weights_of_one_version_have_one_name_on_every_engine() -> None:
    names = []
    for updates in (1, 3):
        core, _, control = watched()
        for _ in range(updates):
            core.collective_rpc("update_weights")
        unnamed = path(control)
        core.set_weight_version("step-100")
        assert path(control) != unnamed
        names.append(path(control))
    assert names[0] == names[1]


def test_unnamed_weights_are_like_no_other_engines() -> None:
    names = []
    for _ in range(2):
        core, _, control = watched()
        core.collective_rpc("update_weights")
        names.append(path(control))
    assert names[0] != names[1]


def test_an_update_after_a_version_was_named_is_not_that_version() -> None:
    core, _, control = watched()
    core.set_weight_version("step-100")
    named = path(control)
    core.collective_rpc("start_draft_weight_update")
    assert path(control) != named
