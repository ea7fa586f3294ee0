"""What the pages send to the browser holds none of fifty configured secrets, in whatever encoding somebody typed it."""

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from pages.components.app.session import Session
from tests.support.canaries import CANARIES, forms, found, variable
from tests.support.filled_run import filled_run

SHORT = [f"Before. {forms(key)}. After." for key in CANARIES.values()]


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in CANARIES.items():
        monkeypatch.setenv(variable(name), key)


def sent(app: AppTest) -> str:
    protos = [node.proto for node in app._tree if getattr(node, "proto", None) is not None]
    return "\n".join(each.SerializeToString().decode("utf-8", "ignore") for each in protos)


def test_no_page_is_sent_a_configured_secret(visit: Callable[..., AppTest], session: Session) -> None:
    for run_id in ("r", "other"):
        session.store.log.append_and_wait(*filled_run(run_id, SHORT, piece=997))
    session.store.search.catch_up()
    pages = {
        "run": {"run": "r"},
        "compare": {"a": "r", "b": "other"},
        "context": {"run": "r"},
        "history": {},
        "audit": {"q": "after"},
    }
    for page, query in pages.items():
        said = sent(visit(page, **query))
        assert found(said) == {}, page
        assert page == "run" or "Before. raw" in said, f"the page {page} shows what is no key"
    for view in ("ledger", "spending", "failures"):
        assert found(sent(visit("audit", view=view))) == {}, view
    record = sent(visit("audit", run="r"))
    assert "Before. raw" in record
    assert found(record) == {}
