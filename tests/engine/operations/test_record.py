"""What was done to an engine, in the audit log."""

from __future__ import annotations

from tests.support.memory_audit import MemoryAudit

from specdeck.engine.errors import Conflict, NoReply
from specdeck.engine.operations.record import ChangeRecord, NotRecorded
from specdeck.engine.protocol.messages import AppliedChange, Change

CHANGE = Change(k=3, who="ana", reason="trying")
APPLIED = AppliedChange({"k": 5}, {"k": 3}, 2, 7)


def of(log: MemoryAudit) -> ChangeRecord:
    return ChangeRecord(log, CHANGE, "http://engine", "demo", lambda: 9.0)


def test_an_entry_has_who_what_why_and_the_way_back() -> None:
    log = MemoryAudit()
    assert of(log).add(APPLIED, instance="one") is None
    (entry,) = log.actions
    assert (entry.t, entry.who, entry.engine, entry.reason) == (9.0, "ana", "demo", "trying")
    assert (entry.before, entry.after, entry.instance) == ({"k": 5}, {"k": 3}, "one")
    assert entry.undo == "specdeck set http://engine k=5"


def test_what_is_observed_goes_to_the_entry_of_the_change_and_not_of_its_end() -> None:
    log = MemoryAudit()
    record = of(log)
    record.add(APPLIED, instance=None)
    record.add(APPLIED, instance=None, after={"k": 5}, reason="trial reverted", origin="trial")
    assert record.add_observed(3.0) is None
    assert [entry.observed for entry in log.actions] == [3.0, None]
    assert [entry.reason for entry in log.actions] == ["trying", "trial reverted"]
    assert [entry.after for entry in log.actions] == [{"k": 3}, {"k": 5}]


def test_a_refused_change_leaves_the_log_and_one_of_unknown_outcome_does_not() -> None:
    log = MemoryAudit()
    refused, unheard = of(log), of(log)
    refused.ask({"k": 5}, instance="one")
    refused.fail(Conflict("changed by bob"))
    assert log.actions == []
    unheard.ask({"k": 5}, instance="one")
    unheard.fail(NoReply("closed the connection"))
    assert [entry.outcome for entry in log.actions] == ["unknown"]


def test_a_log_that_cannot_be_written_is_told_and_nothing_is_observed_in_it() -> None:
    log = MemoryAudit()
    record, log.full = of(log), True
    assert isinstance(record.add(APPLIED, instance=None), NotRecorded)
    assert record.add_observed(3.0) is None  # there is no entry to add it to


def test_an_observed_value_that_cannot_be_written_is_told() -> None:
    log = MemoryAudit()
    record = of(log)
    record.add(APPLIED, instance=None)
    log.full = True
    assert isinstance(record.add_observed(3.0), NotRecorded)
