"""Advice fits the fault: every error that can end a run or a step has its own."""

import re

import pytest

from conductor_core import errors
from conductor_core.chat.messages import INCOMPLETE
from conductor_core.cli.main import main
from conductor_core.errors import ADVICE, ConductorError, WorkerError, advice, codes_of


def test_every_failure_of_a_call_and_every_ending_has_its_advice() -> None:
    codes = codes_of(WorkerError, ConductorError) - {"WorkerError"}
    codes |= {f"Answer{ending.capitalize()}" for ending in INCOMPLETE} | {"LimitReached"}
    assert codes - set(ADVICE) == set()


def test_no_advice_is_of_a_code_that_is_none() -> None:
    known = codes_of(errors.InspectorError) | {f"Answer{ending.capitalize()}" for ending in INCOMPLETE}
    of_calls = {"NothingToReturn", "TooManyToolCalls"}  # failures of an inner run and of a step, which are no errors
    assert set(ADVICE) - known == of_calls


@pytest.mark.parametrize(
    ("code", "words", "without"),
    [
        ("WorkerContextOverflow", "longer context", "environment"),
        ("WorkerUnpaid", "credit", "environment"),
        ("WorkerModelUnknown", "models pull", "environment"),
        ("WorkerKeyRefused", "key is right", "credit"),
        ("WorkerRateLimited", "max_concurrency", "key"),
        ("WorkerTimedOut", "timeout_s", "key"),
        ("WorkerCertificate", "SSL_CERT_FILE", "key"),
        ("WorkerLoading", "loading", "key"),
        ("LimitReached", "--max-steps", "key"),
        ("PlanRejected", "--max-steps", "key"),
        ("Unheard", "conductor rerun run-7 (finished steps are reused)", "key"),
    ],
)
def test_what_to_do_is_about_what_went_wrong(code: str, words: str, without: str) -> None:
    assert words in advice(code, "run-7")
    assert without not in advice(code, "run-7")


def test_the_terminal_names_commands_and_no_part_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    main(["rerun", "--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    for code in (*ADVICE, "Unheard"):
        said = advice(code, "run-7")
        assert not re.search(r"Edit plan|under Limits|[Pp]age|RUN_ID", said)
        assert set(re.findall(r"--[a-z-]+", said)) <= options


def test_a_run_without_a_plan_is_not_sent_to_the_plans_editor() -> None:
    assert "Edit plan" not in ADVICE["PlanRejected"]
