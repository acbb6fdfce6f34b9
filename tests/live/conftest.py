"""Engines that live tests share: one with a defect to switch on, one of copied models."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import planted_defect
from tests.support.command import Command
from tests.support.live_engine import MODELS, LiveEngine


@pytest.fixture(scope="session")
def fault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that switches the defect of `serving` on while it is there."""
    return planted_defect.plugin(tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="session")
def serving(specdeck: Command, fault: Path) -> Iterator[LiveEngine]:
    """An engine in bfloat16 with speculation, whose verification can be made to fail."""
    folder = fault.parent
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    config = planted_defect.config(folder)
    started = LiveEngine.start(specdeck, config, PLANTED=str(fault), PYTHONPATH=path)
    yield started
    started.clear_away()


@pytest.fixture(scope="session")
def copied(specdeck: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEngine]:
    """An engine on copies of the models, whose tokenizers have two words the other way round."""
    folder = tmp_path_factory.mktemp("copied")
    shutil.copytree(MODELS, folder / "models")
    for path in folder.glob("models/*/tokenizer.json"):
        tokenizer = json.loads(path.read_text())
        ids = tokenizer["model"]["vocab"]
        ids["def"], ids["):"] = ids["):"], ids["def"]
        path.write_text(json.dumps(tokenizer))
    config = planted_defect.config(folder, models=folder / "models")
    started = LiveEngine.start(specdeck, config.rename(folder / "copied.yaml"))
    yield started
    started.clear_away()
