from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.conductors.conductors_file import load_conductors_file
from conductor_core.engine import models
from conductor_core.engine.models import FoundServer
from conductor_core.engine.pools import read_specs
from conductor_core.errors import BadInput
from conductor_core.settings import Settings
from conductor_core.workers import discovery
from pages.components.models import workers
from pages.components.run import settings as run_settings

Visit = Callable[..., AppTest]
OLLAMA, LITELLM = "http://127.0.0.1:11434/v1", "http://127.0.0.1:4000/v1"
SERVERS = (FoundServer(OLLAMA, "Ollama", ("llama-3",)), FoundServer(LITELLM, "LiteLLM", needs_key=True))
(FOUND,) = models.ready_workers(SERVERS)


def test_the_rehearsal_pool_says_that_it_is_simulated(visit: Visit) -> None:
    app = visit("workers")
    assert any("These workers know the answers of a rehearsal world" in each.proto.body for each in app.get("html"))
    assert len(app.toggle) == 7


def test_a_worker_that_is_left_out_stays_so_on_the_run_page_and_back(visit: Visit) -> None:
    app = visit("workers")
    app.toggle("use:rehearsal:coder").set_value(False).run()
    app.switch_page("../../run.py").run()
    assert app.multiselect("excluded:rehearsal").value == ["coder"]
    assert "6 of 7 workers" in app.expander[0].label
    app.switch_page("../../workers.py").run()
    assert app.toggle("use:rehearsal:coder").value is False
    app.toggle("use:rehearsal:coder").set_value(True).run()
    app.switch_page("../../run.py").run()
    assert app.multiselect("excluded:rehearsal").value == []


def test_a_missing_key_is_named_by_its_variable(visit: Visit) -> None:
    app = visit("workers", state={run_settings.POOL: "paper"})
    assert any("OPENAI" in each.value and "missing" in each.value for each in app.markdown)


def test_the_pool_chosen_here_is_the_one_the_run_page_uses(visit: Visit) -> None:
    app = visit("workers")
    app.selectbox("workers-pool").set_value("paper").run()
    app.switch_page("../../run.py").run()
    assert app.selectbox(run_settings.POOL).value == "paper"
    assert "paper, 7 workers" in app.expander[0].label


def test_a_pool_file_that_cannot_be_used_is_shown_with_its_fault(visit: Visit) -> None:
    app = visit("workers", state={run_settings.POOL: "/no/such/pool.toml"})
    assert "pool.toml" in app.error[0].value.replace("\\", "")
    assert not app.toggle


def test_a_check_tells_what_it_found(visit: Visit) -> None:
    app = visit("workers")
    app.button("check-worker-planner").click().run()
    assert not app.exception
    assert sum(":green[" in each.value for each in app.markdown) == 1
    app.button("check-all").click().run()
    assert sum(":green[" in each.value for each in app.markdown) == 8, "the seven workers and the Conductor"


