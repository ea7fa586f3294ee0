import subprocess
import threading

import pytest

from conductor_core.grading import math
from conductor_core.grading.grade import grade
from conductor_core.grading.tasks import Graded, Task


def mark(reference: str, answer: str) -> Graded:
    return grade(Task("t", "q", "f", "", reference, "math"), answer)


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        (r"\frac{1}{2}", r"So we get \boxed{0.5}."),
        (r"\frac{3}{2}", r"\boxed{1\frac{1}{2}}"),
        ("x^2-1", "The answer is $(x-1)(x+1)$."),
        (r"\sqrt{8}", r"\boxed{2\sqrt2}"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"\boxed{(3, \pi/2)}"),
        ("1,2,3", r"\boxed{3,2,1}"),
        ("5", r"\boxed{x=5}"),
        (r"5.4 \text{ cents}", r"\boxed{5.4}"),
        (r"(-\infty,2]", r"\boxed{x\le 2}"),
        (r"\text{Evelyn}", "It was **Evelyn**."),
        (r"\text{(C)}", "The answer is (C)."),
        (r"\$36", r"We find that the answer is $\$36$."),
        ("2", "First 1, and so 1+1 = 2"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\boxed{\begin{pmatrix} 1 \\ 2 \end{pmatrix}}"),
    ],
)
def test_equal_answers_are_right_however_written(reference: str, answer: str) -> None:
    assert mark(reference, answer).score == 1


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        (r"\frac{1}{3}", r"\boxed{0.333}"),
        ("[0,1)", r"\boxed{[0,1]}"),
        ("(1,2)", r"\boxed{(2,1)}"),
        (r"3\pi", r"\boxed{9.42}"),
        ("p - q", r"\boxed{q-p}"),
        ("1,2,3", r"\boxed{1,2}"),
        (r"\text{even}", r"\boxed{\text{neve}}"),
        ("5", r"The answer is 5. No, it is \boxed{6}."),
        ("2", r"\boxed{2} or \boxed{3}"),
        ("2", r"\boxed{}"),
    ],
)
def test_other_answers_are_wrong(reference: str, answer: str) -> None:
    graded = mark(reference, answer)
    assert graded.score == 0
    assert graded.reason.endswith(".")


@pytest.mark.parametrize(
    ("answer", "score", "reason"),
    [
        (r"\boxed{2/4}", 1, r"The answer given, 2/4, is equal to \frac{1}{2}."),
        (r"\boxed{}", 0, "The answer has no formula."),
    ],
)
def test_the_reason_says_what_was_read(answer: str, score: float, reason: str) -> None:
    graded = mark(r"\frac{1}{2}", answer)
    assert (graded.score, graded.reason) == (score, reason)


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    mark(r"\frac{1}{2}", r"\boxed{2/4}")  # The library is loaded before the clock is short.
    monkeypatch.setattr(math, "TIMEOUT_S", 0.5)


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize(
    "formula", ["9^{9^{9^{9}}}", "10^{10^{10}}!", "\\int_0^\\infty \\frac{\\sin^{40} x^3}{x^9+e^x+3}"]
)
def test_hostile_formulas_end_in_time_and_the_next_answer_is_graded(
    formula: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graded = mark("2", f"\\boxed{{{formula}}}")
    assert graded.score == 0
    monkeypatch.undo()
    assert mark(r"\frac{1}{2}", r"\boxed{0.5}").score == 1


def test_an_endless_formula_is_not_even_asked_about() -> None:
    graded = mark("2", "$" + "1+" * 3000 + "1$")
    assert graded.reason == "The formula given is longer than 4000 characters."


def test_off_the_main_thread() -> None:
    marks: list[Graded] = []
    threads = [threading.Thread(target=lambda: marks.append(mark(r"\frac{1}{4}", r"\boxed{0.25}"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.score for one in marks] == [1, 1, 1]


def test_the_comparing_process_is_killed_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = math._start

    def watched() -> subprocess.Popen[bytes]:
        started.append(start())
        return started[-1]

    monkeypatch.setattr(math, "_start", watched)
    math._WORKER.close()
    mark(r"\frac{1}{2}", r"\boxed{2/4}")
    monkeypatch.setattr(math, "TIMEOUT_S", 0.3)
    mark("2", r"\boxed{9^{9^{9^{9}}}}")
    assert [process.returncode for process in started] == [-9]
