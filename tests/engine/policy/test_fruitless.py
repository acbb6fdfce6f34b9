"""Requests that accept nothing rest, and are tried again."""

from __future__ import annotations

from random import Random

from specdeck.engine.policy.fruitless import MOST_REST_LOOKS, REST_LOOKS, TRIED_LOOKS, Fruitless


def play(found: Fruitless, chances: dict[str, float], looks: int, random: Random) -> dict[str, int]:
    """Looks at which each request rested."""
    rested = dict.fromkeys(chances, 0)
    for _ in range(looks):
        drafted = [each for each in chances if each not in found.resting]
        accepted = {each for each in drafted if random.random() < chances[each]}
        found.look(drafted, accepted)
        for each in found.resting:
            rested[each] += 1
    return rested


def test_a_request_that_accepts_nothing_rests_most_of_the_time() -> None:
    rested = play(Fruitless(looks=8), {"never": 0.0, "often": 0.9}, 400, Random(1))
    assert rested["never"] > 0.9 * 400
    assert rested["often"] == 0


def test_a_request_that_accepts_a_third_is_seldom_put_to_rest() -> None:
    names = {f"request {number}": 1 / 3 for number in range(100)}
    rested = play(Fruitless(looks=8), names, 32, Random(2))
    assert sum(map(bool, rested.values())) < 40
    assert sum(rested.values()) < 0.2 * 100 * 32


def test_what_begins_to_accept_is_found_within_its_rest() -> None:
    found = Fruitless(looks=4)
    play(found, {"turning": 0.0}, 4, Random(3))
    assert found.resting == {"turning"}
    rested = play(found, {"turning": 1.0}, 100, Random(3))
    assert rested["turning"] <= REST_LOOKS
    assert not found.resting


def test_rests_grow_to_a_most() -> None:
    found = Fruitless(looks=4)
    rests, last = [], 0
    for look in range(2000):
        before = bool(found.resting)
        found.look([] if before else ["never"], ())
        if before != bool(found.resting):
            if before:
                rests.append(look - last)
            last = look
    assert rests[:3] == [REST_LOOKS, 2 * REST_LOOKS, 4 * REST_LOOKS]
    assert max(rests) == MOST_REST_LOOKS


def test_a_try_is_shorter_than_the_first_judgement() -> None:
    found = Fruitless(looks=8)
    for _ in range(8):
        found.look(["never"], ())
    while found.resting:
        found.look([], ())
    for _ in range(TRIED_LOOKS):
        assert not found.resting
        found.look(["never"], ())
    assert found.resting == {"never"}


def test_a_draft_from_before_the_rest_that_is_accepted_ends_it() -> None:
    found = Fruitless(looks=2)
    for _ in range(2):
        found.look(["late"], ())
    assert found.look(["late"], ["late"])
    assert not found.resting


def test_what_has_ended_is_forgotten() -> None:
    found = Fruitless(looks=2)
    for _ in range(2):
        found.look(["a", "b"], ())
    found.keep({"b", "unknown"})
    assert found.resting == {"b"}
    found.clear()
    assert not found.resting
