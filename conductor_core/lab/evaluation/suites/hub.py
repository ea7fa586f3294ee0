"""Loads the paper's seven benchmarks from the Hugging Face hub, each pinned to a revision, and turns rows into tasks.

Files are named one by one, so that no loading script of a repository ever runs. A downloaded file is read again without
a network. Licences and terms are those of the data's owners. Access to GPQA must be requested on its page.
"""

import base64
import io
import json
import pickle
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from conductor_core.errors import BadInput
from conductor_core.grading import require_gradable
from conductor_core.grading.tasks import Suite, Task
from conductor_core.lab.evaluation.suites import rows
from conductor_core.lab.evaluation.suites.rows import Row, RowFault, choice_task, text

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


_MMLU = ("cais/mmlu", "c30699e8356da336a370243923dbaf21066bb9fe")
_LIVECODEBENCH = ("livecodebench/code_generation_lite", "0fe84c3912ea0c4d4a78037083943e8f0c4dd505")

BENCHMARKS: Mapping[str, Benchmark] = {
    # MATH-500 is a part of MATH's test set, so MATH's own training set serves for training.
    "math500": Benchmark(
        {
            "test": HubDataset("HuggingFaceH4/MATH-500", "ff5b20257d8185524591543f8ff5993951537bb8", "test.jsonl"),
            "train": HubDataset(
                "DigitalLearningGmbH/MATH-lighteval",
                "0530c78699ea5e8eb5530600900e1f328b48acad",
                "data/train-00000-of-00001.parquet",
            ),
        },
        rows.competition_math,
    ),
    "mmlu": Benchmark(
        {
            "test": HubDataset(*_MMLU, "all/test-00000-of-00001.parquet"),
            "train": HubDataset(*_MMLU, "all/validation-00000-of-00001.parquet"),
        },
        rows.multiple_choice,
    ),
    "rlpr": Benchmark(
        {
            "test": HubDataset(
                "openbmb/RLPR-Evaluation",
                "cd6b36bbecba006a8d25fedf634567ea37f9a512",
                "WebInstruct-verified-val_Avg2.parquet",
            ),
            "train": HubDataset(
                "openbmb/RLPR-Train-Dataset", "08fcfe3720fc3aafabd55ed44b020d1bd5a4aa42", "rlpr_train.parquet"
            ),
        },
        general_reasoning,
    ),
    # Training uses the first release, as the paper does; the test uses the last part that was added.
    "livecodebench": Benchmark(
        {"test": HubDataset(*_LIVECODEBENCH, "test6.jsonl"), "train": HubDataset(*_LIVECODEBENCH, "test.jsonl")},
        contest_problem,
    ),
    "aime25": Benchmark(
        {"test": HubDataset("math-ai/aime25", "563bb8404243c5f09de6ec262f2db674fe5bce9b", "test.jsonl")}, rows.aime
    ),
    "bigcodebench": Benchmark(
        {
            "test": HubDataset(
                "bigcode/bigcodebench", "b74c0d0bf70d2c0bc459be537895cca163007f1a", "data/v0.1.4-00000-of-00001.parquet"
            )
        },
        library_function,
    ),
    "gpqa-diamond": Benchmark(
        {"test": HubDataset("Idavidrein/gpqa", "633f5ee89ab8ad4522a9f850766b73f62147ffdd", "gpqa_diamond.csv")},
        google_proof,
    ),
}


def load(name: str, split: str, *, limit: int | None, seed: int) -> Suite:
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
