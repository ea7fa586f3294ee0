"""Turns rows of the benchmarks that are only on the Hugging Face hub into tasks."""

import base64
import io
import json
import pickle
import re
import zlib
from hashlib import sha256
from random import Random
from typing import Any

from conductor_core.evaluation.suites.rows import Row, RowFault, choice_task, text
from conductor_core.evaluation.tasks import Task

LARGEST_TESTS_BYTES = 256 * 1024**2
"""Largest size of one problem's private tests after decompression. More is refused."""

_ASKED = re.compile(r"User:\s*(?P<question>.*?)\s*(?:Assistant:|$)", re.DOTALL)


def google_proof(row: Row, number: int) -> Task:
    """GPQA: one right and three wrong answers. The question seeds their order, which is the same in every run."""
    question = text(row, "Question")
    choices = [text(row, "Correct Answer"), *(text(row, f"Incorrect Answer {index}") for index in (1, 2, 3))]
    choices = [choice.strip() for choice in choices]
    right = choices[0]
    Random(sha256(question.encode()).digest()).shuffle(choices)  # noqa: S311 - an order, not a secret
    task_id = f"gpqa-diamond/{row.get('Record ID') or number}"
    family = str(row.get("High-level domain") or "science")
    return choice_task(task_id, question, choices, choices.index(right), family=family)


def general_reasoning(row: Row, number: int) -> Task:
    """RLPR: a chat prompt and a short answer, in words or as a formula."""
    solution = row.get("reward_model")
    reference = solution.get("ground_truth") if isinstance(solution, dict) else None
    if not isinstance(reference, str) or not reference.strip():
        raise RowFault("reward_model", "must hold a ground_truth")
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        said = [part.get("content") for part in prompt if isinstance(part, dict) and part.get("role") == "user"]
        prompt = said[-1] if said else None
    if not isinstance(prompt, str) or not prompt.strip():
        raise RowFault("prompt", "must hold what the user asks")
    asked = _ASKED.search(prompt)
    return Task(
        task_id=f"rlpr/{number}",
        question=(asked["question"] if asked else prompt).strip() + "\n\nPut the final answer in \\boxed{}.",
        family=str(row.get("ability") or row.get("data_source") or "reasoning"),
        difficulty="",
        reference=reference.strip(),
        grader="math",
    )


def library_function(row: Row, number: int) -> Task:
    """BigCodeBench, the instruct variant: a function that uses libraries, tested by unittest classes."""
    solution = row.get("canonical_solution")
    given = str(row.get("code_prompt") or "")
    return Task(
        task_id=str(row.get("task_id") or f"bigcodebench/{number}"),
        question=text(row, "instruct_prompt"),
        family="code",
        difficulty="",
        reference=given + solution if isinstance(solution, str) else "",
        grader="code",
        extra={"kind": "unittest", "test": text(row, "test"), "entry_point": text(row, "entry_point")},
    )


def contest_problem(row: Row, number: int) -> Task:
    """LiveCodeBench: a program that reads and writes, or a method of ``Solution`` if there is starter code."""
    tests = _tests(row, "public_test_cases") + _tests(row, "private_test_cases")
    starter = str(row.get("starter_code") or "")
    functional = any(test.get("testtype") == "functional" for test in tests)
    extra: dict[str, Any]
    if functional:
        extra = {"kind": "calls", "entry_point": _function_name(row), "tests": [_call(test) for test in tests]}
        form = f"Complete this class in one Python code block.\n\n```python\n{starter.rstrip()}\n```"
    else:
        extra = {"kind": "stdio", "tests": [{"input": test["input"], "output": test["output"]} for test in tests]}
        form = "Write a Python program that reads from stdin and writes to stdout, in one code block."
    return Task(
        task_id=f"livecodebench/{row.get('question_id') or number}",
        question=f"{text(row, 'question_content').strip()}\n\n{form}",
        family=str(row.get("platform") or "contest"),
        difficulty=str(row.get("difficulty") or ""),
        reference="",
        grader="code",
        extra=extra,
    )


def _tests(row: Row, field: str) -> list[dict[str, Any]]:
    written = text(row, field)
    try:
        tests = json.loads(written)
    except ValueError:
        tests = _packed(written, field)
    if not isinstance(tests, list) or not all(
        isinstance(test, dict) and "input" in test and "output" in test for test in tests
    ):
        raise RowFault(field, "must be a list of tests with input and output")
    return tests


def _packed(written: str, field: str) -> Any:
    """Reads private tests: JSON in a pickled text, compressed, in base 64. Only a text is unpickled."""
    try:
        unpacker = zlib.decompressobj()
        packed = unpacker.decompress(base64.b64decode(written), LARGEST_TESTS_BYTES)
        if unpacker.unconsumed_tail:
            raise RowFault(field, f"holds more than {LARGEST_TESTS_BYTES} bytes")
        return json.loads(_TextOnly(io.BytesIO(packed)).load())
    except (ValueError, TypeError, EOFError, zlib.error, pickle.UnpicklingError) as error:
        raise RowFault(field, f"cannot be unpacked: {error}") from error


class _TextOnly(pickle.Unpickler):
    """Loads plain values. It refuses every name of a class or function, so that nothing is called."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _function_name(row: Row) -> str:
    try:
        name = json.loads(text(row, "metadata")).get("func_name")
    except (ValueError, AttributeError) as error:
        raise RowFault("metadata", "must be a JSON object") from error
    if not isinstance(name, str) or not name:
        raise RowFault("metadata", "must name the function that is tested (func_name)")
    return name


def _call(test: dict[str, Any]) -> dict[str, Any]:
    """Reads the arguments of a call, one per line, as JSON."""
    try:
        arguments = [json.loads(line) for line in str(test["input"]).split("\n") if line.strip()]
        return {"input": arguments, "output": json.loads(str(test["output"]))}
    except ValueError as error:
        raise RowFault("private_test_cases", f"holds an argument that is no JSON: {error}") from error
