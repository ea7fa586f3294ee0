"""Loads the paper's seven benchmarks from the Hugging Face hub, each pinned to a revision.

Files are named one by one, so that no loading script of a repository ever runs. A downloaded file is read again without
a network. Licences and terms are those of the data's owners. Access to GPQA must be requested on its page.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from conductor_core.errors import BadInput
from conductor_core.evaluation.graders import require_gradable
from conductor_core.evaluation.suites import hub_rows, rows
from conductor_core.evaluation.suites.rows import Row, RowFault
from conductor_core.evaluation.tasks import Suite, Task


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
        hub_rows.general_reasoning,
    ),
    # Training uses the first release, as the paper does; the test uses the last part that was added.
    "livecodebench": Benchmark(
        {"test": HubDataset(*_LIVECODEBENCH, "test6.jsonl"), "train": HubDataset(*_LIVECODEBENCH, "test.jsonl")},
        hub_rows.contest_problem,
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
        hub_rows.library_function,
    ),
    "gpqa-diamond": Benchmark(
        {"test": HubDataset("Idavidrein/gpqa", "633f5ee89ab8ad4522a9f850766b73f62147ffdd", "gpqa_diamond.csv")},
        hub_rows.google_proof,
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
