import pytest

from conductor_core.analysis.conclusion import plain, sentences


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
