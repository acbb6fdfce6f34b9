"""Fingerprints in the store: what a command has seen, and what was seen before.

A store that cannot be used is a notice; it stops no verification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdeck.console.cli.common import open_user_store
from specdeck.console.cli.talk import say
from specdeck.engine.errors import SpecdeckError

if TYPE_CHECKING:
    from specdeck.engine.fingerprint.fingerprint import Fingerprint
    from specdeck.engine.store.fingerprints import Moment


def note_fingerprint(seen: Fingerprint) -> None:
    """Writes what was seen into the history, or says why it is not there."""
    from specdeck.engine.store.fingerprints import add

    try:
        with open_user_store() as store:
            add(store, seen)
    except SpecdeckError as error:
        say(f"specdeck: not noted in the history: {error.line()}")


def moments(*, url: str | None = None, number: int | None = None) -> tuple[Moment, ...]:
    """What was noted, the newest first; raises SpecdeckError when it cannot be read."""
    from specdeck.engine.store.fingerprints import moments

    with open_user_store() as store:
        return moments(store, url=url, number=number)
