"""Scripts as text: what stands in them, and which plans get none. ``tests/loopback/exports`` runs them."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conductor_core.chat.messages import Message
from conductor_core.errors import BadInput
from conductor_core.export.formats import PLAN_FORMATS
from conductor_core.export.plan import Plan
from conductor_core.export.script import FRAMEWORKS, literal, plain_words, quoted, value
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from tests.pure.export.test_plan_forms import HOSTILE, hostile_workflows, plan, texts, worker

ROOT = Path(__file__).parents[3]
MORE_HOSTILE = ('"""', "'''", "<<run>>", "{TASK} %s \\", "\\\n", "\r\n\t\x00\x7f\u202e\ud800", "x" * 500, "a\n\n\nb ")
every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)


class _NoText(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("text" if isinstance(node.value, str) else node.value)


def shape(script: str) -> str:
    """The script's syntax tree without the text of its strings."""
    return ast.dump(_NoText().visit(ast.parse(script)))


def script_of(exported: Plan, framework: str = "langgraph") -> str:
    return FRAMEWORKS[framework].write(exported)


@given(text=st.text(max_size=300), indent=st.sampled_from([0, 4, 8]))
@example(text="".join(MORE_HOSTILE), indent=8)
@example(text="", indent=0)
def test_a_literal_is_the_text(text: str, indent: int) -> None:
    written = literal(text, indent)
    assert ast.literal_eval(written) == text
    assert ast.literal_eval(quoted(text)) == text
    assert all(character.isprintable() or character == "\n" for character in written)


def test_a_long_text_is_broken_into_lines_that_can_be_read() -> None:
    written = literal("word " * 100 + "\n" + "x" * 300, 8)
    assert max(map(len, written.splitlines())) <= 100
    assert written.splitlines()[1].startswith('            "word word')


def test_parameters_are_values() -> None:
    params = {"a": 0.5, 'b"': [1, None, True, "ü\u202e"], "c": {"d": {}}}
    assert ast.literal_eval(value(params)) == params


@every_framework
@given(workflow=hostile_workflows(), task=texts)
@example(
    workflow=Workflow(steps=tuple(Step(instruction=text, agent="a") for text in (*HOSTILE, *MORE_HOSTILE))), task='"""'
)
def test_what_models_and_people_wrote_is_data_in_a_script(framework: str, workflow: Workflow, task: str) -> None:
    steps = [
        step.model_copy(update={"agent": "a" if step.agent == CONDUCTOR_AGENT else step.agent})
        for step in workflow.steps
    ]
    hostile = plan(Workflow(steps=tuple(steps)), task)
    harmless = plan(Workflow(steps=tuple(step.model_copy(update={"instruction": "Do it."}) for step in steps)), "Why?")
    script = script_of(hostile, framework)
    assert shape(script) == shape(script_of(harmless, framework))
    tree = {
        target.id: node.value
        for node in ast.parse(script).body
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name)
    }
    assert isinstance(tree["TASK"], ast.IfExp)
    assert ast.literal_eval(tree["TASK"].orelse) == task
    assert isinstance(tree["STEPS"], ast.Tuple)
    found = [
        {keyword.arg: ast.literal_eval(keyword.value) for keyword in step.keywords}
        for step in tree["STEPS"].elts
        if isinstance(step, ast.Call)
    ]
    assert found == [
        {"agent": step.agent, "instruction": step.instruction, "reads": hostile.workflow.reads(index)}
        for index, step in enumerate(steps)
    ]


@every_framework
def test_hostile_names_are_data_in_a_script(framework: str) -> None:
    def named(name: str, source: str, model: str) -> str:
        spec = worker(name, model=model, params={name: name}, base_url="http://h/v1")
        return script_of(Plan("T", Workflow(steps=(Step(instruction="x", agent=name),)), (spec,), source), framework)

    bad = '"""+os.abort()#\'\n<<run>>\\'
    assert shape(named(bad, f"workflow file {bad}.json", bad)) == shape(named("a", "run 1", "m"))
    assert plain_words('a"""b\'\n#\\é') == "a___b_ ___"


