"""Plans as lists, JSON, Mermaid and SVG."""

import json
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conductor_core.chat.messages import WorkerSpec
from conductor_core.export.formats import PLAN_FORMATS, escaped
from conductor_core.export.plan import Plan
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from conductor_core.workflow.parser import parse_workflow_file
from conductor_core.workflow.validation import validate
from tests.support.workflows import workflows

HOSTILE = (
    '"]\n  evil --> s0\n  click s0 call alert()',
    "<img src=x onerror=alert(1)> <script>alert(1)</script> </text></svg>",
    "%%{init: {'securityLevel': 'loose'}}%% #quot; #60;script#62; `**bold**` :::cls",
    '"]\nmodel_id = [9]\nsubtasks = ["other"]\naccess_list = [[]]',
    'a\u202eb\x9b31m\x00\x1b[2J\ud800 \\" \\\\ \\frac{a}{b} {question} \u2028',
    "]]> &amp; &lt; '''\"\"\" {% raw %} ${x} \\u0022",
    "漢字かな交じりの指示。" * 30,
)


def worker(name: str, **fields: object) -> WorkerSpec:
    return WorkerSpec.model_validate({"name": name, "provider": "openai", "model": f"model-{name}"} | fields)


def plan(workflow: Workflow, task: str = "Why?", names: tuple[str, ...] = ("a", "b", "c")) -> Plan:
    return Plan(task, workflow, tuple(map(worker, names)), "run 0f3a")


def read_back(text: str, exported: Plan) -> tuple[Workflow | None, str | None]:
    parsed = parse_workflow_file(text)
    checked = validate(
        parsed, exported.agents, max_steps=32, allow_recursion=True, allow_stop=False, task=exported.task
    )
    assert not checked.faults, checked.faults
    return checked.workflow, parsed.task


texts = st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=60)).filter(lambda text: text.strip() != "")


@st.composite
def hostile_workflows(draw: st.DrawFn) -> Workflow:
    drawn = draw(workflows())
    agents = st.sampled_from(["a", "b", "c", CONDUCTOR_AGENT])
    return Workflow(
        steps=tuple(step.model_copy(update={"instruction": draw(texts), "agent": draw(agents)}) for step in drawn.steps)
    )


def normal(workflow: Workflow) -> list[tuple[str, str, object]]:
    """Without what a text cannot keep: half characters, and other line ends than ours."""
    return [
        (re.sub("[\ud800-\udfff]", "\ufffd", step.instruction), step.agent, step.access_list) for step in workflow.steps
    ]


@given(workflow=hostile_workflows(), task=texts)
@example(workflow=Workflow(steps=tuple(Step(instruction=text, agent="a") for text in HOSTILE)), task=HOSTILE[3])
def test_lists_and_json_say_the_same_workflow_when_they_are_read_again(workflow: Workflow, task: str) -> None:
    exported = plan(workflow, task)
    for form in ("lists", "json"):
        text = PLAN_FORMATS[form].write(exported)
        found, _ = read_back(text, exported)
        assert found is not None
        assert normal(found) == normal(workflow), form
        assert not re.search("[\x7f-\x9f\u202a-\u202e\x1b]", text), "a terminal would obey it"


def test_the_keys_of_the_published_proof_of_concept_are_read_as_well() -> None:
    exported = plan(
        Workflow(steps=(Step(instruction="one", agent="a"), Step(instruction="two", agent="b", access_list="all")))
    )
    text = PLAN_FORMATS["json"].write(exported)
    published = json.loads(text)
    for step in published["steps"]:
        step["assigned_agent"] = step.pop("agent")
    assert read_back(text, exported) == read_back(json.dumps(published), exported) == (exported.workflow, "Why?")


@given(workflow=hostile_workflows())
@example(workflow=Workflow(steps=tuple(Step(instruction=text, agent="a") for text in HOSTILE)))
def test_hostile_instructions_stay_text_in_mermaid(workflow: Workflow) -> None:
    lines = PLAN_FORMATS["mermaid"].write(plan(workflow)).splitlines()
    assert lines[0] == "flowchart LR"
    node = re.compile(r'  s\d+\["(?:[\w .,:!?()\'+=*/-]|#\d+;|<br/>)*"\]')
    edge, style = re.compile(r"  s\d+ --> s\d+"), re.compile(r"  (?:classDef agent\d .*|class s[s\d,]+ agent\d)")
    nodes = [line for line in lines[1:] if node.fullmatch(line)]
    edges = [line for line in lines[1:] if edge.fullmatch(line)]
    assert len(nodes) == len(workflow.steps)
    assert edges == [f"  s{read} --> s{index}" for index, reads in enumerate(workflow.all_reads) for read in reads]
    assert all(style.fullmatch(line) for line in lines[1:] if line not in nodes and line not in edges)


def test_mermaid_keeps_letters_of_any_script() -> None:
    assert escaped("Größe 漢字, ok?") == "Größe 漢字, ok?"
    assert escaped('"<b>_#;`') == "#34;#60;b#62;#95;#35;#59;#96;"


@given(workflow=hostile_workflows())
@example(workflow=Workflow(steps=tuple(Step(instruction=text, agent="a") for text in HOSTILE)))
def test_hostile_instructions_stay_text_in_a_picture(workflow: Workflow) -> None:
    root = ET.fromstring(PLAN_FORMATS["svg"].write(plan(workflow)))
    kinds = {element.tag.removeprefix("{http://www.w3.org/2000/svg}") for element in root.iter()}
    assert kinds <= {"svg", "title", "defs", "marker", "path", "clipPath", "rect", "circle", "g", "text"}
    named = {name for element in root.iter() for name in element.attrib}
    assert not {name for name in named if name.startswith("on") or "href" in name}
    cards = root.findall("{http://www.w3.org/2000/svg}g")
    assert len(cards) == len(workflow.steps)


def test_a_picture_says_that_workers_are_simulated() -> None:
    exported = Plan(
        "T", Workflow(steps=(Step(instruction="x", agent="s"),)), (worker("s", provider="rehearsal"),), "run 1"
    )
    assert "simulated" in PLAN_FORMATS["svg"].write(exported)
    assert "(simulated)" in PLAN_FORMATS["mermaid"].write(exported).replace("#40;", "(").replace("#41;", ")")


def test_inner_rounds_are_in_the_pictures() -> None:
    outer = Workflow(
        steps=(Step(instruction="x", agent="a"), Step(instruction="again", agent=CONDUCTOR_AGENT, access_list=(0,)))
    )
    inner = Workflow(steps=(Step(instruction="deep", agent="b"),))
    exported = Plan("T", outer, (worker("a"), worker("b")), "run 1", inner=(((1,), inner),))
    assert 's1x0["1.0 - b<br/>deep"]' in PLAN_FORMATS["mermaid"].write(exported)
    drawn = PLAN_FORMATS["svg"].write(exported)
    assert "1.0 · b" in drawn
    assert "The plan that step 1 asked for" in drawn


@pytest.mark.parametrize("form", list(PLAN_FORMATS))
def test_an_export_is_the_same_each_time(form: str) -> None:
    workflow = Workflow(
        steps=(Step(instruction="one {question}", agent="a"), Step(instruction="two", agent="b", access_list="all"))
    )
    if PLAN_FORMATS[form].suffix != ".py":
        assert PLAN_FORMATS[form].write(plan(workflow)) == PLAN_FORMATS[form].write(plan(workflow))
