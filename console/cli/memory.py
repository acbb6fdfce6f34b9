"""What a command writes into the store: changes and how long starts took.

A store that cannot be used is a notice; it stops neither an engine nor a change.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from specdeck.console.cli.output import log
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.locations import locations

if TYPE_CHECKING:
    from specdeck.engine.control.observe import Outcome
    from specdeck.engine.control.protocol import Applied, Change
    from specdeck.engine.store.audit import Action
    from specdeck.engine.store.checks import Run
    from specdeck.engine.store.database import Store


def last_start(config: Path) -> float | None:
    """Seconds that the last start from this config took; None when there was none."""
    with suppress(SpecdeckError), user_store() as store:
        from specdeck.engine.store.starts import Starts, config_key

        last = Starts(store).last(config_key(config))
        return None if last is None else last.seconds
    return None


def note_start(config: Path, seconds: float) -> None:
    """Remembers how long a start took."""
    with suppress(SpecdeckError), user_store() as store:
        from specdeck.engine.store.starts import Start, Starts, config_key

        Starts(store).add(Start(time.time(), config_key(config), seconds))


def note_change(action: Action) -> None:
    """Writes a change into the audit log; raises SpecdeckError when it cannot."""
    from specdeck.engine.store.audit import AuditLog

    with user_store() as store:
        AuditLog(store).add(action)


def note_outcome(change: Change, outcome: Outcome, *, engine: str) -> None:
    """Writes how a trial has ended into the audit log, or says why it is not there."""
    from specdeck.engine.store.audit import Action

    action = Action(
        t=time.time(),
        who=change.who or "",
        url=outcome.url,
        engine=engine,
        before=outcome.before,
        after=outcome.applied,
        undo=outcome.undo,
        reason=change.reason,
        observed=outcome.observed_k,
    )
    try:
        note_change(action)
    except SpecdeckError as error:
        log(f"specdeck: the change is made, the audit log is not: {error.line()}")


def past_checks(url: str, limit: int) -> tuple[Run, ...]:
    """The finished checks of an engine, the newest first; raises SpecdeckError without a store."""
    from specdeck.engine.store.checks import Checks

    with user_store() as store:
        return Checks(store).history(url, limit)


def past_changes(url: str, limit: int) -> tuple[Action, ...]:
    """The changes of an engine, the newest first; raises SpecdeckError without a store."""
    from specdeck.engine.store.audit import AuditLog

    with user_store() as store:
        return AuditLog(store).actions(url, limit)


def note_applied(change: Change, applied: Applied, *, url: str, engine: str) -> int | None:
    """Writes a change that the engine has just made, or the trial of one, into the audit log.

    Its entry there, for `note_observed`; None where it is not there, which is said.
    """
    from specdeck.engine.control.observe import back, undo
    from specdeck.engine.store.audit import Action, AuditLog

    on_trial = "on trial" + (f": {change.reason}" if change.reason else "")
    # A trial changes nothing yet; what it turns unasked is the policy that a k ends.
    tried = {name: change.asked().get(name, "fixed") for name in applied.before}
    action = Action(
        t=time.time(),
        who=change.who or "",
        url=url,
        engine=engine,
        before=applied.before,
        after=tried if change.judge else applied.applied,
        undo=undo(url, back(applied)),
        reason=on_trial if change.judge else change.reason,
    )
    try:
        with user_store() as store:
            return AuditLog(store).add(action)
    except SpecdeckError as error:
        made = "trial is begun" if change.judge else "change is made"
        log(f"specdeck: the {made}, the audit log is not: {error.line()}")
    return None


def note_observed(entry: int, observed_k: float) -> None:
    """Adds what the counters showed of the change; what fails has been said at the change."""
    from specdeck.engine.store.audit import AuditLog

    with suppress(SpecdeckError), user_store() as store:
        AuditLog(store).set_observed(entry, observed_k)


@contextmanager
def user_store() -> Iterator[Store]:
    """The user's store; raises SpecdeckError when it cannot be used."""
    from specdeck.engine.store.database import Store

    with Store(locations(os.environ).store) as store:
        yield store
