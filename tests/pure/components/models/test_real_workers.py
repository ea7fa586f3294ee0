"""What is said of downloads that failed."""

from dataclasses import replace

from conductor_core.engine.offers import SmallModel, small_models
from conductor_core.inference.downloads import Download
from conductor_core.settings import Settings
from pages.components.models.workers import failures


def failed(model: SmallModel, reason: str) -> SmallModel:
    return replace(model, download=Download(model.spec.model, "failed", reason=reason.format(model.spec.model)))


def test_a_reason_that_several_share_is_said_once_with_all_their_names() -> None:
    one, two, three = small_models(Settings())
    unreached = "{} is not here and the hub cannot be reached: connect this machine"
    names = [model.spec.model for model in (one, two, three)]
    assert failures([failed(one, unreached), failed(two, unreached), failed(three, unreached)]) == [
        f"{unreached.format(names[0])}. The same for {names[1]} and {names[2]}"
    ]
    full = "there is no room for {}"
    assert failures([failed(one, unreached), failed(two, full), three]) == [
        unreached.format(names[0]),
        full.format(names[1]),
    ]
