"""An instruction names the task by a macro, which no page but the editor shows."""

import pytest

from pages.components.style.formats import instruction_html, instruction_markdown

CHIP = ":gray-badge[the task]"


@pytest.mark.parametrize(
    ("instruction", "shown"),
    [
        ("Answer this: {question}", f"Answer this\\: {CHIP}"),
        ("{question} Be brief.", f"{CHIP} Be brief\\."),
        ("Solve :red[it]", "Solve \\:red\\[it\\]"),
        ("A long one that ends here {question}", f"A long one that ends here {CHIP}"),
        ("A long one that ends there {question}", "A long one that ends there"),
    ],
)
def test_a_line_of_an_instruction_has_a_chip_and_no_half_of_a_macro(instruction: str, shown: str) -> None:
    assert instruction_markdown(instruction, 36) == shown


def test_as_html_a_chip_is_all_the_markup_there_is() -> None:
    assert instruction_html("<b>{question}</b>") == '&lt;b&gt;<span class="task-chip">the task</span>&lt;/b&gt;'
