"""Models: every Conductor that this machine has or could have; to download, time, use and delete them."""

import streamlit as st

from conductor_core.engine import models as core
from conductor_core.errors import InspectorError
from pages.components.app.session import current
from pages.components.app.widgets import fault_box
from pages.components.models import installed
from pages.components.models.installed import gb, header, others, places, settled
from pages.components.run import settings
from pages.components.run.preflight import served
from pages.components.style.formats import inert

ASKED_FOR = "model"


def show() -> None:
    st.title("Models", anchor=False)
    settled()
    header()
    asked = str(st.query_params.get(ASKED_FOR, ""))[:300]
    found = list(core.machine_models(current().settings, served()))
    for ref in dict.fromkeys(filter(None, (settings.conductor(), asked))):
        if all(ref != each.ref for each in found):
            try:
                found.insert(0, core.machine_model(ref, current().settings))
            except InspectorError as error:
                fault_box(error)
    found.sort(key=lambda each: each.ref != asked)
    first = found[0]
    if first.ref == asked and first.download.state != "here" and not first.fault:
        size = f" It has {gb(first.size_bytes)}." if first.size_bytes else ""
        st.info(
            f"{inert(first.name)} is not on this machine yet, and no run downloads one by itself.{size} Download it, "
            "then press *Use this one*. The task that you typed stays.",
            icon=":material/download:",
        )
    installed.rows(installed.filtered(found), asked)
    places(found)
    others(found)
    installed.question(found)


show()
