"""A fingerprint as it was at one moment: names, facts and what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from specdeck.engine.fingerprint.behaviour import Behaviour
from specdeck.engine.fingerprint.name import is_partial
from specdeck.engine.protocol.codec import WrongType

LONGEST_PLACES = 4_000_000
"""Characters of the places of all facts together; those of an engine have 50,000."""
MOST_UNREAD = 1_000
"""Facts that are named as unknown; what is beyond is counted."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A fact that is not known, and why."""

    fact: str
    """Its place in the tree, such as `model.target.weights`."""
    reason: str

    def line(self) -> str:
        """For one line.

        >>> Unread("model.draft.weights", "Permission denied").line()
        'model.draft.weights: Permission denied'
        """
        return f"{self.fact}: {self.reason}"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The fact in a pin or in a plugin's reply; raises KeyError on nonsense."""
        return cls(str(data["fact"]), str(data["reason"]))


STALLED_S = 60.0
"""For how long an engine may get no further with reading its own files, which tells every second or
so how far it is."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the engine is with reading its own weights and libraries."""

    finished: bool = True
    bytes: int | None = None
    total_bytes: int | None = None
    file: str | None = None
    seconds: float | None = None
    held_engine_ms: float | None = None
    """For how long gathering kept the engine's main loop, once, before traffic. Time for which
    other work of the machine had the CPU does not count."""

    @property
    def place(self) -> tuple[int | None, str | None]:
        """Where the reading is: the same as before where it got no further."""
        return self.bytes, self.file

    def line(self) -> str:
        """For one line.

        >>> Progress(False, 5_000_000_000, 20_000_000_000, "model-1.safetensors").line()
        'reading model-1.safetensors, 5.0 of 20.0 GB'
        """
        if self.bytes is None or not self.total_bytes:
            return "reading weights and libraries"
        done, total = (f"{count / 1e9:.1f}" for count in (self.bytes, self.total_bytes))
        return f"reading {self.file or 'files'}, {done} of {total} GB"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What one look at an engine brought."""

    t: float
    """Unix time, seconds."""
    url: str
    build: str
    path: str
    facts: Mapping[str, Any] = field(repr=False)
    """A tree; `live` is what moves without a restart."""
    unread: tuple[Unread, ...] = ()
    system_fingerprint: str | None = None
    """vLLM's own; None where it is switched off or could not be had."""
    is_own_asked: bool = field(default=False, compare=False)
    """Whether the look was for vLLM's own as well, so that None means that it is not told."""
    stamped: bool | None = None
    """Whether responses carry the path's name; None without the plugin."""
    instance: str | None = None
    """The start of the engine; None without the plugin."""
    progress: Progress = Progress()
    behaviour: Behaviour | None = field(default=None, repr=False)

    @property
    def partial(self) -> bool:
        """Whether a fact behind the names is not known."""
        return is_partial(self.path)

    @property
    def names(self) -> dict[str, str | None]:
        """The three names; None for a behaviour that was not tried."""
        behaviour = self.behaviour.name if self.behaviour else None
        return {"build": self.build, "path": self.path, "behaviour": behaviour}

    def as_json(self) -> dict[str, Any]:
        """The keys of `fingerprint show --json`."""
        return {
            "t": round(self.t, 3),
            "engine": self.url,
            "names": self.names,
            "partial": [asdict(one) for one in self.unread],
            "system_fingerprint": self.system_fingerprint,
            "stamped": self.stamped,
            "instance": self.instance,
            "facts": dict(self.facts),
            "behaviour": self.behaviour.as_json() if self.behaviour else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `as_json` wrote; raises KeyError, TypeError or ValueError on nonsense."""
        behaviour = data.get("behaviour")
        facts = dict(data["facts"])
        refuse_long_places(facts)
        return cls(
            t=float(data["t"]),
            url=str(data["engine"]),
            build=str(data["names"]["build"]),
            path=str(data["names"]["path"]),
            facts=facts,
            unread=limit_unread(tuple(map(Unread.from_json, data["partial"]))),
            system_fingerprint=data.get("system_fingerprint"),
            stamped=data.get("stamped"),
            instance=data.get("instance"),
            behaviour=Behaviour.from_json(behaviour) if behaviour else None,
        )


def refuse_long_places(facts: Mapping[str, Any]) -> None:
    """Raises WrongType for facts that take far more room by their places than as a tree.

    A long key is in the place of every fact below it.
    """
    count, branches = 0, [(facts, 0)]
    while branches:
        branch, above = branches.pop()
        for name, value in branch.items():
            length = above + len(name)
            if isinstance(value, Mapping) and value:
                branches.append((value, length + 1))
            else:
                count += length
    if count > LONGEST_PLACES:
        raise WrongType(f"the places of its facts have more than {LONGEST_PLACES} characters")


def limit_unread(unread: tuple[Unread, ...]) -> tuple[Unread, ...]:
    """The first of them; the last says how many more there are.

    >>> many = tuple(Unread(f"model.{n}", "gone") for n in range(1_200))
    >>> len(limit_unread(many)), limit_unread(many)[-1].line()
    (1000, '201 more facts: too many to name')
    """
    if len(unread) <= MOST_UNREAD:
        return unread
    named = unread[: MOST_UNREAD - 1]
    return (*named, Unread(f"{len(unread) - len(named)} more facts", "too many to name"))
