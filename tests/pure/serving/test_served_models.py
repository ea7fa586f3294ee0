"""Served models: what is always there, what a file may say, how each fault is told, and what effort changes."""

from pathlib import Path

import pytest

from conductor_core.chat.messages import Price
from conductor_core.errors import ModelsInvalid
from conductor_core.serving.reading import Effort
from conductor_core.serving.served_models import ServedModels
from conductor_core.settings import Settings

SETTINGS = Settings(max_steps=8, max_depth=2, max_tokens=5000)


def read(folder: Path, text: str) -> ServedModels:
    file = folder / "models.toml"
    file.write_text(text)
    return ServedModels.read(SETTINGS, file)


def faults_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(ModelsInvalid) as caught:
        read(folder, text)
    return list(caught.value.faults)


def limits_of(models: ServedModels, model_id: str, effort: Effort | None = None) -> tuple[object, ...]:
    model = models.get(model_id)
    assert model is not None
    limits = models.limits(model, effort)
    return limits.max_steps, limits.max_depth, limits.max_tokens, limits.max_usd


def test_two_models_are_always_there_unless_a_file_defines_them_anew(tmp_path: Path) -> None:
    models = ServedModels.read(SETTINGS, None)
    assert [model.id for model in models.all] == ["fugu", "fugu-ultra"]
    assert (limits_of(models, "fugu")[:2], limits_of(models, "fugu-ultra")[:2]) == ((2, 0), (5, 1))
    models = read(tmp_path, '[[model]]\nid = "fugu"\nmax_steps = 3\n[[model]]\nid = "mine"\naliases = ["fugu-ultra"]\n')
    assert [model.id for model in models.all] == ["fugu", "mine"]
    assert (limits_of(models, "fugu")[:2], limits_of(models, "fugu-ultra")[:2]) == ((3, 2), (8, 2))


def test_all_that_can_be_said_of_a_model(tmp_path: Path) -> None:
    models = read(
        tmp_path,
        '[[model]]\nid = "a"\naliases = ["claude-a"]\nconductor = "tiny"\npool = "rehearsal"\nmax_steps = 4\n'
        'max_depth = 0\nmax_tokens = 100\nmax_usd = 0.5\nmax_seconds = 20\nsummaries = false\ndescription = "Short"\n'
        'owned_by = "us"\nprice = { input = 1, output = 2.5 }\n',
    )
    model = models.get("claude-a")
    assert model is models.get("a") is not None
    assert model is not None
    assert (model.conductor, model.pool, model.summaries, model.owned_by) == ("tiny", "rehearsal", False, "us")
    assert model.price == Price(input=1, output=2.5)
    assert limits_of(models, "a") == (4, 0, 100, 0.5)


@pytest.mark.parametrize(
    ("effort", "steps_and_depth"),
    [(None, (3, 0)), ("minimal", (1, 0)), ("low", (1, 0)), ("medium", (3, 0)), ("high", (3, 0)), ("xhigh", (5, 1)),
     ("max", (5, 1))],
)  # fmt: skip
def test_effort_changes_the_steps_and_never_the_budget(
    tmp_path: Path, effort: Effort | None, steps_and_depth: tuple[int, int]
) -> None:
    models = read(tmp_path, '[[model]]\nid = "a"\nmax_steps = 3\nmax_depth = 0\nmax_usd = 0.5\nmax_tokens = 70\n')
    assert limits_of(models, "a", effort) == (*steps_and_depth, 70, 0.5)


def test_every_fault_is_told_with_its_place(tmp_path: Path) -> None:
    faults = faults_of(
        tmp_path,
        '[[model]]\nid = "a"\nmax_steps = 40\n[[model]]\nmax_seconds = "x"\nwhat = 1\n[[model]]\nid = "A"\n'
        'aliases = "x"\ndescription = "sk-hunter2hunter2hunter2"\n',
    )
    assert [fault.split(": ")[0] for fault in faults] == [
        "line 3, model[0].max_steps", "line 4, model[1].id", "line 5, model[1].max_seconds", "line 6, model[1].what",
        "line 8, model[2].id", "line 9, model[2].aliases", "line 10, model[2].description",
    ]  # fmt: skip
    assert not any("hunter2" in fault for fault in faults)
    assert faults[4].endswith('"A" is already the id of model[0]; ids are unique')


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[[model]]\nid = "a"\naliases = ["b"]\n[[model]]\nid = "b"\n',
            '"b" is an id, or an alias, of two models',
        ),
        ('[[model]]\nid = "a"\naliases = ["a"]\n', 'model: "a" is an id, or an alias, of two models'),
        ("", "no [[model]]"),
        ('model = "a"', "must be [[model]] tables"),
        ("[[model]", "not TOML"),
        ('[[model]]\nid = "a\\n"\n', "model[0].id: must be plain text on one line"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, told: str) -> None:
    (fault,) = faults_of(tmp_path, text)
    assert told in fault


def test_a_file_in_the_data_folder_is_read(tmp_path: Path) -> None:
    settings = Settings(data_folder=tmp_path)
    assert [model.id for model in ServedModels.read(settings, None).all] == ["fugu", "fugu-ultra"]
    (tmp_path / "served-models.toml").write_text('[[model]]\nid = "mine"\nmax_steps = 3\n')
    assert [model.id for model in ServedModels.read(settings, None).all] == ["fugu", "fugu-ultra", "mine"]
