"""The inspector as one ASGI app: Streamlit's pages, our own routes, and the session that they share."""

import streamlit as st

from pages.components.compare.routes import ROUTES as COMPARE_ROUTES
from pages.components.shell.places import FRAME
from pages.components.shell.routes import MIDDLEWARE, ROUTES
from pages.components.shell.runtime import lifespan

app = st.App(FRAME, routes=[*ROUTES, *COMPARE_ROUTES], middleware=MIDDLEWARE, lifespan=lifespan)
