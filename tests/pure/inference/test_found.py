"""Models that other programs have on this machine are found under their owners' names, each once."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.inference import found as finding
from conductor_core.inference import llama
from conductor_core.inference.found import Found, cached_gguf, described, find_files
from tests.support.gguf_models import into_hub_cache, into_ollama, write_model, write_part


class Machine:
    def __init__(self, folder: Path) -> None:
        self.home, self.models, self.hub = folder / "home", folder / "data" / "models", folder / "hub"
        self.home.mkdir(parents=True)
        self.ollama = self.home / ".ollama" / "models"

    def look(self, **environment: str) -> Found:
        return find_files(self.models, self.hub, environment, self.home)

    def titles(self, **environment: str) -> list[str]:
        return [each.title for each in self.look(**environment).files]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def content(tmp_path: Path, name: str) -> bytes:
    return write_model(tmp_path / "made" / f"{name}.gguf", name=name).read_bytes()


def test_every_program_has_its_own_place_and_names(machine: Machine, tmp_path: Path) -> None:
    write_model(machine.models / "Mine.Q8_0.gguf", name="a")
    into_ollama(machine.ollama, "registry.ollama.ai/library/llama3.2/3b", content(tmp_path, "b"))
    into_ollama(machine.ollama, "registry.ollama.ai/someone/tuned/latest", content(tmp_path, "c"))
    into_ollama(machine.ollama, "hf.co/bartowski/Some-GGUF/Q4_K_M", content(tmp_path, "d"))
    write_model(machine.home / ".lmstudio" / "models" / "qwen" / "Qwen-GGUF" / "Qwen-Q4_K_M.gguf", name="e")
    into_hub_cache(
        machine.hub, "Qwen/Qwen2.5-0.5B-Instruct-GGUF", "qwen2.5-0.5b-instruct-q4_k_m.gguf", content(tmp_path, "f")
    )
    write_model(machine.home / ".cache" / "llama.cpp" / "ggml-org_gemma.gguf", name="g")
    assert machine.titles() == [
        "models: Mine.Q8_0",
        "ollama: hf.co/bartowski/Some-GGUF:Q4_K_M",
        "ollama: llama3.2:3b",
        "ollama: someone/tuned:latest",
        "lm studio: Qwen-Q4_K_M",
        "llama.cpp: ggml-org_gemma",
        "hub: Qwen/Qwen2.5-0.5B-Instruct-GGUF:q4_k_m",
    ]
    assert not any(each.fault for each in machine.look().files)


def test_what_people_set_is_looked_at(machine: Machine, tmp_path: Path) -> None:
    into_ollama(tmp_path / "o", "registry.ollama.ai/library/m/1b", content(tmp_path, "a"))
    write_model(tmp_path / "l" / "two.gguf", name="b")
    elsewhere = tmp_path / "studio"
    write_model(elsewhere / "models" / "x" / "y" / "three.gguf", name="c")
    write_model(tmp_path / "chosen" / "x" / "y" / "four.gguf", name="d")
    (elsewhere / "settings.json").write_text(json.dumps({"downloadsFolder": str(tmp_path / "chosen")}))
    (machine.home / ".lmstudio-home-pointer").write_text(f"{elsewhere}\n")
    assert machine.titles(OLLAMA_MODELS=str(tmp_path / "o"), LLAMA_CACHE=str(tmp_path / "l")) == [
        "ollama: m:1b",
        "lm studio: four",
        "lm studio: three",
        "llama.cpp: two",
    ]


def test_a_file_of_two_names_is_listed_once(machine: Machine, tmp_path: Path) -> None:
    blob = into_ollama(machine.ollama, "registry.ollama.ai/library/m/1b", content(tmp_path, "a"))
    into_ollama(machine.ollama, "registry.ollama.ai/library/m/latest", blob.read_bytes())
    linked = machine.home / ".lmstudio" / "models" / "a" / "b" / "m.gguf"
    linked.parent.mkdir(parents=True)
    linked.symlink_to(blob)
    os.link(blob, linked.with_name("hard.gguf"))
    assert machine.titles() == ["ollama: m:1b"]


def test_a_split_model_is_one_and_a_missing_part_is_named(machine: Machine) -> None:
    for model, numbers in (("whole", (1, 2)), ("half", (1,))):
        for number in numbers:
            write_part(machine.models / f"{model}-{number:05}-of-00002.gguf", number, 2)
    whole, half = sorted(machine.look().files, key=lambda each: not each.name.startswith("whole"))
    assert (whole.name, half.name) == ("whole", "half")
    assert whole.fault == ""
    assert whole.size_bytes == sum(each.stat().st_size for each in machine.models.glob("whole-*"))
    assert half.fault == "part 2 of 2 cannot be used: No such file or directory"


def test_the_parts_of_a_split_model_are_found_by_their_links(machine: Machine, tmp_path: Path) -> None:
    for number in (1, 2):
        name = f"big-Q4_K_M-{number:05}-of-00002.gguf"
        into_hub_cache(machine.hub, "a/big-GGUF", name, write_part(tmp_path / name, number, 2).read_bytes())
    [found] = machine.look().files
    assert (found.title, found.fault) == ("hub: a/big-GGUF:Q4_K_M", "")
    assert cached_gguf("a/big-GGUF:q4_k_m", machine.hub) == found.path
    assert llama.checked(llama.shared_llama(found.path).file).size_bytes == found.size_bytes


def test_projectors_are_left_out_adapters_are_known_and_embedders_say_so(machine: Machine) -> None:
    write_model(machine.models / "mmproj-model-f16.gguf", name="a")
    write_model(machine.models / "vision.gguf", architecture="clip", name="b")
    write_model(machine.models / "lora.gguf", kind="adapter", name="c")
    write_model(machine.models / "embed.gguf", architecture="qwen3", pooling=1, name="d")
    write_model(machine.models / "bert.gguf", architecture="nomic-bert", name="e")
    bert, embed, lora = machine.look().files
    assert lora.is_adapter
    assert not lora.fault
    assert "writes no text" in bert.fault
    assert "writes no text" in embed.fault


def test_a_file_that_cannot_be_used_says_why(machine: Machine) -> None:
    whole = write_model(machine.models / "cut.gguf")
    whole.write_bytes(whole.read_bytes()[:-100])
    (machine.models / "text.gguf").write_text("hello, this is not a model")
    os.mkfifo(machine.models / "pipe.gguf")
    (machine.models / "loop.gguf").symlink_to(machine.models / "loop.gguf")
    said = {each.name: each.fault for each in machine.look().files}
    assert "Download it again" in said.pop("cut")
    assert said == {"text": "not a GGUF file", "pipe": "not a regular file"}
    assert described(machine.models / "gone.gguf").fault == "the file is no longer there"


@pytest.mark.parametrize(
    "digest",
    [
        "sha256:../../../../etc/passwd",
        "sha256:" + "A" * 64,
        "sha256-" + "a" * 64,
        "/etc/passwd",
        "",
        "sha256:" + "a" * 63,
    ],
)
def test_a_manifest_names_a_digest_and_never_a_path(machine: Machine, tmp_path: Path, digest: str) -> None:
    into_ollama(machine.ollama, "registry.ollama.ai/library/m/1b", content(tmp_path, "a"), digest=digest)
    assert machine.titles() == []


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.sampled_from(["layers", "mediaType", "digest", "x"]), each),
    )
)
def test_any_manifest_is_read(tmp_path_factory: pytest.TempPathFactory, said: object) -> None:
    manifest = tmp_path_factory.getbasetemp() / "manifest"
    manifest.write_text(json.dumps(said))
    assert finding._model_digest(manifest) is None


def test_a_search_ends_whatever_the_folders_are(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links to folders above, folders in folders without end, more files than anybody lists."""
    machine.models.mkdir(parents=True)
    (machine.models / "up").symlink_to(machine.models)
    (machine.models / "root").symlink_to("/proc")
    deep = machine.models.joinpath(*["deeper"] * 40)
    deep.mkdir(parents=True)
    write_model(deep / "unseen.gguf")
    for number in range(5):
        write_model(machine.models / f"{number}.gguf")
    monkeypatch.setattr(finding, "_MOST_FILES", 3)
    found = machine.look()
    assert [each.name for each in found.files] == ["0", "1", "2"]
    assert not found.is_complete


def test_names_are_one_line_and_places_say_how_they_are(machine: Machine, tmp_path: Path) -> None:
    write_model(machine.models / "a\nb\x1b[31m<b>.gguf")
    denied = machine.home / ".lmstudio" / "models"
    denied.mkdir(parents=True)
    found = machine.look()
    assert found.files[0].title == "models: a b [31m<b>"
    states = {(each.owner, each.state) for each in found.places}
    assert {("models", "there"), ("ollama", "missing"), ("lm studio", "there")} <= states
    assert found.places[0].files == 1
