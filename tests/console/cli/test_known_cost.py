"""What `sweep --hard` found, from its end to the next start of the same config."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from specdeck.console.cli.common import open_user_store
from specdeck.console.cli.run import demo_config, with_known_cost
from specdeck.engine.config.config import Config
from specdeck.engine.config.loader import load as load_config
from specdeck.engine.launch.command import build_environment
from specdeck.engine.launch.machine import Build
from specdeck.engine.policy.parameters import read_orchestration
from specdeck.engine.protocol.messages import ORCHESTRATION_VARIABLE
from specdeck.engine.store.soft_costs import SoftCost, SoftCosts
from specdeck.engine.store.starts import config_key


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The demo's, for a user without a store."""
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path))
    return load_config(demo_config())


def remember(config: Config, cost: float) -> None:
    """Has the user's store know what soft k = 0 costs with `config`."""
    found = SoftCost(
        time.time(), config_key(config.path), config.arguments_digest, cost, cost - 0.01,
        cost + 0.01, 4.0, "predictable, 4 streams",
    )  # fmt: skip
    with open_user_store() as store:
        SoftCosts(store).add(found)


def test_a_start_is_told_what_was_measured_with_its_config(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    assert with_known_cost(config).orchestration.soft_cost is None
    remember(config, 0.071)
    told = with_known_cost(config)
    assert told.orchestration.soft_cost == 0.071
    assert "soft k=0 takes +7.1 % against no speculation" in capsys.readouterr().err
    environment = build_environment(
        told, {}, token_file=Path("t"), build=Build("cpu"), installed=lambda: []
    )
    catalogue, wrong = read_orchestration(json.loads(environment[ORCHESTRATION_VARIABLE]))
    assert catalogue.baseline.soft_cost == 0.071
    assert wrong == {}


def test_another_engine_from_the_same_file_is_not_told(config: Config) -> None:
    remember(config, 0.071)
    longer = replace(config, engine_args={**config.engine_args, "max_num_seqs": 64})
    assert with_known_cost(longer).orchestration.soft_cost is None
    other = replace(config, port=9000, host="0.0.0.0")
    assert with_known_cost(other).orchestration.soft_cost == 0.071


def test_what_the_config_says_itself_is_not_replaced(config: Config) -> None:
    remember(config, 0.071)
    own = replace(config, orchestration=config.orchestration.model_copy(update={"soft_cost": 0.2}))
    assert with_known_cost(own).orchestration.soft_cost == 0.2


def test_an_engine_without_speculation_has_no_soft_zero(config: Config) -> None:
    remember(config, 0.071)
    assert with_known_cost(config.reference()).orchestration.soft_cost is None
