"""From a YAML file to validated settings, with older spellings translated."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdeck.engine.config.config import Config as Config
    from specdeck.engine.config.config import Notice as Notice
    from specdeck.engine.config.loader import load as load


def __getattr__(name: str) -> object:
    """`load`, `Config` and `Notice`, imported when first asked for: pydantic and YAML are slow."""
    from importlib import import_module

    homes = {"Config": "config", "Notice": "config", "load": "loader"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{homes[name]}"), name)
    globals()[name] = value
    return value
