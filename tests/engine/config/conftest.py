from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from specdeck.engine.config.config import Config
from specdeck.engine.config.loader import load
from specdeck.engine.errors import ConfigError

Loaded = Callable[[str], Config]
Refused = Callable[[str], str]


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    """A config from its text."""

    def of(text: str) -> Config:
        path = tmp_path / "c.yaml"
        path.write_text(text, encoding="utf-8")
        return load(path)

    return of


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """The one line of the error that a text gives, without its folder."""

    def of(text: str) -> str:
        path = tmp_path / "c.yaml"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load(path)
        line = caught.value.line()
        assert "\n" not in line
        return line.replace(f"{tmp_path}/", "")

    return of
