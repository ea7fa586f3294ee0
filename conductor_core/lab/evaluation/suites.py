"""Loads the suite that ``--suite`` names, and chooses which tasks are asked, in which order.

It is the rehearsal world; a file: JSON Lines in our own format, or in that of a public benchmark, recognised by its
keys; or one of the paper's seven benchmarks from the Hugging Face hub, each pinned to a revision. Files of the hub are
named one by one, so that no loading script of a repository ever runs. A downloaded file is read again without a
network. Licences and terms are those of the data's owners. Access to GPQA must be requested on its page.
"""

import base64
import io
import json
import pickle
import re
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from string import ascii_uppercase
from typing import Any

from conductor_core.analysis.answers import boxed
from conductor_core.errors import BadInput
from conductor_core.files import open_regular
from conductor_core.grading.grade import require_gradable
from conductor_core.grading.numbers import parse_quantity
from conductor_core.grading.tasks import GRADERS, Suite, Task
from conductor_core.rehearsal import DIFFICULTIES, FAMILIES, generate
from conductor_core.rehearsal.families import SPLITS as REHEARSAL_SPLITS
from conductor_core.rehearsal.families import Difficulty, Split

# Rows. Each format has a function ``(row, number) -> Task``. A fault in a row raises ``RowFault``; the loader, which
# knows the file and the line, adds the place.

Row = Mapping[str, Any]


class RowFault(Exception):
    """A row that cannot be used. ``field``: the column at fault."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(f"field {field!r} {what}")
        self.field = field


@dataclass(frozen=True)
class Format:
    """A kind of row.

    Attributes:
        keys: the columns by which the format is recognised, and which every row must have.
        task: makes a task of a row. ``number`` counts rows from 0 and names rows without an id.
    """

    name: str
    keys: frozenset[str]
    task: Callable[[Row, int], Task]


def text(row: Row, field: str) -> str:
    """Returns the column's text. Raises: RowFault if it is not text or empty."""
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        raise RowFault(field, f"must be a text, not {_kind(value)}")
    return value


def grade_school(row: Row, number: int) -> Task:
    """GSM8K: the answer is worked out in prose and ends in ``#### N``."""
    solution = text(row, "answer")
    _, mark, reference = solution.rpartition("####")
    reference = reference.strip().replace(",", "")
    if not mark or parse_quantity(reference) is None:
        raise RowFault("answer", "must end in '#### ' and one number")
    return Task(
        task_id=f"gsm8k/{row.get('idx', number)}",
        question=text(row, "question"),
        family="word problems",
        difficulty="",
        reference=reference,
        grader="numeric",
        extra={"solution": solution},
    )


def competition_math(row: Row, number: int) -> Task:
    r"""MATH: ``answer`` is LaTeX. Without it, the content of the solution's last ``\boxed{}`` is the answer."""
    solution = row.get("solution")
    if isinstance(row.get("answer"), str) and row["answer"].strip():
        reference = row["answer"].strip()
    else:
        boxes = boxed(text(row, "solution"))
        if not boxes:
            raise RowFault("solution", r"has no \boxed{} answer, and the field 'answer' is missing")
        reference = boxes[-1][1].strip()
    level = row.get("level")
    return Task(
        task_id=f"math/{row.get('unique_id', number)}",
        question=text(row, "problem"),
        family=str(row.get("subject") or "mathematics"),
        difficulty=f"level {level}" if isinstance(level, int) else str(level or ""),
        reference=reference,
        grader="math",
        extra={"solution": solution} if isinstance(solution, str) else {},
    )


def aime(row: Row, number: int) -> Task:
    """AIME: the answer is a whole number from 0 to 999."""
    value = row.get("answer")
    number_read = (
        None if isinstance(value, bool) else re.fullmatch(r"\s*(\d{1,3})\s*(?:\^\{?\\circ\}?)?\s*", str(value))
    )
    if number_read is None:
        raise RowFault("answer", f"must be a whole number from 0 to 999, not {value!r}")
    return Task(
        task_id=f"aime/{row.get('id', row.get('problem_idx', number))}",
        question=text(row, "problem" if "problem" in row else "question"),
        family="competition",
        difficulty="",
        reference=str(int(number_read[1])),
        grader="numeric",
        extra={"solution": row["solution"]} if isinstance(row.get("solution"), str) else {},
    )


