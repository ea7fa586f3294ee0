"""What README and model card say of the shipped Conductor is what its shipped evaluation says."""

import re
from pathlib import Path

import pytest

from conductor_core.conductors.catalogue import TINY_FOLDER
from conductor_core.lab.records import SHIPPED
from conductor_core.lab.records.evaluation import Result, read_record

ROOT = Path(__file__).resolve().parents[4]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIGURES = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
CARD = (TINY_FOLDER / "MODEL_CARD.md").read_text(encoding="utf-8")
LITERATURE = ("router-dc", "mas-router", "smoothie", "smoothie-dependent")


def shipped() -> dict[str, Result]:
    summary = read_record(SHIPPED / "evaluation" / "rehearsal-test").summary
    assert summary is not None
    return {row.orchestrator: row for row in summary.results}


ROWS = shipped()


def figure(text: str, before: str) -> float:
    """The first number after ``before``, which stands in ``text`` once at least."""
    found = re.search(re.escape(before) + r"\s*(\d+(?:,\d{3})*(?:\.\d+)?)", " ".join(text.split()))
    assert found is not None, f"{before!r} is followed by no number"
    return float(found[1].replace(",", ""))


def points(*names: str) -> float:
    """The best score of the orchestrators ``names``."""
    return round(100 * max(ROWS[name].score for name in names), 1)


SINGLE = tuple(name for name in ROWS if name.startswith("single:"))


@pytest.mark.parametrize(
    ("text", "before", "says"),
    [
        (README, "best single worker", points(*SINGLE)),
        (FIGURES, "best single worker", points(*SINGLE)),
        (README, "Mixture-of-Agents", points("moa")),
        (FIGURES, "Mixture-of-Agents", points("moa")),
        (README, "best learned router of the literature", points(*LITERATURE)),
        (FIGURES, "best learned router of the literature", points(*LITERATURE)),
        (README, "shipped weights", points("conductor")),
        (FIGURES, "shipped weights", points("conductor")),
        (README, "with recursion, as by default,", points("recursion")),
        (FIGURES, "with recursion, as by default,", points("recursion")),
        (CARD, "wordings never trained on (300, simulated workers):", points("conductor")),
        (CARD, "best single worker", points(*SINGLE)),
        (CARD, "Mixture-of-Agents", points("moa")),
        (CARD, "the best learned router", points(*LITERATURE)),
        (CARD, "right with", round(ROWS["conductor"].tokens_per_task)),
        (CARD, "With recursion offered, as the app does by default:", points("recursion")),
    ],
)
def test_a_figure_is_that_of_the_shipped_record(text: str, before: str, says: float) -> None:
    assert figure(text, before) == says


def test_the_mean_over_seeds_is_that_of_the_three_in_the_experiments() -> None:
    experiments = (ROOT / "docs" / "research" / "experiments.md").read_text(encoding="utf-8")
    section = experiments[experiments.index("**What ships**") :]
    of_seeds = [
        float(score) for score in re.findall(r"^\| Conductor, seed \d[^|]*\| (\d+\.\d) \|", section, re.MULTILINE)
    ]
    assert len(of_seeds) == 3
    assert figure(README, "mean of three training seeds") == figure(FIGURES, "mean of three training seeds")
    assert figure(README, "mean of three training seeds") == round(sum(of_seeds) / 3, 1)
    assert of_seeds[0] == points("conductor"), "seed 0 is shipped"
