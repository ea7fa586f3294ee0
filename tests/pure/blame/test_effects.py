"""Effects and their ranking from the answers of replays, without a single run."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.blame.experiments import Arm, Effect, Experiments, Replay, effects
from conductor_core.blame.report import finding_words, sentence, why_first
from tests.pure.blame.test_experiments import recorded
from tests.support.fakes import workflow_of

CHAIN = workflow_of(("a", "plan {question}", ()), ("b", "solve {question}", (0,)), ("c", "check {question}", (1,)))
COUNT = 10


@pytest.fixture(scope="module")
def experiments() -> Experiments:
    return Experiments(asyncio.run(recorded(CHAIN)))


def told(experiments: Experiments, flips: dict[str, str]) -> dict[Replay, bool | None]:
    """The answers by arm: ``x`` flipped, ``.`` stayed, ``-`` none. Arms that are not named stay."""
    found: dict[Replay, bool | None] = {}
    for arm in experiments.arms:
        for number, sign in enumerate(flips.get(arm.key, "." * COUNT)):
            found[Replay(arm=arm, number=number)] = {"x": True, ".": False, "-": None}[sign]
    return found


def by_key(ranking: tuple[Effect, ...]) -> dict[str, Effect]:
    return {effect.change.key: effect for effect in ranking}


def test_the_step_that_went_wrong_comes_before_those_above_and_below_it(experiments: Experiments) -> None:
    flips = {"fresh 0,1,2": "xxxxxxxx.x", "fresh 1,2": "xxxxxxx.xx", "fresh 2": "...x......"}
    ranking = effects(experiments, told(experiments, flips), COUNT)
    assert [effect.change.key for effect in ranking if effect.finding == "decides"] == ["step 1"]
    first = ranking[0]
    assert (first.rank, first.finding, first.pairs) == (1, "decides", 10)
    assert first.effect == pytest.approx(0.8)
    assert 0 < first.low < 0.8 < first.high < 1
    assert by_key(ranking)["step 0"].effect == pytest.approx(0)
    assert why_first(ranking, CHAIN).startswith("First: step 1 (b) re-run. It flips the answer more often by +80")


def test_a_step_that_decides_comes_before_an_access_that_goes_around_it(experiments: Experiments) -> None:
    flips = {"fresh 1,2": "xxxxxxx...", "granted 0-2 fresh 2": "xxxxxxxxxx"}
    ranking = effects(experiments, told(experiments, flips), COUNT)
    assert [effect.change.key for effect in ranking[:2]] == ["step 1", "granted 0-2"]
    assert "It comes before accesses" in why_first(ranking, CHAIN)


def test_a_step_that_decides_much_less_than_an_access_comes_after_it(experiments: Experiments) -> None:
    flips = {"fresh 2": "xxx.......", "granted 0-2 fresh 2": "xxxxxxxxxx"}
    ranking = effects(experiments, told(experiments, flips), COUNT)
    assert [effect.change.key for effect in ranking[:2]] == ["granted 0-2", "step 2"]
    assert "No step decides half as strongly." in why_first(ranking, CHAIN)


def test_of_accesses_that_cannot_be_told_apart_the_one_that_is_read_first_leads(experiments: Experiments) -> None:
    flips = {"cut 0-1 fresh 1,2": "xxxxxxxxx.", "granted 0-2 fresh 2": "xxxxxxxxxx", "cut 1-2 fresh 2": "xxx......."}
    ranking = effects(experiments, told(experiments, flips), COUNT)
    assert [effect.change.key for effect in ranking[:2]] == ["cut 0-1", "granted 0-2"]
    assert "It cannot be distinguished from: step 2 sees step 0" in why_first(ranking, CHAIN)


def test_an_access_that_was_withheld_is_a_measured_sentence(experiments: Experiments) -> None:
    ranking = effects(experiments, told(experiments, {"granted 0-2 fresh 2": "xxxxxxxxx."}), COUNT)
    assert ranking[0].change.key == "granted 0-2"
    assert sentence(ranking[0], CHAIN, seeds_sent=True) == (
        "Step 2 did not see step 0. Had it, the final answer flips in 9 of 10 replays (60% to 98%); as it was, in "
        "0 of 10 (0% to 28%), with the same seeds."
    )
    assert sentence(ranking[0], CHAIN, seeds_sent=False).endswith("0 of 10 (0% to 28%).")
    assert finding_words(ranking[0]).startswith("It flips more often by +90 points (")


def test_a_last_step_is_compared_with_the_recorded_answer_which_cannot_flip(experiments: Experiments) -> None:
    last = by_key(effects(experiments, told(experiments, {"fresh 2": "xxxx......"}), COUNT))["step 2"]
    assert last.without is not None
    assert last.without.certain
    assert last.effect == pytest.approx(0.4)
    assert last.low == pytest.approx(0.168, abs=1e-3)
    said = sentence(last, CHAIN, seeds_sent=True)
    assert said.endswith("replays (17% to 69%); with its recorded answer kept, it stays.")


def test_an_inconclusive_effect_says_how_many_pairs_would_settle_it(experiments: Experiments) -> None:
    flips = {"cut 0-1 fresh 1,2": "xx........", "fresh 1,2": "x........."}
    found = by_key(effects(experiments, told(experiments, flips), COUNT))["cut 0-1"]
    assert found.finding == "inconclusive"
    assert found.needed is not None
    assert found.needed > COUNT
    assert f"about {found.needed} pairs would settle it" in finding_words(found)
    assert "points it would count" not in finding_words(found)
    assert "; beyond 10 points it would count): " in finding_words(found.model_copy(update={"low": 0.06, "high": 0.79}))


def test_less_often_than_without_is_no_blame(experiments: Experiments) -> None:
    flips = {"cut 0-1 fresh 1,2": "..........", "fresh 1,2": "xxxxxxxxxx", "fresh 2": "xxxxxxxxxx"}
    ranking = effects(experiments, told(experiments, flips), COUNT)
    steadying = [effect.change.key for effect in ranking if effect.finding == "steadies"]
    assert "cut 0-1" in steadying
    assert [effect.change.key for effect in ranking[-len(steadying) :]] == steadying


def test_replays_without_an_answer_are_missing_with_their_partners(experiments: Experiments) -> None:
    flips = {"fresh 1,2": "x-x-xxxxxx", "fresh 2": "-........."}
    found = by_key(effects(experiments, told(experiments, flips), COUNT))["step 1"]
    assert (found.pairs, found.missing) == (7, 3)
    nothing = effects(experiments, {}, COUNT)
    assert {effect.finding for effect in nothing} == {"not measured"}
    assert "nothing is known" in sentence(nothing[0], CHAIN, seeds_sent=True)
    assert why_first(nothing, CHAIN) == ""


@given(data=st.data())
def test_whatever_flips_each_change_has_one_rank_and_its_interval_holds_its_effect(
    experiments: Experiments, data: st.DataObject
) -> None:
    signs = st.text(alphabet="x.-", min_size=COUNT, max_size=COUNT)
    flips = {arm.key: data.draw(signs) for arm in experiments.arms}
    ranking = effects(experiments, told(experiments, flips), COUNT)
    assert [effect.rank for effect in ranking] == list(range(1, len(experiments.experiments) + 1))
    assert {effect.change for effect in ranking} == {each.change for each in experiments.experiments}
    for effect in ranking:
        assert effect.low <= effect.effect <= effect.high
        assert sentence(effect, CHAIN, seeds_sent=False)
        assert finding_words(effect)
    decides = [effect.finding == "decides" for effect in ranking]
    assert decides == sorted(decides, reverse=True)
    assert why_first(ranking, CHAIN) or not any(effect.pairs for effect in ranking)


def test_an_arm_that_asks_nothing_has_no_replay() -> None:
    assert Arm().fresh == ()
