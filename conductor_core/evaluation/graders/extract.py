"""Extracts code from a model's answer."""

import ast

from conductor_core.answers.final_answer import fenced_blocks, tail

_PYTHON = frozenset(("python", "python3", "py", "py3", "pycon"))
_UNMARKED = frozenset(("", "plaintext", "text", "code"))


def extract_code(text: str, entry_point: str | None) -> str | None:
    """Returns the program in the answer, None if there is none.

    With an entry point, this is the last block that defines it, else the whole text if that does. Without one, it is
    the last block that is a program, first among those marked as Python, else the whole text if it is a program.
    Blocks marked as another language do not count.
    """
    text = tail(text)
    fenced = [(block.language.split(" ")[0], block.code) for block in fenced_blocks(text)]
    python = [code for language, code in fenced if language in _PYTHON]
    blocks = [code for language, code in fenced if language in _PYTHON | _UNMARKED]
    candidates = [*reversed(blocks), text]
    if entry_point is not None:
        found = next((code for code in candidates if defines(code, entry_point)), None)
        return found if found is not None else (blocks[-1] if blocks else None)
    # A sample of the output may be valid Python too, so blocks that are not marked as Python come last.
    found = next((code for code in [*reversed(python), *candidates] if _is_program(code)), None)
    return found if found is not None else next(reversed(python or blocks), None)


def parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def defines(code: str, name: str) -> bool:
    """Says whether ``code`` defines or assigns ``name`` at its top level, or as a method of a class there."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return name in _defined(tree.body) or any(
        isinstance(node, ast.ClassDef) and name in _defined(node.body) for node in tree.body
    )


def _defined(body: list[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _is_program(text: str) -> bool:
    """Says whether a text is Python that does something. A lone word, number or name is valid Python too."""
    return parses(text) and not all(
        isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call) for node in ast.parse(text).body
    )
