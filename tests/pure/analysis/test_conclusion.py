"""What stands first on the Answer card: what a text comes to, whoever wrote it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.analysis.conclusion import LONGEST_CONCLUSION, Conclusion, conclude
from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.rehearsal import EXAMPLES, Example, rehearsal_specs
from conductor_core.rehearsal.families.reading import read_answer
from conductor_core.rehearsal.reading import read_messages
from conductor_core.rehearsal.worker import RehearsalWorker, receipt_text

MERGE = "def merge(spans, gap=2):\n    spans.sort()\n    return spans"


def value(text: str) -> str:
    found = conclude(text)
    assert found.kind == "value", found
    return found.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("W", "W"),
        ("13:43.", "13:43"),
        ("**Check.** In view: `14:13`.\n\n- one\n\n**Answer: 13:43**\n\n— verifier, simulated (31507b)", "13:43"),
        ("Adding up gives $x = 42$.\n\nThe answer is \\boxed{42}.", "42"),
        ("So we get \\[\\boxed{\\dfrac{3}{4}}\\]", "3/4"),
        ("First \\boxed{1}. No, wait: \\boxed{\\text{Paris}}", "Paris"),
        ("Half of 84 is 42.\n#### 42", "42"),
        ("We compare both.\nFinal Answer: B) the second offer", "B) the second offer"),
        ("**Final answer:** 17 km", "17 km"),
        ("### Answer\n\n19 euros", "19 euros"),
        ("Long working here. It is long.\n\nTherefore, the answer is **13:43**, because the wait counts.", "13:43"),
        ("The answer: 14:13. That was wrong, as I see now.\n\nAnswer: 13:43", "13:43"),
        ("<think>The answer is 12? No.</think>\nIt took a while, after all this work.\n<answer>13</answer>", "13"),
        ('{"reasoning": "2 + 2", "answer": 4}', "4"),
        ('```json\n{"answer": "left"}\n```', "left"),
        ("我们先算第一段，再算第二段，最后把等待的时间加上。\n\n答案是：13:43。", "13:43"),
        ("まず第一区間を計算し、次に第二区間を計算します。待ち時間も加えます。\n答え：13時43分", "13時43分"),
        ("먼저 첫 구간을 계산하고 다음 구간을 계산합니다.\n\n정답은 13:43입니다.", "13:43입니다"),
        ("Sumamos los dos tramos y la espera, y llegamos.\n\n**Respuesta: las 13:43**", "las 13:43"),
        ("On additionne les deux trajets et l'attente.\n\nLa réponse est 13 h 43.", "13 h 43"),
        ("Wir addieren beide Strecken und die Wartezeit.\n\nDie Antwort lautet: 13:43 Uhr.", "13:43 Uhr"),
        ("Сначала первый участок, затем второй и ожидание.\n\nОтвет: 13:43", "13:43"),
        ("نحسب المرحلة الأولى ثم الثانية ونضيف الانتظار.\n\nالإجابة: ١٣:٤٣", "١٣:٤٣"),
        ("מחשבים את שני הקטעים ומוסיפים את ההמתנה.\n\nהתשובה היא 13:43.", "13:43"),
    ],
)  # fmt: skip
def test_a_value_is_found_where_models_put_it(text: str, expected: str) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"It is:\n\n**Answer:**\n\n```python\n{MERGE}\n```\n\n— coder, simulated (abc123)", "merge(spans, gap=2)"),
        (f"Sure!\n\n```python\nimport sys\n\n{MERGE}\n\nprint(merge([]))\n```\n\nIt sorts.", "merge(spans, gap=2)"),
        ("```python\ndef helper(a):\n    return a\n\ndef solve(n):\n    return helper(n)\n```", "solve(n)"),
        ("```js\nexport async function load(url, again = false) {\n  return 1\n}\n```", "load(url, again = false)"),
        ("```rust\npub fn add(a: i32, b: i32) -> i32 { a + b }\n```", "add(a: i32, b: i32)"),
        ("```go\nfunc (s *Set) Add(x int) bool { return true }\n```", "Add(x int)"),
        ("```java\nclass Solution {\n  public int add(int a, int b) { return a + b; }\n}\n```", "Solution"),
        ("```sql\n-- newest first\nSELECT name FROM runs ORDER BY at;\n```", "SELECT name FROM runs ORDER BY at;"),
        (MERGE, "merge(spans, gap=2)"),
        (f"It was cut:\n```python\n{MERGE}", "merge(spans, gap=2)"),
    ],
)  # fmt: skip
def test_code_is_named_by_what_it_defines(text: str, expected: str) -> None:
    assert conclude(text) == Conclusion("code", expected)


def test_of_several_functions_the_one_that_the_task_names_counts() -> None:
    code = "```python\ndef solve(n):\n    return show(n)\n\ndef show(a):\n    return a\n```"
    assert conclude(code).text == "show(a)"
    assert conclude(code, "Write `solve(n)`.").text == "solve(n)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# Moving house\n\nMost pack too late. Boxes are cheap.", "Moving house Most pack too late. Boxes are cheap."),
        ("The colours are:\n\n- **Red**\n- Blue", "The colours are: Red Blue"),
        ("See this:\n\n```sh\nls\n```\n\nand then decide.", "See this: ls and then decide."),
        ("东京是日本的首都。它有很多人口。", "东京是日本的首都。它有很多人口。"),
        ("The answer is Paris. It lies on the Seine.", "The answer is Paris. It lies on the Seine."),
        ("We look at the clock.\n\n**It arrives at 13:43**", "We look at the clock. It arrives at 13:43"),
        ("Both are added.\n\n$$x = \\frac{1}{2}$$", "Both are added. x = 1/2"),
    ],
)  # fmt: skip
def test_a_text_that_marks_no_value_is_shown_from_its_beginning(text: str, expected: str) -> None:
    assert conclude(text) == Conclusion("text", expected)


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ("I'm sorry, but I can't help with that.", ""),
        ("I cannot answer this question.", " It asks for a private address."),
        ("Unfortunately, I don't have access to live data.", " You could look at a timetable."),
        ("As an AI language model, I am unable to provide medical advice.", " See a doctor."),
        ("Lo siento, pero no puedo ayudarte con eso.", ""),
        ("Je suis désolé, je ne peux pas répondre à cette question.", ""),
        ("Es tut mir leid, aber ich kann diese Frage nicht beantworten.", ""),
        ("抱歉，我无法回答这个问题。", "请换一个问题。"),
        ("申し訳ありませんが、お答えできません。", ""),
        ("Извините, я не могу ответить на этот вопрос.", ""),
        ("عذراً، لا أستطيع الإجابة على هذا السؤال.", ""),
        ("מצטער, אני לא יכול לענות על השאלה הזאת.", ""),
        ("There is nothing to verify: no solution in view, because none was granted to me.", " So I give none."),
    ],
)
def test_who_says_that_it_cannot_answer_has_not_answered(said: str, more: str) -> None:
    assert conclude(said + more) == Conclusion("declined", said)


@pytest.mark.parametrize(
    "text",
    [
        "I cannot find any mistake in this: the legs are right and so is the wait, as far as I can tell from it.",
        "Sorry for the confusion above! The total is right once the wait is counted, and it comes to 4 h 3 min.",
        "I can't answer with certainty, but the likeliest reading gives one result.\n\nAnswer: 13:43",
        "You cannot answer this without the timetable of 1987, which the archive keeps. It says 13:43 for that day.",
    ],
)
def test_a_doubt_or_an_apology_is_no_refusal(text: str) -> None:
    assert conclude(text).kind != "declined"


@pytest.mark.parametrize("nothing", ["none", "N/A", "unknown", "**None**."])
def test_a_refusal_that_fills_in_the_form_is_one(nothing: str) -> None:
    said = "I'm sorry, but I cannot answer this question."
    assert conclude(f"{said}\n\nAnswer: {nothing}") == Conclusion("declined", said)
    assert conclude(f"Two of them are prime.\n\nAnswer: {nothing}").kind == "value"


def test_a_label_before_a_refusal_makes_no_value_of_it() -> None:
    said = "I cannot determine this from the text."
    assert conclude(f"We look at both letters.\n\nAnswer: {said}") == Conclusion("declined", said)


@pytest.mark.parametrize(
    "text",
    [
        "Hi Sam, thank you for the invitation. I cannot make it on Friday, but I would love to come the week after.",
        "Hi Sam,\n\nthanks for the invitation. I cannot make it on Friday, but I would love to.\n\nBest,\nJo",
        "Dear Ms Li,\n\nI cannot give you an earlier date, as all of them are taken.\n\nBest,\nJo",
    ],
)
def test_a_letter_that_refuses_something_is_an_answer(text: str) -> None:
    assert conclude(text, "Draft a reply.").kind == "text"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It is so.\n\nAnswer: \x1b[2J42", r"\x1b[2J42"),
        ("It is so.\n\nAnswer: 4\u202e2", r"4\u202e2"),
        ("It is so.\n\nAnswer: 4\u200b2", "42"),
        ("It is \x1b[31mso.\n\nIt is long.", r"It is \x1b[31mso. It is long."),
        ("I cannot answer \x1b[31mthis.", r"I cannot answer \x1b[31mthis."),
    ],
)
def test_characters_that_a_terminal_or_a_page_would_obey_are_written_out(text: str, shown: str) -> None:
    assert conclude(text).text == shown


@pytest.mark.parametrize("text", ["", "  \n ", "<think>Hm.</think>\n", "— writer, simulated (00ff00)"])
def test_nothing_said_is_nothing_concluded(text: str) -> None:
    assert conclude(text) == Conclusion("empty", "")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
@pytest.mark.parametrize("spec", rehearsal_specs(), ids=lambda spec: spec.name)
def test_every_worker_of_the_rehearsal_pool_is_read_on_every_example(spec: WorkerSpec, example: Example) -> None:
    worker = RehearsalWorker(spec, seed=0, tokens_per_s=0)
    text = worker.respond([Message(role="user", content=f"Solve this: {example.task}")])
    found = conclude(text, example.task)
    if "merge_bookings" in example.task:
        assert found == Conclusion("code", "merge_bookings(spans)")
    else:
        assert found == Conclusion("value", str(read_answer(text, "exact")))


@pytest.mark.parametrize(
    "instruction",
    [
        "Plan this.",
        "Check the solution.",
        "Combine the answers.",
        "State the result.",
        "Write a function.",
        "Solve it.",
    ],
)
def test_a_simulated_worker_on_an_unknown_task_has_not_answered(instruction: str) -> None:
    messages = [Message(role="user", content=f"{instruction} How tall is my neighbour's dog? Answer: in cm.")]
    text = receipt_text(read_messages(messages))
    assert conclude(text).kind == "declined", text


@given(st.text())
def test_any_text_has_a_conclusion_of_one_line(text: str) -> None:
    found = conclude(text)
    assert len(found.text) <= LONGEST_CONCLUSION
    assert "\n" not in found.text
    assert (found.text == "") == (found.kind == "empty")


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "**",
        "`",
        "\\boxed{",
        "Answer: ",
        "#### ",
        "$$",
        "(",
        "def f(",
        "So ",
        ". ",
        "```\n",
        "\n\n",
        "{",
        "— ",
        "<think>",
    ],
)
def test_hostile_text_takes_no_longer_than_its_length(piece: str) -> None:
    """So long a text comes to its end. By the square of its length it would take hours."""
    assert len(conclude(piece * (4_000_000 // len(piece))).text) <= LONGEST_CONCLUSION


@pytest.mark.parametrize(
    ("text", "formula", "read"),
    [
        (r"So it is \boxed{\frac{1}{x+1}}.", r"\frac{1}{x+1}", "1/(x+1)"),
        (r"**Answer:** \(\dfrac{\sqrt{3}}{2}\)", r"\dfrac{\sqrt{3}}{2}", "√3/2"),
        (r"The answer is $x^{2}$.", "x^{2}", "x²"),
        (r"\boxed{x^2}", "x^2", "x²"),
        (r"\boxed{5\,000}", r"5\,000", "5 000"),
        ("\\boxed{42}", "", "42"),
        (r"\boxed{\text{Paris}}", "", "Paris"),
        (r"\boxed{$\frac{1}{2}$ of it}", "", "1/2 of it"),
        ("**Answer:** file_1.txt", "", "file_1.txt"),
    ],
)
def test_a_value_that_is_a_formula_is_kept_as_it_was_written(text: str, formula: str, read: str) -> None:
    assert conclude(text) == Conclusion("value", read, formula)


@pytest.mark.parametrize("wrap", ["{}", "```json\n{}\n```"])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_stands_as_it_was_written(wrap: str, indent: int | None) -> None:
    written = json.dumps({"name": "Ada_Lovelace_", "items": [{"n": 1, "text": "x_y_z *b* **c**"}] * 3}, indent=indent)
    found = conclude(wrap.format(written))
    assert found.kind == "code"
    assert found.text == " ".join(written.split())


def test_short_json_is_a_value_as_it_was_written() -> None:
    assert conclude('["*a*", "_b_"]') == Conclusion("value", '["*a*", "_b_"]')
    assert conclude("[3, 1, 2]") == Conclusion("value", "[3, 1, 2]")
