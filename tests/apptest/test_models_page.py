"""The Models page, and the ways that lead to it: nothing is downloaded behind anybody's back."""

from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest
from huggingface_hub import constants
from streamlit.testing.v1 import AppTest

from conductor_core.conductors.catalogue import open_conductor
from conductor_core.engine import models as core
from conductor_core.engine import offers
from conductor_core.engine.models import FoundServer
from conductor_core.engine.pools import read_specs
from conductor_core.errors import UnknownConductor
from conductor_core.inference import found
from conductor_core.inference.downloads import Download
from conductor_core.settings import Settings
from pages.components.app.session import Session
from pages.components.models import installed
from pages.components.models.installed import cells, parameters, seconds
from pages.components.run import preflight, settings
from tests.support.gguf_models import into_hub_cache, into_ollama, write_model
from tests.support.tiny_models import random_model

Visit = Callable[..., AppTest]
REF = "Qwen/Qwen2.5-1.5B-Instruct"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(core, "hub_answers", lambda: False)
    monkeypatch.setattr(core, "is_offline", lambda: False)
    for cached in (settings.conductor_options, preflight.asked_servers, installed._hub_asked):
        cached.clear()
    return folder


def drawn(app: AppTest) -> str:
    return unescape("".join(each.proto.body for each in app.get("html")))


def test_every_conductor_is_listed_with_what_it_needs_and_a_folder_is_a_way_without_a_network(visit: Visit) -> None:
    own = random_model(Settings().models_folder / "copied")
    (own / "README.md").write_text("---\nlicense: mit\n---\n")
    damaged = Settings().models_folder / "damaged"
    damaged.mkdir()
    (damaged / "config.json").write_text("{")
    app = visit("models")
    page = drawn(app)
    for words in (
        "tiny",
        REF,
        "copied",
        "1.5 billion",
        "3.1 GB",
        "apache-2.0",
        "qwen-research",
        "not timed",
        "no network",
    ):
        assert words in page, words
    assert "damaged/config.json cannot be read as JSON" in page
    assert str(Settings().models_folder) in "".join(each.value for each in app.markdown)
    assert [each.label for each in app.button].count("Download") == 6


def test_a_folder_that_is_no_model_is_not_offered_for_download(visit: Visit, tmp_path: Path) -> None:
    app = visit("models", model=str(tmp_path))
    assert "has no config.json: it is not a model folder" in drawn(app)
    assert not app.info


def test_a_model_that_is_chosen_on_the_run_page_but_not_here_leads_to_the_models_page(visit: Visit) -> None:
    app = visit("run")
    app.selectbox(settings.CONDUCTOR).set_value(REF).run()
    assert app.query_params["model"] == REF
    assert "is not on this machine yet, and no run downloads one" in app.info[0].value.replace("\\", "")
    assert drawn(app).index(f">{REF}<") < drawn(app).index(">tiny<"), "the one that was asked for comes first"
    app.switch_page("../../run.py").run()
    assert app.selectbox(settings.CONDUCTOR).value == "tiny", "what is not here is not chosen"


def test_a_run_with_a_kept_choice_that_is_gone_leads_there_too_and_does_not_begin(
    visit: Visit, session: Session
) -> None:
    app = visit("run", state={settings.CONDUCTOR: REF})
    app.text_area("task").set_value("What is the chemical symbol of tungsten?")
    app.button("run").click().run()
    assert app.query_params["model"] == REF
    assert not session.store.was_used()


def test_a_model_is_used_and_deleted_after_a_question(visit: Visit, cache: Path) -> None:
    snapshot = cache / "models--Qwen--Qwen2.5-0.5B-Instruct" / "snapshots" / "a"
    random_model(snapshot)
    app = visit("models", model="Qwen/Qwen2.5-0.5B-Instruct")
    app.button("use-model-0").click().run()
    assert app.session_state[settings.CONDUCTOR] == "Qwen/Qwen2.5-0.5B-Instruct"
    app.button("delete-model-0").click().run()
    assert snapshot.is_dir(), "nothing is deleted before the question is answered"
    app.button("delete-no").click().run()
    assert snapshot.is_dir()
    app.button("delete-model-0").click().run()
    app.button("delete-yes").click().run()
    assert not snapshot.exists()
    assert app.session_state[settings.CONDUCTOR] == "tiny"
    assert not app.exception


