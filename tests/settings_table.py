"""The table of docs/settings.md, made from the Settings class: `python -m tests.settings_table > docs/settings.md`."""

from conductor_core.settings import Settings

HEAD = """# Settings

`python -m tests.settings_table` makes this page from `conductor_core/settings.py`, and a test compares the two.

The command line's options and the Run page's fields take precedence over these.

| variable | default | meaning |
|---|---|---|
"""
FOOT = """
The user's data folder is `~/.local/share/conductor-inspector` on Linux. `CONDUCTOR_DATABASE_URL` comes before
`DATABASE_URL`.

Keys have variables of their own. A pool file names the variable of each worker's key. `CONDUCTOR_API_KEY` is the key of
a Conductor on a server (`URL#MODEL`). `HF_TOKEN` is for models and data on the hub that need it.
"""


def table() -> str:
    """The whole page."""
    rows = []
    for name, field in Settings.model_fields.items():
        variable = "`DATABASE_URL`" if name == "database_url" else f"`CONDUCTOR_{name.upper()}`"
        default = "the user's data folder" if name == "data_folder" else f"`{field.default}`"
        rows.append(f"| {variable} | {default} | {field.description} |")
    return HEAD + "\n".join(rows) + "\n" + FOOT


if __name__ == "__main__":
    print(table(), end="")
