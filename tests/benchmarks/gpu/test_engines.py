"""The engines that `python -m benchmarks.gpu` starts, read without one."""

from importlib.metadata import entry_points
from math import inf
from pathlib import Path

import pytest
from benchmarks.gpu.checkout import GENERAL, write_own
from benchmarks.gpu.engines import EngineFailed, Fleet, Standing, read_tail
from benchmarks.gpu.parts import MAIN, PARTS
from benchmarks.gpu.variants import (
    ON_CPU,
    VARIANTS,
    Setup,
    Variant,
    build_config,
    choose_variables,
    write_config,
)

from specdeck.engine.config.loader import load
from specdeck.engine.launch.command import engine_arguments
from specdeck.engine.launch.machine import Build
from specdeck.engine.protocol.methods import SCHEDULE, SPECULATIVE

CUDA = Build("gpu", "vllm", "0.32.0")


class FakeEngine:
    """An engine that fails to start where a test says so."""

    def __init__(self, variant: Variant, failing: set[str]) -> None:
        self.variant = variant
        self.failing = failing
        self.is_alive = True

    def wait(self, until: float) -> None:
        if self.variant.name in self.failing:
            raise EngineFailed(f"{self.variant.name} cannot")

    def stop(self) -> None:
        self.is_alive = False

    def standing(self, role: str) -> Standing:
        return Standing(role, self.variant.name)


class Starts:
    """Starts fake engines, and remembers them in their order."""

    def __init__(self, *failing: str) -> None:
        self.failing = set(failing)
        self.made: list[FakeEngine] = []

    def __call__(self, variant: Variant, setup: Setup) -> FakeEngine:
        self.made.append(FakeEngine(variant, self.failing))
        return self.made[-1]

    @property
    def names(self) -> list[str]:
        return [engine.variant.name for engine in self.made]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path, gpu="A card (80 GiB, driver 580)")


@pytest.mark.parametrize("name", VARIANTS)
def test_every_config_is_served_as_production_would(name: str, setup: Setup) -> None:
    variant = VARIANTS[name]
    config = load(write_config(variant, setup))
    args = engine_arguments(config, build=CUDA, environment={})
    assert args["dtype"] == "bfloat16"
    assert args["attention_backend"] == "FLASH_ATTN"
    assert (SPECULATIVE in args) == (variant.method is not None)
    assert (SCHEDULE in args.get(SPECULATIVE, {})) == variant.tiers


def test_kernels_are_indifferent_to_the_batch_where_that_is_the_point(setup: Setup) -> None:
    told = {v.name: choose_variables(v, setup)["VLLM_BATCH_INVARIANT"] for v in VARIANTS.values()}
    assert {name for name, value in told.items() if value == "1"} == {
        "invariant",
        "invariant-target",
    }


def test_the_engine_without_the_plugin_is_otherwise_the_same(setup: Setup) -> None:
    assert build_config(VARIANTS["stock"], setup) == build_config(VARIANTS["plain"], setup)


def test_every_role_is_played_on_a_gpu_and_played_or_explained_on_a_cpu(
    setup: Setup, tmp_path: Path
) -> None:
    for role in {role for part in PARTS for role in part.engines}:
        assert isinstance(setup.find_variants(role), tuple)
        assert role in ON_CPU
        assert Setup(tmp_path, small=True).find_variants(role)


def test_a_mere_checkout_has_the_entry_points_of_the_installed_one(tmp_path: Path) -> None:
    write_own(tmp_path)
    text = (tmp_path / "specdeck-0.dist-info" / "entry_points.txt").read_text()
    for group in (GENERAL, "vllm.endpoint_plugins", "vllm.stat_logger_plugins"):
        (entry,) = (e for e in entry_points(group=group) if e.name == "specdeck")
        assert f"[{group}]\nspecdeck = {entry.value}\n" in text


def test_the_main_engine_is_the_best_that_starts(setup: Setup) -> None:
    starts = Starts("tiers")
    with Fleet(setup, start=starts) as fleet:
        found = fleet.provide([MAIN, "target"], inf)
        assert found[MAIN].variant == "plain"
        assert found["target"].variant == "target"
        assert starts.names == ["tiers", "target", "plain"]
        assert fleet.provide([MAIN], inf)[MAIN].variant == "plain"
    assert starts.names == ["tiers", "target", "plain"]
    assert not any(engine.is_alive for engine in starts.made)


def test_an_engine_that_does_not_start_is_told_of_and_not_tried_again(setup: Setup) -> None:
    starts = Starts("invariant")
    with Fleet(setup, start=starts) as fleet:
        for _ in range(2):
            assert fleet.provide(["invariant"], inf)["invariant"].failure == (
                "invariant: invariant cannot"
            )
    assert starts.names == ["invariant"]


def test_an_engine_that_died_is_started_again(setup: Setup) -> None:
    starts = Starts()
    with Fleet(setup, start=starts) as fleet:
        fleet.provide([MAIN], inf)
        starts.made[0].is_alive = False
        assert fleet.provide([MAIN], inf)[MAIN].failure is None
    assert starts.names == ["tiers", "tiers"]


def test_engines_that_no_later_part_uses_are_ended(setup: Setup) -> None:
    starts = Starts()
    with Fleet(setup, start=starts) as fleet:
        fleet.provide([MAIN, "target"], inf)
        fleet.keep([MAIN])
        assert [engine.is_alive for engine in starts.made] == [True, False]


def test_a_role_that_nothing_can_play_here_is_no_failure_to_start(tmp_path: Path) -> None:
    starts = Starts()
    with Fleet(Setup(tmp_path, small=True), start=starts) as fleet:
        standing = fleet.provide(["invariant"], inf)["invariant"]
    assert standing.absent
    assert standing.failure == ON_CPU["invariant"]
    assert starts.made == []


def test_the_end_of_a_log_shows_errors_from_before_it_without_credentials(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    lines = ["loading", "ValueError: no kernel; api_key=sk-123456", *["waiting"] * 50, "ended"]
    log.write_text("\n".join(lines))
    tail = read_tail(log)
    assert tail[0] == "ValueError: no kernel; api_key=***"
    assert tail[-1] == "ended"
    assert "loading" not in tail
