"""The YAML of a small file that a user writes: settings, themes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any

from specdeck.engine.errors import ConfigError, Place
from specdeck.engine.text import find_nearest

LARGEST = 1_000_000
"""Characters of a text that can be one at all."""
_LONGEST_NUMBER = 1_000
"""Characters; what `1:59:59:…` stands for can be more than any text or float can hold."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_SHALLOW = 8_000
"""Characters that cannot be nested deeply enough to exhaust the C parser's stack."""


def parse_yaml(text: str) -> Any:
    """The values that `text` spells; raises ValueError where it is not YAML.

    >>> parse_yaml("theme: dark")
    {'theme': 'dark'}
    """
    import yaml

    if len(text) > LARGEST:
        raise ValueError("it is too large")
    fast, slow = _find_loaders()
    try:
        return yaml.load(text, Loader=fast if len(text) <= _SHALLOW else slow)
    # Other errors than its own are what PyYAML has for `!!bool x`, `!!int ''` and `!!timestamp x`.
    except (yaml.YAMLError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@cache
def _find_loaders() -> tuple[Any, Any]:
    """PyYAML's parsers, the fast one first, without `<<` and without endless numbers.

    The C parser takes a fifth of the time, and themes are read before the first paint. Aliases
    alone share what they stand for; merged into one another, each level is ten times the last.
    """
    import yaml

    class Bounded:
        def construct_scalar(self, node: Any) -> Any:
            if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
                raise yaml.constructor.ConstructorError(
                    problem="a number that is too long", problem_mark=node.start_mark
                )
            return super().construct_scalar(node)  # type: ignore[misc]

        def flatten_mapping(self, node: Any) -> None:
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    raise yaml.constructor.ConstructorError(
                        problem="`<<` is not read here", problem_mark=key.start_mark
                    )

    fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return type("Fast", (Bounded, fast), {}), type("Slow", (Bounded, yaml.SafeLoader), {})


def refuse_unknown(name: str, names: Collection[str], place_of: Callable[[str], Place]) -> None:
    """Raises ConfigError, with the nearest spelling, for a name that is none of `names`."""
    if name in names:
        return
    near = find_nearest(name, names)
    remedy = f"did you mean {near}?" if near else None
    raise ConfigError(f"{name} is not a setting", place=place_of(name), remedy=remedy)
