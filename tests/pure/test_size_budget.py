from pathlib import Path

from tests.size_budget import MAX_FILE_LINES, MAX_FUNCTION_LINES, over_budget


def test_a_file_and_a_function_over_the_budget_are_named(tmp_path: Path) -> None:
    long_file = tmp_path / "long.py"
    long_file.write_text("x = 1\n" * (MAX_FILE_LINES + 1))
    long_function = tmp_path / "function.py"
    long_function.write_text("def f() -> None:\n" + "    print()\n" * MAX_FUNCTION_LINES)

    findings = over_budget([long_file, long_function])

    assert len(findings) == 2
    assert "long.py" in findings[0]
    assert "f has" in findings[1]


def test_what_is_within_the_budget_is_not_named(tmp_path: Path) -> None:
    short = tmp_path / "short.py"
    short.write_text("def f() -> None:\n    print()\n")
    assert over_budget([short]) == []