def test_workers_named_like_what_else_is_checked_are_rows_of_their_own(visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    row = '[[worker]]\nname = "{}"\nprovider = "openai"\nmodel = "m"\ndescription = "d"\n'
    file.write_text(row.format("conductor-0") + row.format("all"))
    app = visit("workers", state={run_settings.POOL: str(file)})
    assert not app.exception
    assert len(app.toggle) == 2


def test_servers_that_were_found_become_the_pool_with_one_click(
    visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "find_servers", lambda variables, settings: SERVERS)
    app = visit("workers")
    app.button("look").click().run()
    app.button("use-found").click().run()
    file = tmp_path / "data" / "pools" / "local-servers.toml"
    assert read_specs(str(file)) == (FOUND,)
    assert app.selectbox("workers-pool").value == str(file)
    assert [toggle.key for toggle in app.toggle] == [f"use:{file}:llama-3"]
    app.switch_page("../../run.py").run()
    assert "local" in app.expander[0].label
    assert "1 workers" not in app.expander[0].label


def test_hostile_text_of_a_pool_file_is_shown_and_does_nothing(visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(
        '[[worker]]\nname = "<img src=x>"\nprovider = "openai"\nmodel = "<script>1</script>"\n'
        'base_url = "http://127.0.0.1:9/v1"\ndescription = "<b>bold</b>"\n'
    )
    app = visit("workers", state={run_settings.POOL: str(file)})
    (row,) = (each.proto.body for each in app.get("html") if "&lt;img" in each.proto.body)
    assert "<img" not in row
    assert "<script" not in row
    assert "&lt;b&gt;bold" in row


def test_conductors_of_files_are_listed_with_price_key_and_health_and_one_is_taken(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UNSET_API_KEY", raising=False)
    folder = Settings().conductors_folder
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(
        '[[conductor]]\nname = "sharp"\nmodel = "<b>m</b>"\nbase_url = "http://127.0.0.1:9/v1"\n'
        "usd_per_mtok = { input = 2, output = 8 }\n"
        '[[conductor]]\nname = "locked"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
        'api_key_env = "UNSET_API_KEY"\n'
    )
    (folder / "odd.toml").write_text('[[conductor]]\nname = "tiny"\nmodel = "m"\n')
    run_settings.conductor_options.clear()
    app = visit("workers")
    rows = [each.proto.body for each in app.get("html") if '"cells workers"' in each.proto.body][-3:]
    assert ["tiny" in rows[0], "sharp" in rows[1], "locked" in rows[2]] == [True, True, True]
    assert "$2 in · $8 out" in rows[1]
    assert "<b>m" not in rows[1]
    assert "price unknown" in rows[2]
    assert any("UNSET_API_KEY: missing" in each.value.replace("\\", "") for each in app.markdown)
    [fault] = [each.value for each in app.warning]
    assert "is the name of the shipped Conductor" in fault.replace("\\", "")
    app.button("check-conductor-1").click().run()
    said = "".join(each.value for each in app.markdown).replace("\\", "")
    assert "refuses connections" in said
    app.button("use-conductor-1").click().run()
    assert app.session_state[run_settings.CONDUCTOR] == "sharp"
    run_settings.conductor_options.clear()


def test_a_found_model_becomes_the_conductor_with_one_click(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "find_servers", lambda variables, settings: SERVERS)
    app = visit("workers")
    app.button("look").click().run()
    app.button("use-as-conductor").click().run()
    app.switch_page("../../run.py").run()
    assert app.selectbox(run_settings.CONDUCTOR).value == f"{OLLAMA}#llama-3"


def test_a_server_that_wants_a_key_is_told_and_asked_with_the_variable_of_one(
    visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, str]] = []

    def find(variables: dict[str, str], settings: Settings) -> tuple[FoundServer, ...]:
        asked.append(dict(variables))
        if variables.get(LITELLM) != "LITELLM_API_KEY":
            return SERVERS
        return (FoundServer(LITELLM, "LiteLLM", ("gpt-x",), api_key_env="LITELLM_API_KEY"),)

    monkeypatch.setattr(workers, "find_servers", find)
    app = visit("workers")
    app.button("look").click().run()
    (told,) = [each.value for each in app.markdown if "needs a key" in each.value]
    assert "LiteLLM" in told
    app.text_input(f"variable-{LITELLM}").set_value("LITELLM_API_KEY")
    app.button(f"ask-{LITELLM}").click().run()
    assert asked[-1] == {LITELLM: "LITELLM_API_KEY"}
    assert not any("needs a key" in each.value for each in app.markdown)
    app.button("use-found").click().run()
    (spec,) = read_specs(str(tmp_path / "data" / "pools" / "local-servers.toml"))
    assert (spec.model, spec.api_key_env) == ("gpt-x", "LITELLM_API_KEY")
    app.button("use-as-conductor").click().run()
    (written,) = load_conductors_file(tmp_path / "data" / "conductors" / "local-servers.toml")
    assert (written.name, written.base_url, written.api_key_env) == ("gpt-x", LITELLM, "LITELLM_API_KEY")
    app.switch_page("../../run.py").run()
    assert app.selectbox(run_settings.CONDUCTOR).value == "gpt-x"


def test_a_variable_that_holds_no_key_is_not_sent(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "find_servers", lambda **_: pytest.fail("somebody was asked"))
    for variable, said in (("HOME", "does not look like the variable of a key"), ("NO_SUCH_API_KEY", "is not set")):
        with pytest.raises(BadInput, match=said):
            models.find_servers({LITELLM: variable}, Settings())


@pytest.mark.parametrize("page", ["run", "workers"])
def test_a_fault_that_names_what_somebody_gave_is_no_markdown(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, page: str
) -> None:
    monkeypatch.setenv("CONDUCTOR_POOL", "![x](http://evil.example/a.png).toml")
    visit: Callable[..., AppTest] = request.getfixturevalue("visit")  # opens the settings
    said = [error.value for error in visit(page).error]
    assert [each for each in said if "evil" in each]
    assert [each for each in said if "![x](" in each] == []
