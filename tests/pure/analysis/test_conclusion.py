"""The conclusion of a text: what it marks, what code defines, how it begins; and the plain line of its markup."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.analysis.conclusion import LONGEST_CONCLUSION, conclude, plain, sentences
from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.rehearsal import EXAMPLES, Example, rehearsal_specs
from conductor_core.rehearsal.families import read_answer
from conductor_core.rehearsal.worker import RehearsalWorker, read_messages, receipt_text
from conductor_core.run.values import Conclusion
from tests.support.answers import LabelledAnswer, labelled_answers, of_second_reader, score

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


# A value stands large only where the text itself marks it: on answers of real models, on samples, and on any prose.

ANSWERS = labelled_answers()
KEPT = [each for each in ANSWERS if each.half == "kept"]


def test_the_labelled_set_is_large_enough_on_both_sides() -> None:
    assert len(ANSWERS) >= 200
    assert sum(bool(each.want) for each in KEPT) >= 40
    assert sum(each.tempting for each in KEPT) >= 40
    assert len({each.language for each in ANSWERS}) >= 6
    assert not any(each.tempting and each.want for each in ANSWERS)


def test_no_prompt_is_in_both_halves() -> None:
    def numbers(half: str) -> set[str]:
        return {each.id[1:] for each in ANSWERS if each.half == half}

    assert not numbers("kept") & numbers("developing")


@pytest.mark.parametrize("half", ["developing", "kept"])
@pytest.mark.parametrize("answers", [ANSWERS, of_second_reader(ANSWERS)], ids=["first reader", "second reader"])
def test_a_value_is_nearly_always_right_and_seldom_missed(answers: list[LabelledAnswer], half: str) -> None:
    found = score(each for each in answers if each.half == half)
    assert found.precision >= 0.98
    assert found.recall >= 0.8


@pytest.mark.parametrize("half", ["developing", "kept"])
def test_marks_other_than_a_short_text_are_found_as_well(half: str) -> None:
    def more_than_short(each: LabelledAnswer) -> bool:
        return each.half == half and each.text.strip() not in each.want

    found = score(filter(more_than_short, ANSWERS))
    assert found.precision >= 0.95
    assert found.recall >= 0.8


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("Somebody can stop it, and every answer is recorded with what it was based on.\n\nRecommendation: begin.", ""),
        ("Use a queue.\n\n- Make sure that every answer is logged.\n- Start small.", ""),
        ("Yes. If the answer is unclear, pass the chat to a person.", ""),
        ("Check each number, and end with the answer: how high is the building?", ""),
        ("1. First, count.\n2. 12 x 2 = 24.\n3. So, 12 apples cost 24 dollars.", ""),
        ("The larger number is 9.9. This is because 9 tenths are more than 1 tenth.", ""),
        ("The primary colours are:\n\nRed\nBlue\nYellow", ""),
        ("The answer is based on the number of weeks.", ""),
        ("Both count.\n\nMake sure that the answer is clear and polite.", ""),
        ("Take your time.\n\nThe answer is not known yet.", ""),
        ("Take your time.\n\nThe answer is N.", "Explain, and finish with the sentence 'The answer is N.'"),
        ("Summarise the letter in three sentences.", "Summarise the letter in three sentences. Dear Sam, ..."),
        ("Correct the mistake and state the final number: ", ""),
        ("What is 14 + 9?", ""),
        ("Please provide the text that you want me to read.", ""),
        ("**Answer:**\n\n- one\n- two", ""),
        ("Q: Who may borrow?\nAnswer: Everybody.\n\nQ: For how long?\nAnswer: Four weeks.", ""),
        ("- **Answer:** what the customer gets\n- **Question:** what the customer writes", ""),
        ("Intro.\n\n#### Flexibility\n\nIt is good.\n\n#### Costs", ""),
        ("Put it in a box.\n\n\\boxed{}", ""),
        ("Use a tag.\n\n<answer>result</answer>", ""),
        ("Verify: 12 = 4\nVerify: 12 = 4", ""),
    ],
)
def test_what_only_looks_like_a_mark_is_none(text: str, task: str) -> None:
    assert conclude(text, task).kind == "text"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Two trains leave at the same time.\n\nThe answer is 170.", "170"),
        ("48 / 2 = 24 in May.\n48 + 24 = 72\n#### 72", "72"),
        ("Final answer: yes, because it is short.\n\nDetails: seven days.", "yes, because it is short"),
        ("Half of 86 is 43. Answer: 43", "43"),
        ("7乘以8等于56。答案：56。", "56"),
        ("Both are primary colours, so the answer is 120.", "120"),
        ("The answer is 4, but I can simplify it. 1. The answer is 4.", "4"),
        ("We add them.\n\nThe answer to this question is 'Spain'.", "'Spain'"),
        ("We add them.\n\nThe answer is option B.", "option B"),
        ("2^6 is 64.", "2^6 is 64"),
    ],
)  # fmt: skip
def test_a_mark_is_read_where_models_write_it(text: str, expected: str) -> None:
    found = conclude(text)
    assert (found.kind, found.text, found.formula) == ("value", expected, "")


WORKING = "We add both of them, and then we look at what is left of it. It takes a while.\n\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{WORKING}Answer: - 5", "- 5"),
        (f"{WORKING}\\boxed{{- 5}}", "- 5"),
        (f"{WORKING}#### - 5", "- 5"),
        (f"{WORKING}<answer>- 5</answer>", "- 5"),
        (f"{WORKING}The answer is - 5.", "- 5"),
        (f"{WORKING}Answer: **- 5**", "- 5"),
        ("- 5", "- 5"),
        ('{"answer":"- 5"}', "- 5"),
        (f"{WORKING}Answer: - 5/3", "- 5/3"),
        (f"{WORKING}\\boxed{{> 5}}", "> 5"),
        (f"{WORKING}Answer: > 5 kg", "> 5 kg"),
        (f"{WORKING}Answer: Mt. Everest", "Mt. Everest"),
        (f"{WORKING}Answer: Sgt. Pepper", "Sgt. Pepper"),
        (f"{WORKING}Answer: Vol. 2", "Vol. 2"),
        (f"{WORKING}Answer: Martin Luther King Jr. and Malcolm X", "Martin Luther King Jr. and Malcolm X"),
        (f"{WORKING}Answer: Jeopardy! (1984)", "Jeopardy! (1984)"),
        (f"{WORKING}Answer: 5! = 120", "5! = 120"),
        (f"{WORKING}Answer: version 2. 5", "version 2. 5"),
        (f"{WORKING}Answer: f[0](x)", "f[0](x)"),
        (f"{WORKING}Answer: a[1](2) + b", "a[1](2) + b"),
        (f"{WORKING}Answer: [1, 2](3)", "[1, 2](3)"),
        (f"{WORKING}Answer: __init__", "__init__"),
        (f"{WORKING}Answer: *args, **kwargs", "*args, **kwargs"),
        (f"{WORKING}**Answer: yes, it is**", "yes, it is"),
        (f"{WORKING}The answer is **__init__**.", "__init__"),
        (f"{WORKING}**Check:** the answer is **42**", "42"),
        (f"{WORKING}So \\boxed{{3}} or \\boxed{{4}}.", "3 or 4"),
        (f"{WORKING}So \\boxed{{x}}, or \\boxed{{d}}.", "x, or d"),
        (f"{WORKING}So $x=\\boxed{{3}}$, $y=\\boxed{{4}}$ and $z=\\boxed{{\\frac12}}$.", "3, 4 and 1/2"),
        (f"{WORKING}So it is $7! \\times 2!=\\boxed{{10080}}$.", "10080"),
        ('{"answer": true}', "true"),
        ('{"answer": NaN}', "NaN"),
        ('{"answer": 1e400}', "1e400"),
        ('{"answer": 0.10}', "0.10"),
        ('{"answer": 12345678901234567890.12345678901234567890}', "12345678901234567890.12345678901234567890"),
    ],
)
def test_a_value_is_all_that_is_marked_in_its_own_signs(text: str, expected: str) -> None:
    found = conclude(text)
    assert (found.kind, found.text) == ("value", expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We try \\boxed{3}, but that is wrong. Answer: 7", "7"),
        ("\\boxed{3}\n\nThat was wrong.\n\nAnswer: 7", "7"),
        ("Answer: 3\n\nThat was wrong.\n\n<answer>7</answer>", "7"),
        ("\\boxed{3}\n\nThat was wrong.\n\n#### 7", "7"),
        ("It is not \\boxed{3}. It is \\boxed{7}.", "7"),
        (f"{WORKING}Answer: ~~42~~ 43", "43"),
        ("Answer: 42\nModels end their thoughts with </think> tags.", "42"),
        (f"{WORKING}So $x = \\boxed{{3}}$ or $x = \\boxed{{4}}$.\n\nAnswer: 3 or 4", "3 or 4"),
    ],
)
def test_of_several_marks_the_last_that_still_holds_counts(text: str, expected: str) -> None:
    assert conclude(text).headline == expected


@pytest.mark.parametrize(
    "last",
    [
        "Nobody believes the answer is 5.",
        "I doubt the answer is 5.",
        "I doubt, though, the answer is 5.",
        "If so, the answer is 5.",
        "It is false to say the answer is 5.",
        "Do not think the answer is 5.",
        "Only one in ten students says the answer is 5.",
        "The answer was 42 until 2003.",
        "Wrong answer: 3",
        "Previous answer: 3",
        "Answer: ~~42~~",
        "Answer: <s>42</s>",
        "Answer: <del>42</del>",
        "Use `</think>` to end it.",
        "The tag is <think>.",
        "<!-- Answer: 42 -->",
        "<!--\nAnswer: 42",
        "Write it as `\\boxed{42}`. I have not solved it.",
        "Write it as `<answer>42</answer>`. I have not solved it.",
        "`Answer: 42`",
        "    Answer: 42",
        "    \\boxed{42}",
        "\t#### 42",
        "> Answer: 42",
        "> \\boxed{42}",
        "<details>\n<summary>An old try</summary>\n\nAnswer: 42\n\n</details>",
        "The answer is not \\boxed{3}. I could not find it.",
        "So $x \\neq \\boxed{5}$.",
        "So it isn't $\\boxed{5}$.",
        "Here $\\boxed{5}$ is wrong.",
    ],
)
def test_what_is_denied_struck_out_quoted_or_hidden_is_no_mark(last: str) -> None:
    assert conclude(WORKING + last).kind == "text"


@pytest.mark.parametrize(
    "text",
    [
        "Let me check the number again.",
        "I will look at both sides.",
        "Okay, I'll add them first.",
        "Now, add them up.",
        "Sure, here is the answer",
        "Write it as `\\boxed{42}`.",
        "<!-- 42 -->",
        "~~42~~",
        "> 42",
    ],
)
def test_a_line_that_says_nothing_of_its_own_is_no_value(text: str) -> None:
    assert conclude(text).kind == "text"


@pytest.mark.parametrize("left_out", [20_000, 100_000])
def test_what_is_left_out_of_a_long_text_makes_no_mark_of_what_is_none(left_out: int) -> None:
    line = "We look at the next one of them and add it.\n"
    code = f"It prints:\n\n```text\n{line * (left_out // len(line))}"
    after = f"{line * 800}"
    assert conclude(f"{line * 600}{code}Answer: 13\n{after}\n```\n\nThat is all of it.\n{line * 40}").kind != "value"
    middle = f"{line * 1000} that the Answer: 13\n"
    for shift in range(0, 60, 7):
        end = line * 800 + "a" * shift
        assert conclude(f"{line * 600}{middle}{end}").kind == "text"
    for shift in range(0, 60, 7):
        assert conclude(f"{'a' * shift}\n{line * 454}Answer: 13 or 14\n{line * 2000}").headline in ("", "13 or 14")


_WORDS = ("we", "then", "take", "every", "answer", "is", "recorded", "result", "value", "they", "say", "that", "of")
_PROSE = st.lists(st.sampled_from(_WORDS), min_size=20, max_size=40).map(lambda words: f"We {' '.join(words)}.")


@given(st.lists(_PROSE, min_size=2, max_size=4), st.integers(0, 10**6))
def test_prose_marks_nothing_until_a_mark_is_written_below_it(paragraphs: list[str], number: int) -> None:
    prose = "\n\n".join(paragraphs)
    assert conclude(prose).kind == "text"
    for mark in (f"Answer: {number}", f"\\boxed{{{number}}}", f"#### {number}", f"The answer is {number}."):
        found = conclude(f"{prose}\n\n{mark}")
        assert (found.kind, found.text) == ("value", str(number))


@pytest.mark.parametrize(
    ("marked", "read"),
    [
        ("**13:43**", "13:43"),
        ("## `merge(a)` and *more*", "merge(a) and more"),
        (r"\(\frac{\sqrt{3}}{2} \times 10^\circ\)", "√3/2 × 10°"),
        (r"$\text{Paris}$ costs \$5 and $6", "Paris costs $5 and $6"),
        (r"\(\frac{1}{x+1}\)", "1/(x+1)"),
        (r"$\frac{-b \pm \sqrt{b^2-4ac}}{2a}$", "(-b ± √(b²-4ac))/(2a)"),
        (r"$2\frac{1}{2}$ and $\frac{1}{2}x$", "2 1/2 and (1/2)x"),
        (r"$10^{-3}\,\text{km}$, $x^{n+1}$, $e^{-x^2}$", "10⁻³ km, x^(n+1), e^(-x²)"),
        (r"$a*b*c$ and **bold**", "a*b*c and bold"),
        (r"$x_1 + x_{10}$ in file_1", "x₁ + x₁₀ in file_1"),
        (r"$\left( 3, \frac{\pi}{2} \right)$", "(3, π/2)"),
        (r"$\{1{,}000\}$", "{1,000}"),
        (r"$\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}$", "1 2; 3 4"),
        (r"$\unknown{x}$", r"\unknown{x}"),
        ("[a page](https://example.org/x)", "a page"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("snake_case_name", "snake_case_name"),
        ("- one\n  two", "one two"),
    ],
)
def test_markup_is_read_and_words_are_kept(marked: str, read: str) -> None:
    assert plain(marked) == read


@pytest.mark.parametrize(
    ("paragraph", "parts"),
    [
        ("It costs 20. The rest is 3.5 km away.", ["It costs 20.", "The rest is 3.5 km away."]),
        ("1. Add them. 2. Halve it.", ["1. Add them.", "2. Halve it."]),
        ("Ask Dr. Li, e.g. by mail! Why? Because.", ["Ask Dr. Li, e.g. by mail!", "Why?", "Because."]),
        ("一。二！三", ["一。", "二！", "三"]),
        ("", []),
    ],
)
def test_a_sentence_ends_where_it_ends(paragraph: str, parts: list[str]) -> None:
    assert list(sentences(paragraph)) == parts


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2*3*4 = 24", "2*3*4 = 24"),
        ("2**3**4", "2**3**4"),
        ("**2*3*4** is 24", "2*3*4 is 24"),
        ("x**2 + y**2 = z**2", "x**2 + y**2 = z**2"),
        ("(a+b)*c*(d)", "(a+b)*c*(d)"),
        ("2 ** 3", "2 ** 3"),
        ("`a*b*c` and *that*", "a*b*c and that"),
        ("a__b__c", "a__b__c"),
        ("so **it is** 3*4*5", "so it is 3*4*5"),
        ("答案是**四**个", "答案是四个"),
        ("**bold**er", "bolder"),
    ],
)
def test_stars_between_numbers_and_names_are_no_markup(text: str, read: str) -> None:
    assert plain(text) == read