def multiple_choice(row: Row, number: int) -> Task:
    """MMLU: ``answer`` is the index of the right one of ``choices``."""
    subject = str(row.get("type") or row.get("subject") or "knowledge")
    choices = row.get("choices")
    if (
        not isinstance(choices, Sequence)
        or isinstance(choices, str)
        or not 2 <= len(choices) <= len(ascii_uppercase)
        or not all(isinstance(choice, str) for choice in choices)
    ):
        raise RowFault("choices", "must be a list of 2 to 26 texts")
    answer = row.get("answer")
    if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < len(choices):
        raise RowFault("answer", f"must be an index from 0 to {len(choices) - 1}, not {answer!r}")
    return choice_task(f"mmlu/{number}", text(row, "question"), list(choices), answer, family=subject)


def choice_task(task_id: str, question: str, choices: list[str], right: int, *, family: str) -> Task:
    """Makes a task of a question with its lettered choices below it."""
    lettered = "\n".join(f"({letter}) {choice}" for letter, choice in zip(ascii_uppercase, choices, strict=False))
    return Task(
        task_id=task_id,
        question=f"{question.rstrip()}\n\n{lettered}\n\nAnswer with the letter of the right choice.",
        family=family,
        difficulty="",
        reference=ascii_uppercase[right],
        grader="choice",
        extra={"choices": choices},
    )


def function_completion(row: Row, number: int) -> Task:
    """HumanEval: a signature with its docstring, to be completed; ``test`` defines ``check(candidate)``."""
    prompt = text(row, "prompt")
    solution = row.get("canonical_solution")
    return Task(
        task_id=str(row.get("task_id", f"humaneval/{number}")),
        question="Complete this Python function. Give the whole function in one code block.\n\n"
        f"```python\n{prompt.rstrip()}\n```",
        family="code",
        difficulty="",
        reference=prompt + solution if isinstance(solution, str) else "",
        grader="code",
        extra={"kind": "check", "prompt": prompt, "test": text(row, "test"), "entry_point": text(row, "entry_point")},
    )


def own_task(row: Row, number: int) -> Task:
    """Our own format: the fields of ``Task``, of which ``question``, ``reference`` and ``grader`` are needed."""
    grader = row.get("grader")
    if grader not in GRADERS or grader == "rehearsal":
        raise RowFault("grader", f"must be one of {', '.join(name for name in GRADERS if name != 'rehearsal')}")
    extra = row.get("extra", {})
    if not isinstance(extra, Mapping):
        raise RowFault("extra", f"must be an object, not {_kind(extra)}")
    reference = row.get("reference")
    if not isinstance(reference, str):
        raise RowFault("reference", f"must be a text, not {_kind(reference)}")
    return Task(
        task_id=str(row.get("task_id", number)),
        question=text(row, "question"),
        family=str(row.get("family", "tasks")),
        difficulty=str(row.get("difficulty", "")),
        reference=reference,
        grader=grader,
        extra=dict(extra),
    )


def _is_aime(row: Row) -> bool:
    return "subject" not in row and "level" not in row and str(row.get("answer", "")).strip().isdecimal()


def recognise(row: Row) -> Format | None:
    """Returns the format of a row by its keys, None if it is unknown."""
    keys = set(row)
    for known in FORMATS:
        if known.keys <= keys and (known.name != "aime" or _is_aime(row)):
            return known
    return None


FORMATS = (
    Format("own", frozenset({"question", "reference", "grader"}), own_task),
    Format("humaneval", frozenset({"prompt", "test", "entry_point"}), function_completion),
    Format("mmlu", frozenset({"question", "choices", "answer"}), multiple_choice),
    Format("aime", frozenset({"problem", "answer"}), aime),
    Format("math", frozenset({"problem", "solution"}), competition_math),
    Format("gsm8k", frozenset({"question", "answer"}), grade_school),
)
"""The formats in the order in which they are tried, the more specific ones first."""


def _kind(value: object) -> str:
    return "missing" if value is None else f"{type(value).__name__} {json.dumps(value, default=str)[:40]}"


# Rows of benchmarks that are only on the hub.

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
        raise RowFault("private_test_cases", f"has an argument that is not JSON: {error}") from error


