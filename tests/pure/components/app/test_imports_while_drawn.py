"""Imports in threads while Streamlit draws a page, for which it changes sys.path."""

import runpy
import sys

import pytest
from streamlit.runtime.scriptrunner.exec_code import modified_sys_path

from pages.components.app.places import FRAME


def test_drawing_a_page_leaves_sys_path_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(FRAME.parent)])
    with modified_sys_path(str(FRAME)):
        assert str(FRAME.parent) in sys.path, "without the app Streamlit adds the folder and takes it out again"
    runpy.run_path("app.py")
    before = list(sys.path)
    with modified_sys_path(str(FRAME)):
        assert sys.path == before
    assert sys.path == before
