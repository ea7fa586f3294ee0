"""Conductors files: what may be written, and how each fault is told."""

import hashlib
from pathlib import Path

import pytest

from conductor_core.chat.messages import PlanRequest, Price
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.conductors.conductors_file import load_conductors_file
from conductor_core.errors import ConductorsInvalid, PromptOverflows, UnknownConductor
from conductor_core.settings import Settings
from tests.support.fakes import ScriptedWorker
from tests.support.model_files import parse_conductors

SERVER = '[[conductor]]\nname = "a"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
HERE = '[[conductor]]\nname = "a"\nmodel = "owner/model"\n'


def test_all_that_can_be_said_of_a_conductor() -> None:
    text = SERVER + (
        'api_key_env = "MY_KEY"\nusd_per_mtok = { input = 1, output = 2.5 }\nparams = { top_p = 0.5 }\n'
        'prompt = "short"\nconstrained = false\nmax_tokens = 300\ntimeout_s = 20\ncontext = 8192\n'
    )
    (spec,), faults = parse_conductors(text)
    assert faults == []
    assert spec.usd_per_mtok == Price(input=1, output=2.5)
    assert (spec.prompt, spec.constrained, spec.max_tokens, spec.timeout_s, spec.context) == (
        "short",
        False,
        300,
        20,
        8192,
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('api_key = "hunter2"', "line 5, conductor[0].api_key: a key does not belong in a conductors file"),
        (
            'api_key_env = "sk-hunter2hunter2"',
            "conductor[0].api_key_env: must be the name of an environment variable",
        ),
        ('api_key_env = "EDITOR"', "conductor[0].api_key_env: EDITOR does not look like the variable of a key"),
        ("usd_per_mtok = 3", "conductor[0].usd_per_mtok: must be a table"),
        ('prompt = "long"', 'conductor[0].prompt: "long" is not allowed; use "full", "short" or "roles"'),
        ('constrained = "no"', "conductor[0].constrained: must be true or false, not text"),
        ("max_tokens = 3", "conductor[0].max_tokens: must be a whole number of tokens, 16 to 1,000,000"),
        ("context = 1.5", "conductor[0].context: must be a whole number of tokens, 16 or more"),
        ("timeout_s = 0", "conductor[0].timeout_s: must be a number of seconds above 0"),
        ("params = { max_tokens = 9 }", "conductor[0].params: give max_tokens beside params"),
        ("params = { stream = false }", "conductor[0].params: stream is set by the program"),
        ("colour = 1", "line 5, conductor[0].colour: unknown key; known are name, model, base_url, lora, api_key_env"),
    ],
)
def test_a_wrong_field_of_a_server_is_named_with_its_line(line: str, told: str) -> None:
    _, [fault] = parse_conductors(f"{SERVER}{line}\n")
    assert told in fault
    assert fault.startswith("line 5, ")
    assert "hunter2" not in fault


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('api_key_env = "MY_KEY"', "conductor[0].api_key_env: a Conductor that runs here has none"),
        ("timeout_s = 9", "conductor[0].timeout_s: a Conductor that runs here has none"),
        ("params = { seed = 3 }", "conductor[0].params: seed is set by the program"),
        (
            "params = { mood = 3 }",
            "conductor[0].params: mood: unknown key; known are temperature, top_p, top_k",
        ),
        ("params = { temperature = 9 }", "conductor[0].params: temperature: must be a number, 0 to 4"),
        (
            "params = { top_k = 1.5 }",
            "params: top_k: must be a whole number, 0 to 1,000,000, not a fraction",
        ),
    ],
)
def test_a_wrong_field_of_a_model_that_runs_here(line: str, told: str) -> None:
    _, [fault] = parse_conductors(f"{HERE}{line}\n")
    assert told in fault


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tiny", "is the name of the shipped Conductor"),
        ("conductor", "is reserved for the Conductor itself"),
        ("a/b", "would be taken for a file, a hub id or an address"),
        ("x#y", "would be taken for a file, a hub id or an address"),
        ("mine.toml", "would be taken for a file, a hub id or an address"),
        ("3", "would be taken for a number"),
    ],
)
def test_names_that_mean_something_else_are_refused(name: str, told: str) -> None:
    _, [fault] = parse_conductors(f'[[conductor]]\nname = "{name}"\nmodel = "owner/model"\n')
    assert told in fault


def test_all_faults_of_all_conductors_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f'{SERVER}prompt = 1\n\n[[conductor]]\nname = "A"\n')
    with pytest.raises(ConductorsInvalid) as caught:
        load_conductors_file(file)
    assert [fault.partition(": ")[0] for fault in caught.value.faults] == [
        "line 5, conductor[0].prompt",
        "line 7, conductor[1].model",
        "line 8, conductor[1].name",
    ]


def test_a_relative_folder_is_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    file = tmp_path / "c.toml"
    file.write_text(
        '[[conductor]]\nname = "a"\nmodel = "weights"\n\n[[conductor]]\nname = "b"\nmodel = "owner/model"\n'
    )
    beside, hub = load_conductors_file(file)
    assert (beside.model, hub.model) == (str(tmp_path / "weights"), "owner/model")