@dataclass(frozen=True)
class HubDataset:
    """A file on the hub. ``path`` ends in .jsonl, .parquet or .csv."""

    repository: str
    revision: str
    path: str


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: the files of each of our splits, and the function that makes a task of a row."""

    splits: Mapping[str, HubDataset]
    task: Callable[[Row, int], Task]


_TASKS: Mapping[str, Callable[[Row, int], Task]] = {
    "math500": competition_math,
    "mmlu": multiple_choice,
    "rlpr": general_reasoning,
    "livecodebench": contest_problem,
    "aime25": aime,
    "bigcodebench": library_function,
    "gpqa-diamond": google_proof,
}
_PINNED = tomllib.loads(Path(__file__).with_name("benchmarks.toml").read_text("utf-8"))
BENCHMARKS: Mapping[str, Benchmark] = {
    name: Benchmark({split: HubDataset(**file) for split, file in _PINNED[name].items()}, task)
    for name, task in _TASKS.items()
}


def _load_benchmark(name: str, split: str, *, limit: int | None, seed: int) -> Suite:
    """Loads a benchmark by its name in ``BENCHMARKS``. Raises: BadInput if it is not available, saying what to do."""
    benchmark = BENCHMARKS[name]
    source = benchmark.splits.get(split)
    if source is None:
        raise BadInput(f"{name} has the split {' and '.join(sorted(benchmark.splits))}, not {split!r}")
    table = _table(_download(name, source))
    order = list(range(len(table)))
    Random(seed).shuffle(order)  # noqa: S311 - a sample, not a secret
    tasks = []
    for number in order if limit is None else order[:limit]:
        try:
            task = benchmark.task(table[number], number)
            require_gradable(task)
        except (RowFault, BadInput) as fault:
            raise BadInput(f"{source.repository}, {source.path}, row {number}: {fault}") from fault
        tasks.append(task)
    return Suite(name, split, tuple(tasks), simulated=False)


def _download(name: str, source: HubDataset) -> Path:
    """Returns the file in the local cache, and downloads it if it is not there. Raises: BadInput."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    place = f"https://huggingface.co/datasets/{source.repository}"
    try:
        return Path(hf_hub_download(source.repository, source.path, repo_type="dataset", revision=source.revision))
    except GatedRepoError as error:
        raise BadInput(
            f"{name} is given only to those who accept its terms: do so at {place}, then set HF_TOKEN"
        ) from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, ConnectionError, TimeoutError) as error:
        raise BadInput(
            f"{name} is not in the local cache and the hub cannot be reached: load it once while online ({place}), "
            "or give the path of a .jsonl file"
        ) from error
    except (RepositoryNotFoundError, EntryNotFoundError) as error:
        raise BadInput(f"{name}: {place} no longer has {source.path} at {source.revision}") from error
    except (HfHubHTTPError, OSError) as error:
        raise BadInput(f"{name} cannot be downloaded from {place}: {str(error).splitlines()[0]}") from error


def _table(path: Path) -> Any:
    """Reads the rows of a file, by number. Raises: BadInput if it is damaged."""
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    kind = {".jsonl": "json", ".parquet": "parquet", ".csv": "csv"}[path.suffix]
    try:
        return load_dataset(kind, data_files=str(path), split="train")
    except (DatasetsError, OSError, ValueError) as error:
        raise BadInput(f"{path.name} cannot be read: {str(error).splitlines()[0]}") from error


# The rehearsal world: of any length, with families and difficulties in equal parts.

DEFAULT_LIMIT = 300
"""Default number of tasks: ten of each family and difficulty, as long as there are ten families."""

_SEEDS = 1_000_000
"""Number of question seeds that belong to one seed of a suite."""
_TRIES = 200
"""Number of seeds tried for one new question before a cell counts as used up: easy questions are limited in number."""


def _load_rehearsal(split: str, *, limit: int | None, seed: int) -> Suite:
    """Loads ``limit`` different questions (default 300), one of each family and difficulty in turn.

    A shorter suite of the same seed is the beginning of a longer one. Raises: BadInput.
    """
    part = next((known for known in REHEARSAL_SPLITS if known == split), None)
    if part is None:
        raise BadInput(f"the rehearsal suite has the splits {' and '.join(REHEARSAL_SPLITS)}, not {split!r}")
    wanted = DEFAULT_LIMIT if limit is None else limit
    order = Random(f"{split}/{seed}")  # noqa: S311 - a sample, not a secret
    cells: list[tuple[str, Difficulty]] = [(family, level) for level in DIFFICULTIES for family in FAMILIES]
    order.shuffle(cells)
    sources = [_questions(family, level, part, seed) for family, level in cells]
    tasks: list[Task] = []
    while len(tasks) < wanted:
        before = len(tasks)
        for source in sources:
            task = next(source, None)
            if task is not None:
                tasks.append(task)
        if len(tasks) == before:
            raise BadInput(f"the rehearsal world has {before} different questions for seed {seed}, not {wanted}")
    return Suite("rehearsal", part, tuple(tasks[:wanted]), simulated=True)


