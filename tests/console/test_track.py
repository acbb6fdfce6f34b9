"""Readings fold into a track: points, marks, events, and what the operator wished."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specdeck.console.view import figures, panels, series, steering
from specdeck.console.view.track import Track, Want, after
from specdeck.engine.control.protocol import Applied, Capability, LastChange
from specdeck.engine.errors import Conflict, Unsupported
from specdeck.engine.metrics.reading import Reading

if TYPE_CHECKING:
    from tests.console.conftest import Kit


def track(readings: list[Reading]) -> Track:
    """The track after all of them."""
    found = Track("demo", "http://127.0.0.1:8000")
    for reading in readings:
        found = after(found, reading)
    return found


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
    assert words(found) == ["the engine was started anew"]


def test_an_engine_that_goes_away_and_comes_back_says_how_long(kit: type[Kit]) -> None:
    found = track([*kit.run(3), *(kit.down(n) for n in range(3, 8)), kit.reading(8)])
    assert words(found) == ["no answer within 2 s", "answers again after 5 s"]
    assert found.up is True


def test_what_is_unknown_is_a_dash_and_never_zero(kit: type[Kit]) -> None:
    found = track([kit.reading(0)])
    assert figures.tokens(found).text == "–"
    assert figures.acceptance(found).text == "–"
    assert panels.observed(found).text == "–"


def test_tokens_without_drafts_prove_that_nothing_is_drafted(kit: type[Kit]) -> None:
    alone = replace(kit.state, k=0, mode="target-only")
    found = track([kit.reading(0, alone), kit.reading(1, alone)])
    assert panels.observed(found).text == "0.0"
    assert panels.observed(found).tone == "good"


def test_a_change_by_someone_else_is_told_with_name_and_reason(kit: type[Kit]) -> None:
    theirs = replace(
        kit.state, k=3, k_set=3, version=2,
        last_change=LastChange(kit.start, "bob", "trying", {"k": 5}, {"k": 3}),
    )  # fmt: skip
    found = track([*kit.run(3), kit.reading(3, theirs), kit.reading(4, theirs)])
    assert words(found) == ["bob changed k 5 → 3 (trying)"]
    assert [mark.label for mark in found.marks] == ["k3"]


def test_a_reading_taken_before_the_answer_does_not_bring_the_old_k_back(kit: type[Kit]) -> None:
    found = steering.wished(track(kit.run(3)), Want(k=3))
    found = steering.answered(found, Want(k=3), Applied({"k": 5}, {"k": 3}, 2, 9), 0.0, 0.012)
    found = after(found, kit.reading(4))
    assert found.state is not None
    assert found.state.k == 3
    assert words(found) == ["k 5 → 3 · applied in 12 ms"]


def test_wishes_add_up_and_the_last_one_wins() -> None:
    found = steering.wished(Track("a", "http://a"), Want(k=4))
    found = steering.wished(found, Want(mode="target-only"))
    found = steering.wished(found, Want(k=3))
    assert found.want == Want(k=3, mode="target-only")


def test_a_wish_made_while_another_is_asked_stays_pending(kit: type[Kit]) -> None:
    found = steering.wished(steering.wished(track(kit.run(2)), Want(k=4)), Want(k=3))
    found = steering.answered(found, Want(k=4), Applied({"k": 5}, {"k": 4}, 2, 9), 0.0, 0.01)
    assert found.want == Want(k=3)
    change = steering.request(found, "ann")
    assert change is not None
    assert change.expect_version == 2


def test_a_conflict_forgets_the_wish_and_asks_with_what_is_read_next(kit: type[Kit]) -> None:
    found = steering.wished(track(kit.run(2)), Want(k=4))
    found = steering.refused(found, Conflict("bob was first"), 0.0)
    assert found.want is None
    found = after(found, kit.reading(3, replace(kit.state, version=9)))
    assert found.version == 9


def test_every_refusal_names_reason_and_remedy(kit: type[Kit]) -> None:
    unable = replace(
        kit.state, capabilities=(Capability("live_k", False, "suffix asserts", "use ngram"),)
    )
    bare = kit.reading(
        1, None, control_error=Unsupported("no plugin answers", remedy="start it with one")
    )
    cases = [
        (track([kit.reading(0)]), Want(k=6), True, "num_speculative_tokens 6"),
        (track([kit.reading(0)]), Want(k=-1), True, "k is 0 already"),
        (track([kit.reading(0)]), Want(k=3), False, "press c"),
        (track([kit.reading(0, unable)]), Want(k=3), True, "suffix asserts: use ngram"),
        (track([bare]), Want(k=3), True, "no plugin answers: start it with one"),
        (track([kit.down(0)]), Want(k=3), True, "down"),
    ]
    for found, want, armed, said in cases:
        refusal = steering.refusal(found, want, armed=armed)
        assert refusal is not None
        assert said in refusal.line()
    assert steering.refusal(track([kit.reading(0)]), Want(k=3), armed=True) is None


def test_positions_beyond_the_live_k_are_dimmed(kit: type[Kit]) -> None:
    three = replace(kit.state, k=3, k_set=3)
    bars = figures.positions(track([kit.reading(0, three), kit.reading(1, three)]))
    assert [bar.tone for bar in bars] == ["plain", "plain", "plain", "muted", "muted"]
    assert [bar.text for bar in bars][3:] == ["–", "–"]


def test_a_sum_over_gpus_is_unknown_when_one_of_them_is(kit: type[Kit]) -> None:
    blind = replace(kit.gpu, power_w=None)
    row = figures.gpus(kit.reading(1, gpus=(kit.gpu, blind)))
    assert "– W" in "".join(cell.text for cell in row.left)


def test_only_the_newest_column_changes_between_two_jumps(kit: type[Kit]) -> None:
    firsts = [series.tokens(track(kit.run(n))).shown(20)[0] for n in (20, 21, 25, 26)]
    assert firsts == [0, 5, 5, 10]