async def test_a_prompt_beyond_the_context_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    settings = Settings(data_folder=tmp_path)
    settings.conductors_folder.mkdir()
    (settings.conductors_folder / "c.toml").write_text(f"{SERVER}context = 500\n")
    writer = open_conductor("a", settings)
    with pytest.raises(PromptOverflows, match=r"prompt takes about 1,\d+ tokens, and its context is 500"):
        await anext(aiter(writer.write(PlanRequest(task="x", agents=(ScriptedWorker("w").spec,)))))
    await writer.aclose()


def test_a_model_here_takes_what_its_file_says(tmp_path: Path) -> None:
    settings = Settings(data_folder=tmp_path)
    settings.conductors_folder.mkdir()
    tiny = Path("conductor_core/conductors/tiny").absolute()
    (settings.conductors_folder / "c.toml").write_text(
        f'[[conductor]]\nname = "mine"\nmodel = "{tiny}"\nconstrained = false\nprompt = "full"\n'
    )
    info = open_conductor("mine", settings).info
    assert (info.name, info.kind, info.model, info.constrained, info.seated) == ("mine", "local", "tiny", False, False)
    assert info.price == Price(input=0, output=0)


OWN = "Plan for a hospital's archive. Two readers for every figure.\n\n{examples}"


def own(tmp_path: Path, text: str | bytes, line: str = "") -> Settings:
    settings = Settings(data_folder=tmp_path)
    settings.conductors_folder.mkdir()
    (settings.conductors_folder / "house.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    (settings.conductors_folder / "c.toml").write_text(f'{SERVER}prompt_file = "house.txt"\n{line}')
    return settings


def test_a_prompt_of_ones_own_stands_in_place_of_ours_and_is_recorded_by_its_digest(tmp_path: Path) -> None:
    conductor = open_conductor("a", own(tmp_path, OWN))
    assert conductor.info.prompt_sha256 == hashlib.sha256(OWN.encode()).hexdigest()
    asked = PlanRequest(task="the task", agents=(ScriptedWorker("w").spec,), max_steps=3)
    system, user = conductor.messages(asked)
    assert system.text.startswith("Plan for a hospital's archive. Two readers for every figure.\n\nEXAMPLES")
    assert "You are a conductor" not in system.content
    assert system.content.count("HOW TO WRITE A WORKFLOW") == system.content.count("YOUR WORKERS") == 1
    assert system.text.endswith("A workflow has at most 3 steps.")
    assert user.content == "Task: the task"


def test_a_prompt_of_ones_own_says_where_our_parts_stand(tmp_path: Path) -> None:
    text = "{workers}\n--\n{format}\nLast: {question} and {advice}"
    conductor = open_conductor("a", own(tmp_path, text))
    worker = ScriptedWorker("w").spec.model_copy(update={"description": "writes {format}"})
    system, _ = conductor.messages(PlanRequest(task="t", agents=(worker,)))
    assert system.text.startswith("YOUR WORKERS\nModel 0: writes {format}\n"), "a description is no part of ours"
    assert system.content.count("HOW TO WRITE A WORKFLOW") == 1
    assert "Last: {question} and WHAT MAKES A GOOD WORKFLOW" in system.content


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        (" \n", "", "house.txt: it is empty"),
        (b"one\n\xff\n", "", "house.txt: line 2, byte 1: it is not UTF-8 text"),
        ("x" * 65_537, "", "house.txt: it has more than 65,536 bytes"),
        ("Use sk-proj-Abcdefghij0123456789Abcdefghij0123456789", "", "house.txt: it holds a key, which every run"),
        ("fine", 'prompt = "short"\n', "goes with the full prompt"),
    ],
)
def test_a_wrong_prompt_file_is_named_with_its_line(tmp_path: Path, text: str, line: str, told: str) -> None:
    settings = own(tmp_path, text, line)
    with pytest.raises(ConductorsInvalid) as caught:
        open_conductor("a", settings)
    (fault,) = caught.value.faults
    assert fault.startswith("line 5, conductor[0].prompt_file: ")
    assert told in fault


def test_a_prompt_file_that_is_not_there_is_a_fault_of_its_line() -> None:
    _, [fault] = parse_conductors(f'{SERVER}prompt_file = "nowhere.txt"\n')
    assert fault == "line 5, conductor[0].prompt_file: nowhere.txt: no such file"


def test_a_model_that_was_trained_on_the_short_prompt_takes_no_other_by_itself(tmp_path: Path) -> None:
    settings = own(tmp_path, OWN)
    tiny = Path("conductor_core/conductors/tiny").absolute()
    file = settings.conductors_folder / "c.toml"
    file.write_text(f'[[conductor]]\nname = "a"\nmodel = "{tiny}"\nprompt_file = "house.txt"\n')
    with pytest.raises(UnknownConductor, match="was trained on the short prompt only"):
        open_conductor("a", settings)
    file.write_text(file.read_text() + 'prompt = "full"\n')
    assert open_conductor("a", settings).info.prompt_sha256 is not None