def _questions(family: str, level: Difficulty, split: Split, seed: int) -> Iterator[Task]:
    seen: set[str] = set()
    base = seed * _SEEDS
    number = 0
    while number < _SEEDS:
        for _ in range(_TRIES):
            made = generate(family, level, base + number, split=split)
            number += 1
            if made.question not in seen:
                break
        else:
            return
        seen.add(made.question)
        yield Task(
            task_id=f"rehearsal/{split}/{family}/{level}/{base + number - 1}",
            question=made.question,
            family=family,
            difficulty=level,
            reference=made.answer,
            grader="rehearsal",
            extra={"kind": made.solution.kind, "wording": made.wording},
        )


# Files.


SPLITS = ("test", "fit", "held-out")
_FIT_SHARE = 0.2


def _load_file(path: Path, split: str, *, limit: int | None, seed: int) -> Suite:
    """Loads the tasks of a file. The split ``test`` is the whole file.

    To fit a router and measure it on the same file, the split ``fit`` is a fixed fifth of the rows, and ``held-out`` is
    the rest. Raises: BadInput naming file, line and field.
    """
    if split not in SPLITS:
        raise BadInput(f"{path.name} has no split {split!r}: test is all of it, fit a fixed fifth, held-out the rest")
    tasks = [task for task in _tasks(path) if split == "test" or (split == "fit") == _is_for_fitting(task)]
    if not tasks:
        raise BadInput(f"{path} has no tasks in its split {split!r}")
    Random(seed).shuffle(tasks)  # noqa: S311 - a sample, not a secret
    return Suite(path.stem, split, tuple(tasks[:limit]), simulated=False)


def _tasks(path: Path) -> list[Task]:
    tasks: dict[str, Task] = {}
    known: Format | None = None
    for number, (line, row) in enumerate(_rows(path)):
        place = f"{path}, line {line}"
        if known is None:
            known = recognise(row)
            if known is None:
                formats = "; ".join(f"{one.name} has {', '.join(sorted(one.keys))}" for one in FORMATS)
                raise BadInput(f"{place}: no known format has the fields {', '.join(sorted(row))} ({formats})")
        missing = sorted(known.keys - set(row))
        if missing:
            raise BadInput(f"{place}: field {missing[0]!r} is missing, which the format {known.name} needs")
        try:
            task = known.task(row, number)
            require_gradable(task)
        except (RowFault, BadInput) as fault:
            raise BadInput(f"{place}: {fault}") from fault
        if task.task_id in tasks:
            raise BadInput(f"{place}: the task id {task.task_id!r} is used twice")
        tasks[task.task_id] = task
    if not tasks:
        raise BadInput(f"{path} is empty")
    return list(tasks.values())


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with open_regular(path) as file:
            content = file.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BadInput(f"{path} cannot be read: {why}") from error
    # splitlines would also split at other line ends in a text, such as U+2028, which JSON does not escape.
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path}, line {number}, is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise BadInput(f"{path}, line {number}, is not a JSON object")
        yield number, row


def _is_for_fitting(task: Task) -> bool:
    digest = sha256(task.task_id.encode()).digest()
    return int.from_bytes(digest[:4], "big") < _FIT_SHARE * 2**32


def load_suite(ref: str, split: str = "test", *, limit: int | None = None, seed: int = 0) -> Suite:
    """Loads at most ``limit`` tasks of ``ref``. The same arguments give the same tasks in the same order.

    Args:
        ref: ``rehearsal``, the path of a JSON Lines file, or a benchmark of ``BENCHMARKS``.
        split: ``test`` or ``train``; for a file ``test``, ``fit`` or ``held-out``.
    Raises: BadInput.
    """
    if limit is not None and limit < 1:
        raise BadInput(f"a suite needs at least one task, not {limit}")
    if ref == "rehearsal":
        return _load_rehearsal(split, limit=limit, seed=seed)
    if ref in BENCHMARKS:
        return _load_benchmark(ref, split, limit=limit, seed=seed)
    path = Path(ref)
    if path.suffix in (".jsonl", ".json") or path.is_file():
        return _load_file(path, split, limit=limit, seed=seed)
    raise BadInput(f"unknown suite {ref!r}; choose rehearsal, {', '.join(BENCHMARKS)}, or the path of a .jsonl file")
