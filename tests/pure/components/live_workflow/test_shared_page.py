"""The page that hands over a run: small, sealed, and made of the live view's own modules."""

import base64
import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conductor_core.run.redaction import Redactor
from pages.components.live_workflow.shared_page import ASSETS, bundle, bundle_of, shared_page
from tests.support.run_events import whole_run

ROOT = Path(__file__).parents[4]


def _page(answer: str = "42") -> str:
    return shared_page(whole_run("r", f"What is {answer}?"), {}, Redactor())


def test_only_its_own_scripts_run_and_nothing_is_fetched() -> None:
    check_that_it_is_sealed(_page("$x^2$"))


def check_that_it_is_sealed(page: str) -> None:
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    scripts = re.findall(r"<script(?: type=\"module\")?>(.*?)</script>", page, re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts}
    assert set(re.findall(r"'sha256-([^']*)'", policy)) == digests
    assert policy.startswith("default-src 'none'; ")
    assert "http" not in policy
    assert "connect-src" not in policy, "default-src forbids every connection"


def test_it_is_small_beside_the_texts_of_its_run() -> None:
    assert len(_page().encode()) < 1_200_000
    assert len(_page("$x^2$").encode()) < 2_000_000, "with KaTeX and its fonts"


def test_the_script_is_made_of_every_module_that_the_live_view_loads() -> None:
    text = bundle_of("shared.js")
    assert "class LiveWorkflow" in text
    assert "</script" not in text
    assert "import.meta" not in text
    assert not re.search(r"^(?:import|export)\b", text, re.MULTILINE)


def test_modules_in_a_form_that_cannot_be_joined_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages.components.live_workflow.shared_page.ASSETS", tmp_path)
    (tmp_path / "a.js").write_text('import { b } from "./b.js"\nexport const a = b\n')
    (tmp_path / "b.js").write_text('import { a } from "./a.js"\nexport const b = 1\n')
    with pytest.raises(ValueError, match=r"a\.js -> b\.js -> a\.js"):
        bundle("a.js", {})
    (tmp_path / "b.js").write_text("export let b = 1\n")
    with pytest.raises(ValueError, match=r"b\.js: this form cannot be joined: export let b = 1"):
        bundle("a.js", {})


def test_its_colours_are_those_of_the_inspector() -> None:
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())["theme"]
    light, dark = re.findall(r":root \{(.*?)\}", (ASSETS.parent / "shared.css").read_text(), re.DOTALL)
    for text, names in ((light, theme["light"]), (dark, theme["dark"])):
        for name in ("primaryColor", "backgroundColor", "secondaryBackgroundColor", "textColor", "borderColor"):
            variable = "--st-" + re.sub("([A-Z])", lambda found: f"-{found[1].lower()}", name)
            assert f"{variable}: {names[name]};" in text


def test_writing_it_loads_no_streamlit() -> None:
    code = (
        "import sys; import conductor_core.cli.export, pages.components.compare.view; "
        "sys.exit('streamlit' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
