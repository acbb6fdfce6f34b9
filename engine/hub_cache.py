"""Where the Hugging Face hub's models lie on this machine.

The standard library only: it is read in a process beside the engine.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from pathlib import Path


def find_hub_cache(environment: Mapping[str, str]) -> Path:
    """The folder of downloaded repositories, as huggingface_hub chooses it.

    https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables

    >>> find_hub_cache({"XDG_CACHE_HOME": "/big", "HF_HUB_CACHE": ""}).as_posix()
    '/big/huggingface/hub'
    """
    home = environment.get("HF_HOME")
    if not home:
        home = f"{environment.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    older = environment.get("HUGGINGFACE_HUB_CACHE")
    named = environment.get("HF_HUB_CACHE") or older or f"{home}/hub"
    return Path(os.path.expandvars(named)).expanduser()


def name_folder(model: str) -> str:
    """The folder of the repository `model` within the cache.

    >>> name_folder("org/model")
    'models--org--model'
    """
    return f"models--{model.replace('/', '--')}"
