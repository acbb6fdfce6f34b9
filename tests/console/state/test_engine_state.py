"""Readings fold into a track: points, marks, events, and what the operator wished."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.style import Style
from tests.support.readings import DOWN, START, STATE, down, reading, readings
from tests.support.tuned_engine import TRIAL, tuning

from specdeck.console import keys
from specdeck.console.screens import head
from specdeck.console.screens.live import view as live_view
from specdeck.console.state.engine_state import ANOTHER_ENGINE, Track, fold_reading
from specdeck.console.state.pending import (
    add_wish,
    as_request,
    find_obstacle,
    fold_answer,
    fold_error,
)
from specdeck.console.state.undo import InForce, Undo, UndoHistory
from specdeck.console.widgets import text as draw
from specdeck.console.widgets.cells import Cell, Row
from specdeck.engine.errors import Conflict, NoReply, SpecdeckError, Unreachable, Unsupported
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.protocol.messages import AppliedChange, Capability, Change, LastChange, Lease
from specdeck.engine.protocol.tuning import Phase

if TYPE_CHECKING:
    from tests.console.conftest import Kit


def track(looks: list[Reading]) -> Track:
    """The track after all of them."""
    found = Track("demo", "http://127.0.0.1:8000")
    for look in looks:
        found = fold_reading(found, look)
    return found


def drawn(row: Row, width: int) -> str:
    """The row as a terminal of that width shows it."""
    return draw.row_strip(row, width, lambda tone: Style()).text


def words(found: Track) -> list[str]:
    """What its events say."""
    return [event.text for event in found.events]


def test_a_restart_breaks_the_lines_and_is_marked(kit: type[Kit]) -> None:
    reborn = replace(kit.state, instance="b")
    found = track(
        [*kit.run(5), kit.reading(5, reborn, window=None, restarted=True), kit.reading(6, reborn)]
    )
    assert [mark.label for mark in found.marks] == ["restart"]
    assert found.points[5].tokens is None
    assert found.points[6].tokens is not None
    assert words(found) == ["the engine was restarted"]


def test_engines_that_take_turns_at_an_address_are_told_once() -> None:
    first = replace(STATE, started=START - 1000)
    other = replace(first, instance="b")
    turns = [reading(n, (first, other)[n % 2], restarted=n > 0) for n in range(6)]
    assert words(track(turns)) == [f"{ANOTHER_ENGINE} · 5 times"]


def test_an_engine_that_took_minutes_to_start_was_restarted() -> None:
    reborn = replace(STATE, instance="b", started=START + 10)
    gone = [down(n) for n in range(5, 200)]
    found = track([*readings(5), *gone, reading(200, reborn, restarted=True)])
    assert words(found)[-1] == "the engine was restarted"


def test_an_engine_that_goes_away_and_comes_back_says_how_long(kit: type[Kit]) -> None:
    found = track([*kit.run(3), *(kit.down(n) for n in range(3, 8)), kit.reading(8)])
    assert words(found) == ["no answer within 2 s", "answers again after 5 s"]
    assert found.up is True


def test_the_last_minute_is_of_sixty_seconds_and_of_one_life(kit: type[Kit]) -> None:
    found = track(kit.run(100))
    assert found.last_minute is not None
    assert found.last_minute.seconds == 60.0
    assert found.last_minute.prefix_hit_rate == pytest.approx(0.61)
    row = live_view.traffic(found)[1]
    assert [cell.text for cell in row.right if cell.text.strip()] == ["12 %", " · ", "61 %"]
    reborn = replace(kit.state, instance="b")
    found = fold_reading(found, kit.reading(100, reborn, window=None, restarted=True))
    assert found.last_minute is None
    found = fold_reading(found, kit.down(101))
    found = fold_reading(found, kit.reading(104, reborn, window=None))
    assert found.last_minute is not None
    assert found.last_minute.seconds == 4.0


def test_what_is_unknown_is_a_dash_and_never_zero(kit: type[Kit]) -> None:
    found = track([kit.reading(0)])
    assert live_view.tokens(found).text == "–"
    assert live_view.acceptance(found).text == "–"
    assert head.observed_k(found).text == "–"


def test_tokens_without_drafts_prove_that_nothing_is_drafted(kit: type[Kit]) -> None:
    alone = replace(kit.state, k=0, mode="target-only")
    found = track([kit.reading(0, alone), kit.reading(1, alone)])
    assert head.observed_k(found).text == "0.0"
    assert head.observed_k(found).tone == "good"
    unproven = replace(found, proofs_awaited=1)
    assert head.observed_k(unproven).tone == "muted"


def test_a_change_by_someone_else_is_told_with_name_and_reason(kit: type[Kit]) -> None:
    theirs = replace(
        kit.state, k=3, k_set=3, version=2,
        last_change=LastChange(kit.start, "bob", "trying", {"k": 5}, {"k": 3}),
    )  # fmt: skip
    found = track([*kit.run(3), kit.reading(3, theirs), kit.reading(4, theirs)])
    assert words(found) == ["bob changed k 5 → 3 (trying)"]
    assert [mark.label for mark in found.marks] == ["k3"]


def test_the_end_of_a_lease_is_told_with_what_the_engine_is_back_at(kit: type[Kit]) -> None:
    change = LastChange(kit.start, "bob", None, {"k": 5}, {"k": 3})
    lease = Lease(1.0, 5, "speculate")
    lent = replace(kit.state, k=3, k_set=3, version=2, last_change=change, lease=lease)
    end = LastChange(kit.start, "specdeck", "the lease ran out", {"k": 3}, {"k": 5}, "lease")
    over = replace(kit.state, version=3, last_change=end)
    found = track([*kit.run(3), kit.reading(3, lent), kit.reading(4, over), kit.reading(5, over)])
    assert words(found) == ["bob changed k 5 → 3", "specdeck changed k 3 → 5 (the lease ran out)"]


def test_a_sweep_from_elsewhere_is_told_once_and_so_is_its_end(kit: type[Kit]) -> None:
    def swept(n: int, k: int, *, leased: bool) -> Reading:
        change = LastChange(kit.start + n, "bob", "sweep", {"k": 5}, {"k": k}, "sweep")
        lease = Lease(30.0, 5, "speculate") if leased else None
        return kit.reading(n, replace(kit.state, k=k, version=n, lease=lease, last_change=change))

    under_way = [*kit.run(3), swept(3, 0, leased=True), swept(4, 3, leased=True)]
    assert words(track(under_way)) == ["bob sweeps k"]
    over = [*under_way, swept(5, 5, leased=False), swept(6, 5, leased=False)]
    assert words(track(over)) == ["bob sweeps k", "bob's sweep is over"]
    again = [*over, swept(7, 0, leased=True)]
    lost = replace(
        kit.state, version=8, last_change=LastChange(kit.start, "specdeck", "the lease ran out",
                                                     {"k": 0}, {"k": 5}, "lease"),
    )  # fmt: skip
    assert words(track([*under_way, kit.reading(8, lost)])) == [
        "bob sweeps k", "bob's sweep is over", "specdeck changed k 0 → 5 (the lease ran out)"
    ]  # fmt: skip
    assert words(track(again))[-2:] == ["bob's sweep is over", "bob sweeps k"]
    unseen = [*kit.run(3), swept(3, 5, leased=False)]
    assert words(track(unseen)) == ["bob swept k"]


def test_an_answer_that_a_newer_reading_has_overtaken_does_not_bring_its_k_back(
    kit: type[Kit],
) -> None:
    found = add_wish(track(kit.run(3)), Change(k=3))
    found = fold_reading(found, kit.reading(4, replace(kit.state, k=4, k_set=4, version=3)))
    found = fold_answer(found, Change(k=3), AppliedChange({"k": 5}, {"k": 3}, 2, 9), 0.0, 0.012)
    assert found.state is not None
    assert (found.state.k, found.version, found.want) == (4, 3, None)


def test_a_reading_taken_before_the_answer_does_not_bring_the_old_k_back(kit: type[Kit]) -> None:
    found = add_wish(track(kit.run(3)), Change(k=3))
    found = fold_answer(found, Change(k=3), AppliedChange({"k": 5}, {"k": 3}, 2, 9), 0.0, 0.012)
    found = fold_reading(found, kit.reading(4))
    assert found.state is not None
    assert found.state.k == 3
    assert words(found) == ["k 5 → 3 · applied in 12 ms"]


def test_an_engine_that_keeps_to_an_older_version_is_believed_in_the_end(kit: type[Kit]) -> None:
    lie = replace(kit.state, k=3, k_set=3, version=10**9)
    found = track([*kit.run(2), kit.reading(3, lie)])
    for n in range(4, 9):
        found = fold_reading(found, kit.reading(n))
        assert found.state is not None
        assert found.state.k == 3
    for n in range(9, 12):
        found = fold_reading(found, kit.reading(n))
    assert (found.state, found.version) == (kit.state, kit.state.version)
    assert words(found)[0] == (
        f"the engine tells version {kit.state.version} again, it had told 1000000000"
    )


def test_wishes_add_up_and_the_last_one_wins() -> None:
    found = add_wish(Track("a", "http://a"), Change(k=4))
    found = add_wish(found, Change(mode="target-only"))
    found = add_wish(found, Change(k=3))
    assert found.want == Change(k=3, mode="target-only")


def test_a_wish_made_while_another_is_asked_stays_pending(kit: type[Kit]) -> None:
    found = add_wish(add_wish(track(kit.run(2)), Change(k=4)), Change(k=3))
    found = fold_answer(found, Change(k=4), AppliedChange({"k": 5}, {"k": 4}, 2, 9), 0.0, 0.01)
    assert found.want is not None
    assert found.want == Change(k=3)
    assert as_request(found.want, "ann", found.version).expect_version == 2


def test_a_conflict_forgets_the_wish_and_asks_with_what_is_read_next(kit: type[Kit]) -> None:
    found = add_wish(track(kit.run(2)), Change(k=4))
    found = fold_error(found, Conflict("bob was first"), 0.0)
    assert found.want is None
    before = as_request(Change(k=5, origin="undo"), "ann", found.version)
    assert before.expect_version == kit.state.version
    found = fold_reading(found, kit.reading(3, replace(kit.state, version=9)))
    assert found.version == 9


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Conflict("bob was first"), "not changed: "),
        (Unsupported("suffix asserts"), "not changed: "),
        (Unreachable("refuses connections"), "not changed: "),
        (NoReply("gave no answer for 5 s"), "not known whether it was changed: "),
        (SpecdeckError("answers 500"), "not known whether it was changed: "),
    ],
)
def test_not_changed_is_said_of_what_the_engine_refused(
    kit: type[Kit], error: SpecdeckError, said: str
) -> None:
    found = fold_error(add_wish(track(kit.run(2)), Change(k=4)), error, 0.0, Change(k=4))
    assert words(found)[-1] == f"{said}{error}"
    assert found.want is None


@pytest.mark.parametrize(("who", "k"), [("bob", 4), ("ann", 3)])
def test_a_change_of_others_after_an_unknown_outcome_is_theirs(
    kit: type[Kit], who: str, k: int
) -> None:
    asked = as_request(Change(k=4), "ann", kit.state.version)
    found = fold_error(add_wish(track(kit.run(2)), Change(k=4)), NoReply("none"), 0.0, asked)
    last = LastChange(60.0, who, None, {"k": 5}, {"k": k})
    theirs = replace(kit.state, k=k, k_set=k, version=kit.state.version + 1, last_change=last)
    found = fold_reading(found, kit.reading(3, theirs))
    assert words(found)[-1] == f"{who} changed k 5 → {k}"
    assert found.undo.latest is None
    again = replace(last, who="ann", before={"k": k}, after={"k": 4})
    later = replace(theirs, k=4, k_set=4, version=theirs.version + 1, last_change=again)
    found = fold_reading(found, kit.reading(4, later))
    assert found.undo.latest is None  # the engine has refused it, as its version had moved


def key_label(name: str) -> str:
    return keys.key_label(name, {})


def test_every_obstacle_names_reason_and_remedy(kit: type[Kit]) -> None:
    unable = replace(
        kit.state, capabilities=(Capability("live_k", False, "suffix asserts", "use ngram"),)
    )
    all_or_none = replace(
        kit.state,
        capabilities=(
            Capability("live_k", True),
            Capability("intermediate_k", False, "5 tokens or none", "use k=0 or k=5"),
        ),
    )
    bare = kit.reading(
        1, None, control_error=Unsupported("no plugin answers", remedy="start it with one")
    )
    cases = [
        (track([kit.reading(0)]), Change(k=6), True, "num_speculative_tokens 6"),
        (track([kit.reading(0)]), Change(k=-1), True, "k is 0 already"),
        (track([kit.reading(0)]), Change(k=3), False, "press c"),
        (track([kit.reading(0, unable)]), Change(k=3), True, "suffix asserts: use ngram"),
        (track([kit.reading(0, all_or_none)]), Change(k=4), True, "k=4: 5 tokens or none: use k=0"),
        (track([bare]), Change(k=3), True, "no plugin answers: start it with one"),
        (track([kit.down(0)]), Change(k=3), True, "down"),
    ]
    for found, want, armed, said in cases:
        obstacle = find_obstacle(found, want, armed=armed, key_label=key_label)
        assert obstacle is not None
        assert said in obstacle.line()
    for state, k in ((kit.state, 3), (all_or_none, 0), (all_or_none, 5)):
        found = track([kit.reading(0, state)])
        assert find_obstacle(found, Change(k=k), armed=True, key_label=key_label) is None


def test_positions_beyond_the_live_k_are_dimmed(kit: type[Kit]) -> None:
    three = replace(kit.state, k=3, k_set=3)
    bars = live_view.positions(track([kit.reading(0, three), kit.reading(1, three)]))
    assert [bar.tone for bar in bars] == ["plain", "plain", "plain", "muted", "muted"]
    assert [bar.text for bar in bars][3:] == ["–", "–"]


def test_a_sum_over_gpus_is_unknown_when_one_of_them_is(kit: type[Kit]) -> None:
    blind = replace(kit.gpu, power_w=None)
    row = live_view.gpus(kit.reading(1, gpus=(kit.gpu, blind)))
    assert "– W" in "".join(cell.text for cell in row.left)


def test_only_the_newest_column_changes_between_two_jumps(kit: type[Kit]) -> None:
    firsts = [
        live_view.token_series(track(kit.run(n)), None, time.gmtime).window(20)[0]
        for n in (20, 21, 25, 26)
    ]
    assert firsts == [0, 5, 5, 10]


def test_a_change_made_while_the_state_was_unknown_is_told_later(kit: type[Kit]) -> None:
    theirs = replace(
        kit.state, k=3, k_set=3, version=2,
        last_change=LastChange(kit.start, "bob", None, {"k": 5}, {"k": 3}),
    )  # fmt: skip
    found = track([*kit.run(3), kit.reading(3, None), kit.reading(4, theirs)])
    assert words(found)[-1] == "bob changed k 5 → 3"


def test_the_loss_of_control_is_told_once_and_so_is_its_return(kit: type[Kit]) -> None:
    stalled = Unsupported("the core does not answer", remedy="wait")
    silent = [kit.reading(n, None, control_error=stalled) for n in range(3, 8)]
    found = track([*kit.run(3), *silent])
    assert words(found) == ["no control: the core does not answer: wait"]
    assert live_view.speculation(found)[2].right == (Cell("V1 · vLLM 0.32.0", "muted"),)
    row = head.control(found)
    told = next(cell for cell in row.left if cell.text == "5")
    assert told.tone == "muted"
    assert {cell.tone for cell in row.right} == {"muted"}
    found = fold_reading(found, kit.reading(8))
    assert words(found)[-1] == "control is back after 5 s"


def test_an_engine_that_never_had_a_plugin_loses_nothing(kit: type[Kit]) -> None:
    assert words(track([kit.reading(n, None) for n in range(3)])) == []


def test_knobs_that_stayed_are_not_told(kit: type[Kit]) -> None:
    theirs = replace(
        kit.state, fallback="cold", version=2,
        last_change=LastChange(
            kit.start, "bob", None, {"k": 5, "fallback": "warm"}, {"k": 5, "fallback": "cold"}
        ),
    )  # fmt: skip
    assert words(track([*kit.run(3), kit.reading(3, theirs)])) == [
        "bob changed fallback warm → cold"
    ]


def under_goodput(
    kit: type[Kit], n: int, reason: str | None, k: int = 3, **changes: object
) -> Reading:
    """The engine under the goodput policy."""
    state = replace(kit.state, policy="goodput", version=2, k=k, policy_reason=reason)
    return kit.reading(n, replace(state, **changes))  # type: ignore[arg-type]  # tests name fields


def test_the_moves_of_a_policy_are_reasons_and_no_marks(kit: type[Kit]) -> None:
    found = track([under_goodput(kit, 0, None), under_goodput(kit, 1, "k 5 → 3: 9 % more", 3)])
    assert words(found) == ["goodput: k 5 → 3: 9 % more"]
    assert found.marks == ()


def test_reasons_are_told_at_most_every_five_seconds(kit: type[Kit]) -> None:
    found = track([under_goodput(kit, n, f"reason {n}", n % 4) for n in range(12)])
    assert words(found) == ["goodput: reason 5", "goodput: reason 10"]


def test_a_breaker_that_opens_is_told_with_its_reason_and_marked(kit: type[Kit]) -> None:
    why = "52 % slower than target-only"
    found = track(
        [
            under_goodput(kit, 0, None),
            under_goodput(kit, 1, why, 0, breaker="open"),
            under_goodput(kit, 2, why, 0, breaker="half-open"),
            under_goodput(kit, 3, "k 5 → 3", 3, breaker="closed"),
        ]
    )
    assert words(found) == [
        f"breaker open: {why}",
        "breaker half-open: it tries whether drafts pay again",
        "breaker closed, was half-open",
    ]
    assert [(mark.at, mark.label) for mark in found.marks] == [
        (1, "breaker open"),
        (3, "breaker closed"),
    ]


def test_a_breaker_that_was_open_between_two_looks_is_told_all_the_same(kit: type[Kit]) -> None:
    why = "52 % slower than target-only"
    found = track([under_goodput(kit, 0, None), under_goodput(kit, 1, why, 0, breaker="half-open")])
    assert words(found) == [
        f"breaker open: {why}",
        "breaker half-open: it tries whether drafts pay again",
    ]
    assert [(mark.at, mark.label) for mark in found.marks] == [(1, "breaker open")]


def test_undoing_a_reset_has_the_breaker_recover_by_itself_again(kit: type[Kit]) -> None:
    reset = Change(breaker="closed")
    applied = AppliedChange(
        {"breaker": "open"}, {"breaker": "closed"}, 1, 7, undo={"breaker": "probe"}
    )
    found = fold_answer(track([under_goodput(kit, 0, None, 0)]), reset, applied, kit.start, 0.01)
    back = found.undo.latest
    assert back is not None
    assert back == Change(breaker="open", probe=True, reason="undo", origin="undo")
    change = as_request(back, "ana", 1)
    assert (change.breaker, change.probe, change.knobs()) == ("open", True, {"breaker": "probe"})


def test_undoing_a_k_gives_a_policy_its_k_back(kit: type[Kit]) -> None:
    found = add_wish(track([under_goodput(kit, 0, None)]), Change(k=2))
    found = fold_answer(found, Change(k=2), AppliedChange({"k": 5}, {"k": 2}, 3, 9), 0.0, 0.01)
    assert found.state is not None
    assert (found.state.policy, found.state.k) == ("fixed", 2)
    assert found.undo.latest == Change(k=5, policy="goodput", reason="undo", origin="undo")


def test_a_trial_that_took_itself_back_is_not_what_undo_takes_back(kit: type[Kit]) -> None:
    found = track(kit.run(2))
    found = fold_answer(found, Change(k=4), AppliedChange({"k": 5}, {"k": 4}, 2, 9), 0.0, 0.01)
    tried = Change(k=3, trial_s=9.0)
    found = fold_answer(found, tried, AppliedChange({"k": 4}, {"k": 3}, 3, 9), 0.0, 0.01)
    four = replace(kit.state, k=4, k_set=4, version=4)
    found = fold_reading(found, kit.reading(3, four))
    undo = found.undo.prune(found.in_force)
    assert undo.latest == Change(k=5, reason="undo", origin="undo")
    assert undo.find_doubt(found.in_force, key_label) is None


def test_undo_leaves_a_policy_that_somebody_has_given_k_to(kit: type[Kit]) -> None:
    found = fold_answer(
        track(kit.run(2)), Change(k=4), AppliedChange({"k": 5}, {"k": 4}, 2, 9), 0.0, 0.01
    )
    theirs = replace(kit.state, k=4, k_set=4, version=3, policy="goodput")
    found = fold_reading(found, kit.reading(3, theirs))
    undo = found.undo.prune(found.in_force)
    assert undo.find_doubt(found.in_force, key_label) == (
        "not undone: somebody changed policy fixed → goodput since: a sets policy; z again sets k 5"
    )
    assert undo.warn(found.in_force).find_doubt(found.in_force, key_label) is None


@pytest.mark.parametrize("width", [72, 80, 100, 160])
@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "target-only", "k": 0},
        {"policy": "goodput", "breaker": "half-open", "lease": Lease(90.0, 5, "speculate")},
        {"mode": "target-only", "k": 0, "lease": Lease(90.0, 5, "speculate")},
    ],
)
def test_the_observed_k_is_never_cut(
    changes: dict[str, object], width: int, kit: type[Kit]
) -> None:
    state = replace(kit.state, **changes)  # type: ignore[arg-type]  # tests name State's fields
    found = head.control(track([kit.reading(0, state), kit.reading(1, state)]))
    observed = "0.0" if state.k == 0 else "5.0"
    assert f"observed {observed}  of 5" in drawn(found, width)
    assert "…" not in drawn(found, width)


def test_a_fixed_policy_gives_its_place_up_before_the_way_back(kit: type[Kit]) -> None:
    alone = replace(kit.state, k=0, mode="target-only")
    row = head.control(track([kit.reading(0, alone), kit.reading(1, alone)]))
    assert drawn(row, 100).endswith("target-only · warm, back to k 5 · policy fixed ")
    assert drawn(row, 86).endswith("target-only · warm, back to k 5 ")
    assert drawn(row, 80).endswith("target-only ")


def test_a_breaker_and_the_policy_are_named_on_eighty_columns(kit: type[Kit]) -> None:
    row = head.control(track([under_goodput(kit, 0, None, 0, breaker="half-open")]))
    assert drawn(row, 80).endswith("goodput · breaker half-open ")


def test_the_smallest_row_keeps_the_observed_k(kit: type[Kit]) -> None:
    alone = replace(kit.state, k=0, mode="target-only")
    row = head.brief_control(track([kit.reading(0, alone), kit.reading(1, alone)]))
    assert drawn(row, 20).rstrip() == " k 0 · 0 · 0.0"
    assert drawn(row, 40).endswith("target-only ")


def test_a_trial_is_told_by_what_it_tries_also_while_nothing_has_moved_yet(kit: type[Kit]) -> None:
    began = AppliedChange({"k": 5, "policy": "goodput"}, {"k": 5, "policy": "goodput"}, 2, 9)
    found = fold_answer(track(kit.run(2)), Change(k=3, trial_s=60.0), began, 0.0, 0.01)
    assert found.events[-1].text == "on trial: k 5 → 3, policy goodput → fixed · applied in 10 ms"


def test_a_trial_says_whose_it_is_and_its_turns_are_neither_events_nor_marks(
    kit: type[Kit],
) -> None:
    five = kit.state
    tried = LastChange(1.0, "bob", "on trial", {"k": 5}, {"k": 3}, "trial")
    over = LastChange(9.0, "specdeck", "no faster", {"k": 3}, {"k": 5}, "trial")
    stints = [
        replace(five, version=2, k=k, k_set=k, trial=where, last_change=tried)
        for k, where in ((3, "changed"), (5, "baseline"), (3, "changed"), (5, "baseline"))
    ]
    after = replace(five, version=3, last_change=over)
    states = [five, *stints, after]
    found = track([kit.reading(t, state) for t, state in enumerate(states)])
    assert words(found) == ["bob tries k 5 → 3", "trial over: k 3 → 5 (no faster)"]
    assert [mark.label for mark in found.marks] == ["trial", "trial end"]


def test_an_engine_without_figures_that_goes_and_comes_says_so() -> None:
    unmeasured = replace(down(2, NoReply("answers 503")), unmeasured=STATE)
    looks = [replace(unmeasured if n not in (5, 6) else down(n), t=START + n) for n in range(2, 12)]
    found = track([*readings(2), *looks])
    assert found.since == START + 7
    found = fold_reading(found, reading(12))
    assert [(event.kind, event.text) for event in found.events] == [
        ("control", "no figures: answers 503"),
        ("down", str(DOWN)),
        ("up", "answers again after 2 s, with no figures: answers 503"),
        ("control", "figures are back after 5 s"),
    ]


@pytest.mark.parametrize(("end", "left"), [("kept", 1), ("reverted", 0)])
def test_a_trial_that_was_reverted_is_nothing_to_undo_whoever_set_its_values_since(
    end: Phase, left: int
) -> None:
    tried = Undo(Change(k=4), (("k", "2"),), version=3, trial=True, number=7)
    told = replace(tuning(), trial=replace(TRIAL, number=7, state=end))
    now = InForce(replace(STATE, k=2, k_set=2, version=5), told)
    assert len(UndoHistory((tried,)).prune(now).undos) == left


def test_undo_after_a_restart_says_so() -> None:
    found = track(readings(2))
    found = replace(found, undo=replace(found.undo, has_changed=True))
    found = fold_reading(found, reading(3, restarted=True))
    assert found.undo.explain_empty().startswith("nothing to undo: the engine was restarted")