def test_a_servers_models_are_ready_and_hostile_names_do_nothing(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = "<img src=x onerror=alert(1)>"
    server = FoundServer("http://127.0.0.1:9/v1", "Ollama", (bad,))
    monkeypatch.setattr(preflight, "_found", lambda _settings: (server,))
    app = visit("models")
    rows = [each.proto.body for each in app.get("html")]
    assert any("&lt;img" in row and "✓ ready" in row for row in rows)
    assert not any("<img" in row for row in rows)
    app.text_input("other-model").set_value("![x](http://evil.example)").run()
    assert "![x](" not in "".join(each.value for each in app.error)
    assert app.error


def model(**said: object) -> core.MachineModel:
    return core.MachineModel(
        **{  # type: ignore[arg-type]
            "ref": "a/b", "name": "a/b", "where": "hub", "model": "a/b", "parameters": 10**9, "size_bytes": 2 * 10**9,
            "licence": "", "needs": (), "memory": None, "download": Download("a/b", "absent"), **said,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("download", "words"),
    [
        (Download("a/b", "running", 5 * 10**8, 2 * 10**9, 1e7), ("0.5 GB of 2.0 GB", "10.0 MB/s · 2 min left")),
        (Download("a/b", "running", 5 * 10**8, 2 * 10**9, 1e7), ('role="progressbar"', 'aria-valuenow="25"')),
        (Download("a/b", "running", 0, 0), ("0 kB of 2.0 GB", "↓ begins")),
        (Download("a/b", "running", 10**9, elsewhere=True), ("1.0 GB of 2.0 GB", "another program downloads it")),
        (Download("a/b", "waiting"), ("waits for its turn",)),
        (Download("a/b", "paused", 10**9), ("1.0 GB of 2.0 GB", "‖ paused")),
        (Download("a/b", "failed", reason="<b>why</b>"), ("✕ failed", "✕ &lt;b&gt;why&lt;/b&gt;", "nothing is here")),
        (Download("a/b", "failed", 10**9, reason="why"), ("1.0 GB of 2.0 GB", "✕ failed")),
        (Download("a/b", "absent"), ("↓ not here", "licence unknown")),
        (Download("a/b", "here"), ("✓ ready", "downloaded")),
    ],
    ids=lambda each: each.state if isinstance(each, Download) else "",
)  # fmt: skip
def test_each_state_of_a_download_has_its_words(download: Download, words: tuple[str, ...]) -> None:
    row = cells(model(download=download))
    assert [each for each in words if each not in row] == []
    assert row.count("data-name=") == 5, "a row has the same parts in every state"


def test_what_is_too_large_and_what_a_plan_takes_are_said() -> None:
    needs = (core.Need("bf16", 20 * 10**9, fits=False), core.Need("int4", 5 * 10**9, fits=True))
    memory = core.memory()
    row = cells(model(needs=needs, memory=memory, pace=core.Pace(0.01, 0.25)))
    assert '<span class="too-large">✕ bf16 20.0</span> · <span class="">int4 5.0</span> GB' in row
    assert "<b>about 38 s</b> bf16" in row
    assert "the first about 52 s" in row
    assert "✕ too large" in cells(model(needs=needs[:1], memory=memory))
    assert (seconds(0.4), seconds(99), seconds(300)) == ("under 1 s", "about 99 s", "about 5 min")
    assert (parameters(24_736), parameters(3_281_152)) == ("24,736", "3.3 million")
    assert installed.EVERY_S == 1.0


# Files of other programs.


def test_a_file_of_another_program_is_used_by_one_click(visit: Visit, cache: Path, tmp_path: Path) -> None:
    ollama = found.home_folder() / ".ollama" / "models"
    into_ollama(ollama, "registry.ollama.ai/library/llama3.2/3b", write_model(tmp_path / "a.gguf").read_bytes())
    into_hub_cache(cache, "Qwen/Some-GGUF", "Some-Q4_K_M.gguf", write_model(tmp_path / "b.gguf", name="b").read_bytes())
    app = visit("models")
    page = drawn(app)
    for words in (
        ">llama3.2:3b<",
        "Ollama · Q8_0",
        ">Qwen/Some-GGUF:Q4_K_M<",
        "Hugging Face · Q8_0",
        "estimate · first",
    ):
        assert words in page, words
    title = "ollama: llama3.2:3b"
    app.button("use-model-1").click().run()
    assert app.session_state[settings.CONDUCTOR] == title
    assert "✓ in use" in drawn(app)
    app.button("worker-model-2").click().run()
    app.button("worker-model-1").click().run()
    pool = Settings().pools_folder / f"{offers.FILES_POOL}.toml"
    assert app.session_state[settings.POOL] == str(pool)
    workers = read_specs(str(pool), Settings())
    assert [(each.name, each.provider) for each in workers] == [
        ("Some-GGUF:Q4_K_M", "gguf"),
        ("llama3.2:3b", "gguf"),
    ]
    assert workers[1].model == title
    assert open_conductor(title, Settings()).info.name == title
    assert settings.conductor_available(title)
    assert not app.exception


def test_a_file_that_vanished_since_is_told_and_not_used(visit: Visit) -> None:
    file = write_model(Settings().models_folder / "mine.gguf")
    app = visit("models")
    file.unlink()
    app.button("use-model-1").click().run()
    assert "models: mine: the file is no longer there" in app.error[0].value.replace("\\", "")
    assert settings.CONDUCTOR not in app.session_state or app.session_state[settings.CONDUCTOR] == "tiny"
    with pytest.raises(UnknownConductor, match="models: mine is no longer on this machine"):
        open_conductor("models: mine", Settings())


def test_names_and_faults_of_files_do_nothing(visit: Visit) -> None:
    models = Settings().models_folder
    write_model(models / "<img src=x onerror=alert(1)> [a](javascript:1).gguf", name="a")
    write_model(models / ("long " * 40 + ".gguf"), name="b")
    write_model(models / "\u202eevil \u05de.gguf", name="c")
    write_model(models / "lora.gguf", kind="adapter", name="d")
    (models / "none.gguf").write_text("<script>")
    app = visit("models")
    rows = "".join(each.proto.body for each in app.get("html"))
    assert "<img" not in rows
    assert "<script" not in rows
    assert "&lt;img src=x" in rows
    assert "\u202e" not in rows
    assert "Not a GGUF file" in rows
    assert "models: lora" in rows
    labels = [each.label for each in app.button]
    assert labels.count("As worker") == 3, "what cannot be used is not offered"
    assert not app.exception


def test_a_machine_without_models_says_where_was_looked_and_offers_the_base(visit: Visit) -> None:
    app = visit("models")
    page = drawn(app)
    assert "No model of Ollama, LM Studio, llama.cpp or the Hugging Face cache" in page
    for place in (Settings().models_folder, found.home_folder() / ".ollama" / "models", found.OLLAMA_SERVICE):
        assert str(place) in page
    assert "the base of small, from the package index" in page
    assert app.button("download-model-1").label == "Download"


def test_a_long_list_is_narrowed_by_words(visit: Visit) -> None:
    for number in range(8):
        write_model(Settings().models_folder / f"Model-{number}.gguf", name=str(number))
    app = visit("models")
    app.text_input("models-filter").set_value("model-3").run()
    page = drawn(app)
    assert ">Model-3<" in page
    assert ">Model-4<" not in page
    app.text_input("models-filter").set_value("no such").run()
    assert "No model has such a name" in "".join(each.value for each in app.caption)
