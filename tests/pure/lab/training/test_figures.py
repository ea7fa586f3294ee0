"""Figures of an iteration, by hand."""

import pytest

from conductor_core.lab.training.recorder import Judged, figures
from tests.support.fakes import workflow_of


def test_figures_of_an_iteration_are_means_over_valid_plans() -> None:
    one = workflow_of(("alpha", "x", ()))
    chain = workflow_of(("alpha", "x", ()), ("beta", "y", (0,)))
    found = figures(
        [
            Judged("easy", 1.0, one, 0.9),
            Judged("hard", 0.5, chain, 0.3),
            Judged("", 0.5, one, 0.0),
            Judged("hard", 0.0),
        ]
    )
    assert found["reward"] == 0.5
    assert found["format_rate"] == 0.75
    assert found["accuracy"] == pytest.approx(0.4)
    assert found["accuracy_by_difficulty"] == {"easy": 0.9, "hard": 0.3}
    assert found["steps"] == pytest.approx(4 / 3)
    assert found["agent_share"] == {"alpha": 0.75, "beta": 0.25}
    assert found["topology_share"] == pytest.approx({"one shot": 2 / 3, "chain": 1 / 3})
    assert figures([]) == {}
