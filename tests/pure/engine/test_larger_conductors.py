"""Which models of a machine are proposed as a Conductor in place of the shipped one."""

import pytest

from conductor_core.chat.messages import WorkerSpec
from conductor_core.conductors.catalogue import ConductorOption
from conductor_core.engine.models import larger_conductors, parameters_by_name


def option(ref: str, parameters: int, *, downloaded: bool = True, runnable: bool = True) -> ConductorOption:
    return ConductorOption(
        ref=ref,
        name=ref,
        parameters=parameters,
        size_bytes=1,
        memory_needed_bytes=1,
        memory_there_bytes=1,
        memory="RAM",
        downloaded=downloaded,
        runnable=runnable,
        reason="",
    )


def served(model: str) -> WorkerSpec:
    return WorkerSpec(
        name=model,
        provider="openai",
        model=model,
        description=f"{model} on this machine, served by Ollama",
        base_url="http://127.0.0.1:11434/v1",
    )


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("qwen2.5:7b", 7),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1.5),
        ("llama3.2:3b-instruct-q4_K_M", 3),
        ("mixtral-8x7b", 7),
        ("qwen2.5-coder:0.5b", 0.5),
        ("gemma-3-27b-it", 27),
        ("gpt-4.1-mini", 0),
        ("phi3:latest", 0),
        ("bert-base", 0),
    ],
)
def test_the_size_is_read_from_the_name(name: str, billions: float) -> None:
    assert parameters_by_name(name) == int(billions * 1e9)


def test_servers_come_first_and_the_largest_of_each_kind() -> None:
    options = [option("tiny", 3_300_000), option("a/3b", 3 * 10**9), option("a/7b", 7 * 10**9)]
    found = larger_conductors(options, [served("small:1b"), served("big:8b"), served("unknown:latest")])
    assert [each.ref for each in found] == [
        "http://127.0.0.1:11434/v1#big:8b",
        "http://127.0.0.1:11434/v1#small:1b",
        "a/7b",
        "a/3b",
    ]
    assert (found[0].name, found[0].where) == ("big:8b", "Ollama")


def test_what_would_have_to_be_downloaded_or_does_not_run_is_not_proposed() -> None:
    options = [
        option("a/absent", 7 * 10**9, downloaded=False),
        option("a/too-large", 70 * 10**9, runnable=False),
        option("a/worker", 494_032_768),
        option("tiny", 5 * 10**9),
    ]
    assert larger_conductors(options, [served("coder:0.5b")]) == ()