@every_framework
def test_a_script_names_the_versions_that_our_tests_install(framework: str) -> None:
    files = [ROOT / "requirements-export.txt", ROOT / "requirements-export-crewai.txt"]
    installed = {line for file in files for line in file.read_text().splitlines() if line and not line.startswith("#")}
    requirements = FRAMEWORKS[framework].requirements
    assert set(requirements) <= installed
    script = script_of(plan(Workflow(steps=(Step(instruction="x", agent="a"),))), framework)
    assert all(requirement in script for requirement in requirements)
    assert "run 0f3a" in script


@every_framework
def test_a_key_is_named_and_never_held(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-Zq81bTtW0pLx7cVn2Rj5Ke9s")
    exported = Plan(
        "T", Workflow(steps=(Step(instruction="x", agent="k"),)), (worker("k", api_key_env="SOME_API_KEY"),), "r"
    )
    script = script_of(exported, framework)
    assert 'key_in("SOME_API_KEY")' in script
    assert "sk-" not in script


@every_framework
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"workers": (worker("a", provider="rehearsal"),)}, "step 0: worker a is simulated"),
        (
            {"workers": (worker("a", provider="anthropic"),)},
            "OpenAI-compatible endpoint is https://api.anthropic.com/v1",
        ),
        ({"workers": (worker("a", provider="local"),)}, "runs inside this program; serve its model"),
        ({"workers": (worker("a", pass_reasoning=True),)}, "set pass_reasoning = false"),
        ({"workers": (worker("b"),)}, "the pool has no worker 'a'; it has b"),
        (
            {"workers": (worker("a", api_key_env='X"""\nraise SystemExit\n"""'),)},
            "worker a: api_key_env must be the name",
        ),
        ({"workers": (worker("a", base_url="http://h/v1?key=1"),)}, "worker a: base_url must not have"),
        ({"workers": (worker("a", params={"top_p": float("inf")}),)}, "worker a: params must hold"),
        ({"imported": True}, "run 0f3a was imported"),
        ({"has_images": True}, "images came with this task"),
        ({"workflow": Workflow(steps=(Step(instruction="x", agent=CONDUCTOR_AGENT),))}, "step 0 asks the Conductor"),
    ],
)
def test_what_a_script_cannot_do_is_said(framework: str, change: dict[str, object], says: str) -> None:
    exported = plan(Workflow(steps=(Step(instruction="x", agent="a"),)))
    with pytest.raises(BadInput, match=r".") as error:
        FRAMEWORKS[framework].write(replace(exported, **change))  # type: ignore[arg-type]  # one of its fields
    assert says in str(error.value)


def test_only_workers_that_the_steps_name_are_in_a_script() -> None:
    exported = plan(Workflow(steps=(Step(instruction="x", agent="b"),)))
    unused = (worker("a", provider="rehearsal"), worker("b"))
    script = script_of(replace(exported, workers=unused))
    assert "model-b" in script
    assert "model-a" not in script


def test_without_a_task_the_script_asks_for_one() -> None:
    assert 'sys.exit("Give the task as an argument.")' in script_of(
        plan(Workflow(steps=(Step(instruction="x", agent="a"),)), "")
    )


def test_turns_before_and_a_told_task_are_in_the_script_where_the_run_had_them() -> None:
    exported = plan(Workflow(steps=(Step(instruction="x", agent="a"),)))
    assert "TURNS_BEFORE" not in script_of(exported)
    assert "Your part" not in script_of(exported)
    turns = (Message(role="user", content="Hi"),)
    assert 'if "{question}" in step.instruction:\n        messages += TURNS_BEFORE' in script_of(
        replace(exported, turns_before=turns)
    )
    told = script_of(replace(exported, turns_before=turns, give_question=True))
    assert "    messages += TURNS_BEFORE\n" in told
    assert "Your part" in told


def test_every_script_has_a_name_and_python_files() -> None:
    assert {name: PLAN_FORMATS[name].suffix for name in FRAMEWORKS} == dict.fromkeys(FRAMEWORKS, ".py")
