"""``conductor tiers``: a file is fitted from the recorded verdicts, and each figure of it is printed."""

from pathlib import Path

import pytest

from conductor_core.run.actor import local_caller
from conductor_core.run.judgement import Verdict
from conductor_core.run.request import PASS_PURPOSE, SHADOW_PURPOSE
from conductor_core.settings import Settings
from conductor_core.tiers.classifier import read_classifier
from conductor_core.tiers.features import features
from conductor_core.tiers.outcomes import NO_CONDUCTOR
from storage.store import open_store
from tests.support.command_line import CommandLine
from tests.support.fakes import workflow_of
from tests.support.run_events import answered, created, planned, run_completed, whole_run
from tests.support.tiers import EASY, HARD, fitted, run_id, written

ALONE = workflow_of(("fast", "{question}", ()))


def test_too_little_is_refused_with_what_was_left_out(cli: CommandLine, tmp_path: Path) -> None:
    out = tmp_path / "easy.json"
    said = cli("tiers", "fit", "--cheap", "fast", "--out", out)
    assert (said.code, out.exists()) == (2, False)
    assert said.error.startswith("0 recorded outcomes, 0 of them easy for fast: too few to fit on")


def test_without_scikit_learn_the_extra_is_named(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conductor_core.cli.inputs._is_installed", lambda module: module != "sklearn")
    said = cli("tiers", "fit", "--cheap", "fast", "--out", tmp_path / "easy.json")
    assert 'needs the extra "evaluate" (sklearn not installed)' in said.error


def test_the_curve_of_a_file_is_printed_or_told_as_json(cli: CommandLine, tmp_path: Path) -> None:
    file = written(tmp_path)
    document = cli("tiers", "curve", file, "--threshold", "0.5", "--json").document
    assert document["worker"] == "a"
    assert document["outcomes"] == len(fitted().outcomes) == 120
    assert document["curve"][0]["threshold"] is None
    assert document["chosen"]["threshold"] == 0.5
    assert document["chosen"]["saved"] == pytest.approx(1 - document["chosen"]["cost"] / 0.1)
    lines = cli("tiers", "curve", file).out
    assert "EASY" in lines
    assert "$0.1" in lines
    assert "against" not in lines
    assert "not JSON" in cli("tiers", "curve", Path(__file__)).error
    assert "no such file" in cli("tiers", "curve", tmp_path / "gone.json").error


def test_recorded_verdicts_become_a_file_that_serving_reads(cli: CommandLine, tmp_path: Path) -> None:
    store = open_store(Settings().resolved_database_url)
    verdicts = []
    for number in range(60):
        cheap, full = run_id(2 * number), run_id(2 * number + 1)
        task = (EASY if number % 2 else HARD).format(number)
        began = created(cheap, task, conductor=None, workflow=ALONE, purpose=PASS_PURPOSE)
        events = [began, *planned(cheap, ALONE)[-1:], *answered(cheap, 0, at_ms=30), run_completed(cheap)]
        store.log.append_and_wait(*events)
        shadow = created(full, task, purpose=SHADOW_PURPOSE, about_run_id=cheap)
        store.log.append_and_wait(shadow, *whole_run(full, task)[1:])
        mark = "right" if number % 2 else "wrong"
        verdicts += [Verdict(run_id=cheap, mark=mark, by="grader"), Verdict(run_id=full, mark="right", by="grader")]
    store.judgements.add_all(verdicts[:-1], local_caller("cli"))
    store.close()
    out = tmp_path / "easy.json"
    document = cli("tiers", "fit", "--cheap", "fast", "--out", out, "--json").document
    assert (document["outcomes"], document["easy"]) == (59, 29)
    assert document["fit"]["left_out"] == {NO_CONDUCTOR: 1}
    assert document["fit"]["auc"] == 1
    assert read_classifier(out)[0].probability(features(EASY.format(7))) > 0.5
    said = cli("tiers", "fit", "--cheap", "fast", "--out", out)
    assert "fitted on 59 outcomes" in said.out
    assert "or the Tiers page" not in said.err
    listed = Settings().data_folder / "tiers" / "easy.json"
    assert "or the Tiers page" in cli("tiers", "fit", "--cheap", "fast", "--out", listed).err
    said = cli("tiers", "fit", "--cheap", "fast", "--out", out, "--since", "2999-01-01")
    assert "0 recorded outcomes" in said.error
    unknown = cli("tiers", "fit", "--cheap", "quick", "--out", out).error
    assert unknown.endswith("judged answers alone are of fast")
    assert "cannot write" in cli("tiers", "fit", "--cheap", "fast", "--out", out / "easy.json").error
