"""The tools of a pool on the Workers page."""

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.chat.tools import OfferedTool
from pages.components.models.tools import CALLED, LISTED, Field, simple_fields
from pages.components.run import settings as run_settings
from tests.support.tool_pools import write_tool_pool

Visit = Callable[..., AppTest]


def pages_html(app: AppTest) -> str:
    return "".join(str(each.proto.body) for each in app.get("html"))


def finished(app: AppTest, key: str) -> AppTest:
    """Waits until the work that the page has a thread do is done."""
    work = app.session_state[key]
    (work[1] if isinstance(work, tuple) else work).wait()
    return app.run()


@pytest.fixture
def listed(visit: Visit, tmp_path: Path) -> AppTest:
    app = visit("workers", state={run_settings.POOL: str(write_tool_pool(tmp_path))})
    assert "tools-row" not in pages_html(app), "nothing is started before somebody asks"
    return finished(app.button("list-tools").click().run(), LISTED)


def number_of(app: AppTest, tool: str) -> int:
    found: list[OfferedTool] = app.session_state[LISTED][1].result.tools
    return [each.tool for each in found].index(tool)


def test_a_pool_without_tools_says_how_to_add_one(visit: Visit) -> None:
    app = visit("workers")
    assert any("`[[tools]]`" in each.value for each in app.caption)
    assert "list-tools" not in [each.key for each in app.button]


def test_it_shows_who_may_call_what_and_what_has_effects(listed: AppTest) -> None:
    assert not listed.exception
    shown = pages_html(listed)
    assert "critic may call it" in shown
    assert "critic may not call it" in shown
    assert "▲ effects" in shown
    assert "○ none" in shown
    assert "its program no-such-program is not on this machine" in shown


def test_a_tool_is_tried_and_its_result_is_shown(listed: AppTest) -> None:
    app = listed.button(f"try-{number_of(listed, 'echo')}").click().run()
    app = finished(app.button("tool-call").click().run(), CALLED)
    assert not app.exception
    assert app.code[-1].value == "{}"
    assert any("returned" in each.value for each in app.markdown)


def test_a_tool_with_effects_is_not_called_before_somebody_agrees(listed: AppTest) -> None:
    app = listed.button(f"try-{number_of(listed, 'die')}").click().run()
    assert app.button("tool-call").disabled
    app.checkbox("tool-agreed").check().run()
    assert not app.button("tool-call").disabled
    app = finished(app.button("tool-call").click().run(), CALLED)
    assert any("broke off" in each.value for each in app.markdown)
    assert "the disk is full" in app.code[-1].value


def test_arguments_have_fields_and_a_missing_one_is_named(listed: AppTest) -> None:
    app = listed.button(f"try-{number_of(listed, 'run')}").click().run()
    app.button("tool-call").click().run()
    assert any("missing: code" in each.value.replace("\\", "") for each in app.error)
    app.text_area("tool-python__run-0").input("print(6 * 7)").run()
    app = finished(app.button("tool-call").click().run(), CALLED)
    assert app.code[-1].value.strip() == "42"


def test_a_schema_of_simple_values_becomes_fields_and_any_other_a_box() -> None:
    schema = {
        "type": "object",
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "description": "Where"},
            "most": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "share": {"type": "number", "default": 0.5},
            "deep": {"type": "boolean", "default": True},
            "mode": {"enum": ["r", "w"], "default": "r"},
        },
    }
    assert simple_fields(schema) == (
        Field("path", "text", True, "Where"),
        Field("most", "whole number", False),
        Field("share", "number", False, default=0.5),
        Field("deep", "yes or no", False, default=True),
        Field("mode", "choice", False, options=("r", "w"), default="r"),
    )
    assert simple_fields({"type": "object"}) == ()
    for odd in ({"type": "array"}, {"type": ["string", "null"]}, {"enum": [1, 2]}, {"$ref": "#"}, True, {"anyOf": 3}):
        assert simple_fields({"properties": {"x": odd}}) is None
