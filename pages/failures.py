"""Failures: which requests failed, were limited, empty, refused, retried or corrected; over time, and one by one."""

import streamlit as st

from pages.components.app.search_index import catch_up, lag_note
from pages.components.app.session import current, viewed
from pages.components.app.widgets import fault_shown
from pages.components.failures import view
from storage.search.failures import hourly


def show() -> None:
    asked = view.read()
    st.title("Failures", anchor=False)
    with fault_shown():
        catch_up()
        hours = hourly(asked.filters)
        with current().store.search.catalogue(asked.filters, asked.narrowed) as catalogue:
            failed, requests = catalogue.totals()
            counts = catalogue.but(kind=None).counts()
            # What is chosen narrows the other choices, not its own.
            workers = [each.name for each in catalogue.but(agent=None).counts("worker")]
            models = [each.name for each in catalogue.but(served=None).counts("model")]
            buckets, rows = catalogue.trend(hours=hours), catalogue.requests(asked.before, view.PAGE + 1)
        view.bar(asked, workers, models)
        lag_note()
        if counts:
            view.summary(failed, requests, asked)
            view.kinds(counts, asked.narrowed.kind)
        if not rows:
            view.nothing(asked, requests)
            return
        view.trend(buckets, asked, hours=hours)
        view.requests(rows, asked)
        viewed(dict.fromkeys(row.run_id for row in rows[: view.PAGE]), "failures page")


show()
