"""Verdicts: every single change is called by its kind."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdeck.engine.fingerprint.behaviour import Behaviour, ProbeAnswer
from specdeck.engine.fingerprint.compare import (
    OWN_STOOD_STILL,
    compare,
    differences,
    find_another_target,
)
from specdeck.engine.fingerprint.fingerprint import Fingerprint, Unread

DIGEST = "e" * 64


@pytest.mark.parametrize(
    ("change", "kind", "line"),
    [
        ({"live__k": 5}, "knob", "knob changed: k 6 → 5"),
        ({"live__mode": "target-only"}, "knob", "knob changed: mode speculate → target-only"),
        ({"config__model__dtype": "float32"}, "knob", "knob changed: dtype bfloat16 → float32"),
        (
            {"environment__VLLM_BATCH_INVARIANT": "1"},
            "knob",
            "knob changed: VLLM_BATCH_INVARIANT – → 1",
        ),
        (
            {"model__target__weights": {"model.safetensors": DIGEST}},
            "model",
            "model changed: target",
        ),
        ({"model__draft__weights": {"model.safetensors": DIGEST}}, "model", "model changed: draft"),
        ({"model__tokenizer__vocab": DIGEST}, "model", "model changed: tokenizer"),
        (
            {"runtime__driver": "575.1"},
            "runtime",
            "runtime changed: runtime.driver 570.86.15 → 575.1",
        ),
        (
            {"runtime__libraries": {"torch/lib/libtorch.so": DIGEST}},
            "runtime",
            "runtime changed: runtime.libraries.torch/lib/libtorch.so",
        ),
        (
            {"serving": {"code": {"house.rules": DIGEST}}},
            "knob",
            "knob changed: serving.code.house.rules",
        ),
        ({"engine__vllm": "0.33.0"}, "runtime", "runtime changed: vllm 0.32.0 → 0.33.0"),
    ],
)
def test_a_change_is_called_by_its_kind(
    fingerprints: Any, change: dict[str, Any], kind: str, line: str
) -> None:
    found = compare(fingerprints.seen(), fingerprints.seen(**change))
    assert not found.same
    assert found.verdicts == ((kind, line),)
    assert found.lines() == [line, OWN_STOOD_STILL]
    assert found.layers["path"]
    assert found.layers["build"] == (not next(iter(change)).startswith("live"))


@pytest.mark.parametrize(
    "change",
    [
        {"model__target__weights": {"model.safetensors": DIGEST}},
        {"model__target__weights": {"model.safetensors": "a" * 64, "more.safetensors": DIGEST}},
        {"model__tokenizer__vocab": DIGEST},
        {"serving": {"chat_template": DIGEST}},
        {"environment": {"VLLM_BATCH_INVARIANT": "1"}},
        {"runtime__libraries": {"torch/lib/libtorch.so": DIGEST}},
        {"engine__vllm": "0.33.0"},
        {"live__weights": {"version": "7"}},
    ],
)
def test_another_target_is_known_with_a_draft_or_without(
    fingerprints: Any, change: dict[str, Any]
) -> None:
    plain = {"model__draft": {}, "config__speculative": {}, "live__k": 0}
    serving = fingerprints.seen()
    assert find_another_target(serving, fingerprints.seen(**plain)) == ()
    assert find_another_target(serving, fingerprints.seen(**plain, **change))
    assert find_another_target(fingerprints.seen(**change), fingerprints.seen(**plain))


@pytest.mark.parametrize(
    "change",
    [
        {"model__draft__weights": {"model.safetensors": DIGEST}},
        {"config__model": {"dtype": "float32"}},
        {"runtime__libraries": {"torch/lib/libtorch.so": "d" * 64, "drafter.so": DIGEST}},
        {"live__mode": "target-only"},
    ],
)
def test_a_target_is_the_same_with_another_draft(fingerprints: Any, change: dict[str, Any]) -> None:
    assert find_another_target(fingerprints.seen(), fingerprints.seen(**change)) == ()


def test_a_target_is_not_known_to_be_another_where_it_was_not_read(fingerprints: Any) -> None:
    unread = (Unread("model.target.weights", "permission denied"),)
    seen = fingerprints.seen(unread=unread, model__target={})
    assert find_another_target(fingerprints.seen(), seen) == ()


def test_nothing_moves_between_two_looks(fingerprints: Any) -> None:
    found = compare(fingerprints.seen(), fingerprints.seen())
    assert (found.same, found.lines()) == (True, ["nothing changed"])
    assert found.layers == {"build": False, "path": False, "behaviour": None}


def test_vllms_own_is_not_said_to_stand_still_when_it_moved_or_is_unknown(
    fingerprints: Any,
) -> None:
    before = fingerprints.seen()
    for own in ("vllm-0.32.0-1", None):
        assert OWN_STOOD_STILL not in compare(before, fingerprints.seen(own=own, live__k=2)).lines()


def test_two_kinds_at_once_are_both_said_the_graver_first(fingerprints: Any) -> None:
    after = fingerprints.seen(live__k=5, model__tokenizer__vocab=DIGEST, runtime__driver="1")
    kinds = [kind for kind, _ in compare(fingerprints.seen(), after).verdicts]
    assert kinds == ["model", "knob", "runtime"]


def test_settings_that_another_vllm_brings_are_the_runtimes_doing(fingerprints: Any) -> None:
    after = fingerprints.seen(engine__vllm="0.33.0", config__new={"setting": True})
    ((kind, line),) = compare(fingerprints.seen(), after).verdicts
    assert kind == "runtime"
    assert "setting – → True" in line


def test_partial_and_full_are_never_the_same(fingerprints: Any) -> None:
    unread = (Unread("model.draft.weights", "Permission denied"),)
    part = fingerprints.seen(unread=unread, model__draft__weights={"model.safetensors": None})
    found = compare(fingerprints.seen(), part)
    assert found.before.path != found.after.path
    assert found.verdicts == (
        ("unknown", "not every fact is known: model.draft.weights: Permission denied"),
    )
    assert not found.same
    assert compare(part, part).lines() == ["nothing changed, as far as it is known"]


def test_nothing_is_the_same_where_no_file_was_read_on_either_side(fingerprints: Any) -> None:
    failed = Unread("model, runtime", "the reading process failed: it ended")
    found = compare(*[fingerprints.seen(unread=(failed,))] * 2)
    assert [kind for kind, _ in found.verdicts] == ["unknown"]
    assert "the reading process failed" in found.lines()[0]
    assert not found.same


def test_a_known_change_is_said_although_another_fact_is_unknown(fingerprints: Any) -> None:
    unread = (Unread("model.draft.weights", "Permission denied"),)
    part = fingerprints.seen(
        unread=unread, live__k=5, model__draft__weights={"model.safetensors": None}
    )
    kinds = [kind for kind, _ in compare(fingerprints.seen(), part).verdicts]
    assert kinds == ["knob", "unknown"]


def behaviour(logprob: float = -0.5, token: int = 7) -> Behaviour:
    return Behaviour({"serving": (ProbeAnswer((1, token), (-0.1, logprob)),)}, 9, 1.0, 0.0)


def test_behaviour_alone_is_the_alarm(fingerprints: Any) -> None:
    before = replace(fingerprints.seen(), behaviour=behaviour())
    after = replace(fingerprints.seen(), behaviour=behaviour(-0.75))
    found = compare(before, after)
    ((kind, line),) = found.verdicts
    assert kind == "behaviour"
    assert line.startswith("behaviour changed with nothing else: probe 0 (serving): the same token")
    assert found.layers == {"build": False, "path": False, "behaviour": True}
    assert found.as_json()["probes"][0]["logprob"] == 0.25


def test_an_engine_that_agrees_less_with_itself_behaves_otherwise(fingerprints: Any) -> None:
    probes = {"serving": (ProbeAnswer((1, 7), (-0.1, -0.5)),) * 16}
    before, after = (
        replace(fingerprints.seen(), behaviour=Behaviour(probes, 3, agreement, 0.0))
        for agreement in (1.0, 0.7)
    )
    found = compare(before, after)
    assert found.verdicts == (
        (
            "behaviour",
            "behaviour changed with nothing else: 70.0 % of answers agree over 3 runs, 100.0 % did",
        ),
    )
    assert found.layers["behaviour"]
    assert not found.probes
    assert compare(after, after).same


def test_a_token_that_may_be_a_close_call_is_unknown(fingerprints: Any) -> None:
    before, after = (
        replace(fingerprints.seen(), behaviour=replace(behaviour(token=token), runs=3))
        for token in (7, 8)
    )
    found = compare(before, after)
    assert [kind for kind, _ in found.verdicts] == ["unknown"]
    assert "probe 0 (serving) has another token at 1" in found.lines()[0]


def test_sameness_says_that_a_behaviour_was_not_compared(fingerprints: Any) -> None:
    bare, probed = fingerprints.seen(), replace(fingerprints.seen(), behaviour=behaviour())
    for before, after in ((bare, probed), (probed, bare)):
        found = compare(before, after)
        assert found.same
        assert "the behaviour was not compared" in found.lines()[0]
    assert compare(bare, bare).lines() == ["nothing changed"]
    assert compare(probed, probed).lines() == ["nothing changed"]


def test_behaviour_that_a_knob_explains_is_no_alarm(fingerprints: Any) -> None:
    before = replace(fingerprints.seen(), behaviour=behaviour())
    after = replace(fingerprints.seen(config__model__dtype="float32"), behaviour=behaviour(token=8))
    kinds = [kind for kind, _ in compare(before, after).verdicts]
    assert kinds == ["knob", "behaviour"]


def test_of_two_unread_facts_one_that_became_known_is_no_sameness(fingerprints: Any) -> None:
    both = (Unread("model.draft.weights", "being read"), Unread("runtime", "being read"))
    before = fingerprints.seen(unread=both, model__draft__weights={"model.safetensors": None})
    after = fingerprints.seen(unread=both[1:])
    found = compare(before, after)
    assert not found.same
    assert found.lines()[0] == "not every fact is known: model.draft.weights: being read"


@pytest.mark.parametrize(("old", "new"), [(1, True), (1, 1.0), (0.0, -0.0), ([1], [True])])
def test_values_that_python_alone_takes_for_equal_are_told_apart(
    fingerprints: Any, old: object, new: object
) -> None:
    found = compare(fingerprints.seen(config__knob=old), fingerprints.seen(config__knob=new))
    assert found.layers["build"]
    assert (found.same, found.verdicts[0][0]) == (False, "knob")


def test_a_value_that_is_no_number_is_equal_to_itself(fingerprints: Any) -> None:
    one, other = (fingerprints.seen(config__knob=float("nan")) for _ in range(2))
    assert compare(one, other).same


def test_a_behaviour_of_one_arm_is_not_the_same_as_one_of_two(fingerprints: Any) -> None:
    serving = behaviour()
    both = replace(serving, arms={**serving.arms, "target-only": serving.arms["serving"]})
    alone = replace(serving, missing=("target-only: too old",))
    seen = fingerprints.seen()
    found = compare(replace(seen, behaviour=both), replace(seen, behaviour=alone))
    assert (found.same, found.verdicts[0][0]) == (False, "unknown")
    assert "target-only: too old" in found.lines()[0]


def test_a_behaviour_of_another_probe_set_is_not_the_same(fingerprints: Any) -> None:
    seen, old = fingerprints.seen(), replace(behaviour(), probe_set=0)
    found = compare(replace(seen, behaviour=old), replace(seen, behaviour=behaviour()))
    assert found.layers["behaviour"] is None
    assert (found.same, found.verdicts[0][0]) == (False, "unknown")


OUTSIDE = (Unread("model", "only the specdeck plugin can tell"),)


def test_vllms_own_that_moved_is_a_change_where_the_facts_are_not_all_known(
    fingerprints: Any,
) -> None:
    before = fingerprints.seen(unread=OUTSIDE, own="vllm-0.32.0-0")
    found = compare(before, fingerprints.seen(unread=OUTSIDE, own="vllm-0.32.0-1"))
    line = "vLLM's own fingerprint moved: vllm-0.32.0-0 → vllm-0.32.0-1"
    assert found.verdicts == (("runtime", line),)
    assert (found.same, found.lines(), found.system_fingerprint_moved) == (False, [line], True)


def test_behaviour_that_moved_with_vllms_own_moved_with_something(fingerprints: Any) -> None:
    before = replace(fingerprints.seen(unread=OUTSIDE, own="a"), behaviour=behaviour())
    after = replace(fingerprints.seen(unread=OUTSIDE, own="b"), behaviour=behaviour(-0.75))
    verdicts = compare(before, after).verdicts
    assert [kind for kind, _ in verdicts] == ["runtime", "behaviour"]
    assert verdicts[1][1].startswith("behaviour changed with it: ")


@pytest.mark.parametrize("own", ["vllm-0.32.0-0", None])
def test_vllms_own_that_stands_still_or_is_unknown_is_no_change(
    fingerprints: Any, own: str | None
) -> None:
    before = fingerprints.seen(unread=OUTSIDE, own="vllm-0.32.0-0")
    found = compare(before, fingerprints.seen(unread=OUTSIDE, own=own))
    assert found.lines() == ["nothing changed, as far as it is known"]


def test_vllms_own_that_was_known_and_is_not_told_is_unknown_among_unknown_facts(
    fingerprints: Any,
) -> None:
    before = fingerprints.seen(unread=OUTSIDE, own="vllm-0.32.0-0")
    found = compare(before, replace(fingerprints.seen(unread=OUTSIDE, own=None), is_own_asked=True))
    line = "not every fact is known: vLLM's own fingerprint, vllm-0.32.0-0 before, is not told"
    assert (found.same, found.lines()) == (False, [line])


def test_vllms_own_that_is_not_told_is_no_change_where_every_fact_is_known(
    fingerprints: Any,
) -> None:
    after = replace(fingerprints.seen(own=None), is_own_asked=True)
    assert compare(fingerprints.seen(own="vllm-0.32.0-0"), after).same


def test_vllms_own_that_moved_with_a_models_place_changes_nothing(fingerprints: Any) -> None:
    found = compare(fingerprints.seen(own="a"), fingerprints.seen(own="b"))
    assert (found.same, found.lines()) == (True, ["nothing changed"])


_PLACES = st.lists(st.sampled_from(["a", "a.b", "a.b.c", "a-", "a.", "a/", "b", "", ".", "ab"]))


@settings(deadline=None)
@given(_PLACES, _PLACES)
def test_a_change_is_unknown_where_its_place_or_one_above_or_below_is_unread(
    changed: list[str], unread: list[str]
) -> None:
    def is_near(fact: str) -> bool:
        return any(
            fact == place or fact.startswith(f"{place}.") or place.startswith(f"{fact}.")
            for place in unread
        )

    seen = Fingerprint(1.0, "http://e:1", "b", "p", dict.fromkeys(changed, 1))
    named = tuple(Unread(place, "gone") for place in unread)
    found = compare(seen, replace(seen, facts=dict.fromkeys(changed, 2), unread=named))
    is_known = any(kind != "unknown" for kind, _ in found.verdicts if kind != "same")
    assert is_known == any(not is_near(fact) for fact in changed)


@settings(deadline=None)
@given(_PLACES, _PLACES)
def test_an_empty_branch_that_is_grown_on_the_other_side_is_no_difference(
    empty: list[str], grown: list[str]
) -> None:
    found = differences({place: {} for place in empty}, dict.fromkeys(grown, 1))
    removed = {one.fact for one in found if one.kind == "removed"}
    assert removed == {
        place
        for place in empty
        if place not in grown and not any(other.startswith(f"{place}.") for other in grown)
    }


def count_calls(work: Callable[[], object]) -> int:
    """How many functions `work` calls, in Python or in C."""
    events: Counter[str] = Counter()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: events.update((event,)))
    try:
        work()
    finally:
        sys.setprofile(before)
    return events["call"] + events["c_call"]


@pytest.mark.parametrize("part", ["unread facts", "reasons", "empty branches"])
def test_the_work_grows_with_the_facts_and_not_with_their_square(part: str) -> None:
    def work(count: int) -> int:
        def unread(letter: str) -> tuple[Unread, ...]:
            return tuple(Unread(f"{letter}{n}", "gone") for n in range(count))

        before = after = Fingerprint(1.0, "http://e:1", "b", "p", {"a": 1})
        numbers = [f"q{n}" for n in range(count)]
        if part == "unread facts":
            before = replace(before, facts=dict.fromkeys(numbers, 1))
            after = replace(after, facts=dict.fromkeys(numbers, 2), unread=unread("a"))
        elif part == "reasons":
            before, after = replace(before, unread=unread("a")), replace(after, unread=unread("b"))
        else:
            before = replace(before, facts={name: {} for name in numbers})
            after = replace(after, facts=dict.fromkeys(numbers, 3))
        return count_calls(lambda: compare(before, after))

    assert work(400) < 3 * work(200)


@pytest.mark.parametrize(
    ("moved", "line"),
    [
        ({"build": "sd1:b" + "1" * 16, "path": "sd1:p" + "2" * 16}, "the build's name moved"),
        ({"path": "sd1:p" + "2" * 16}, "the path's name moved"),
    ],
)
def test_a_name_that_moved_without_a_fact_is_not_sameness(
    fingerprints: Any, moved: dict[str, str], line: str
) -> None:
    before = fingerprints.seen()
    found = compare(before, replace(before, **moved))
    assert found.layers["path"]
    expected = f"not every fact is known: {line} and no fact tells why"
    assert (found.same, found.verdicts) == (False, (("unknown", expected),))


def test_a_live_knob_does_not_tell_why_the_build_moved(fingerprints: Any) -> None:
    after = replace(fingerprints.seen(live__k=5), build="sd1:b" + "1" * 16)
    found = compare(fingerprints.seen(), after)
    assert [kind for kind, _ in found.verdicts] == ["knob", "unknown"]
    assert "the build's name moved" in found.lines()[1]


def test_names_that_are_partial_on_both_sides_move_with_their_facts(fingerprints: Any) -> None:
    before = fingerprints.seen(unread=OUTSIDE)
    found = compare(before, fingerprints.seen(unread=OUTSIDE, config__model__dtype="float32"))
    assert [kind for kind, _ in found.verdicts] == ["knob"]
    found = compare(before, replace(before, path="sd1:p~" + "2" * 16))
    assert [kind for kind, _ in found.verdicts] == ["unknown"]


SECTIONS = ("model", "engine", "runtime", "config", "environment", "live", "")


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize(("old", "new"), [("A", "B"), (None, {}), ({}, "B"), ({"a": 1}, "B")])
def test_a_part_that_has_no_branches_is_named_like_any_other(
    fingerprints: Any, section: str, old: Any, new: Any
) -> None:
    bare = fingerprints.seen()
    before, after = (
        replace(bare, facts={} if value is None else {section: value}) for value in (old, new)
    )
    found = compare(before, after)
    assert not found.same
    assert found.lines()
    if section == "model":
        assert found.verdicts[0][0] == "model"
