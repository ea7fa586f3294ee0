"""A run that was opened by a click is shown, though another thread set the address back meanwhile."""

from streamlit.testing.v1 import AppTest


def test_what_a_callback_wrote_outlives_an_address_that_was_set_back() -> None:
    def script() -> None:
        import streamlit as st

        from pages.components.app import places

        st.button("open", on_click=places.write, args=("run", "parent"))
        st.button("close", on_click=places.write, args=("run", None))
        # As another thread does that begins its next script, for a request from before the click.
        st.query_params["run"] = "child"
        st.text(f"shows {places.read('run')}")

    app = AppTest.from_function(script).run()
    assert app.text[0].value == "shows child"
    app.button[0].click().run()
    assert app.text[0].value == "shows parent"
    assert app.query_params["run"] == "parent"
    app.button[1].click().run()
    assert app.text[0].value == "shows None"
    app.run()
    assert app.text[0].value == "shows child", "it counts once"
