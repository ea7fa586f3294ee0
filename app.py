"""The inspector as one ASGI app: Streamlit's pages, our own routes, and the session that they share."""

import sys

import streamlit as st

from pages.components.app.places import FRAME
from pages.components.app.routes import MIDDLEWARE, ROUTES
from pages.components.app.session import lifespan
from pages.components.compare.routes import ROUTES as COMPARE_ROUTES
from pages.components.tour.first_screen import ROUTES as STORY_ROUTES

# While Streamlit draws a page it puts the script's folder into sys.path and takes it out again. An import in another
# thread that goes through sys.path just then passes over an entry, and finds nothing.
sys.path.append(str(FRAME.parent))

app = st.App(FRAME, routes=[*ROUTES, *COMPARE_ROUTES, *STORY_ROUTES], middleware=MIDDLEWARE, lifespan=lifespan)
