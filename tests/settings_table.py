"""The table of docs/settings.md, made from the Settings class: `python -m tests.settings_table > docs/settings.md`."""

from conductor_core.settings import Settings

HEAD = """# Settings

Each setting is an environment variable. Set it before the program starts; the inspector reads it once:

```sh
CONDUCTOR_MAX_STEPS=8 CONDUCTOR_SERVER_PORTS=11434,8000 conductor ui
export CONDUCTOR_DATA_FOLDER=/srv/conductor        # for every later command of this shell
```

A value that cannot be used stops the program, with a line that names the variable; a variable that it does not know is
ignored. The command line's options and the Run page's fields take precedence.

| variable | default | meaning |
|---|---|---|
"""
FOOT = """
The user's data folder is `~/.local/share/conductor-inspector` on Linux, and
`~/Library/Application Support/conductor-inspector` on macOS. `CONDUCTOR_DATABASE_URL` comes before `DATABASE_URL`.

Keys have variables of their own. A pool file names the variable of each worker's key. `CONDUCTOR_API_KEY` is the key of
a Conductor on a server (`URL#MODEL`). `HF_TOKEN` is for models and data on the hub that need it.
"""


_COMPUTED = {"data_folder": "the user's data folder", "conductor": "`small` where its model is, else `tiny`"}


def as_typed(default: object) -> str:
    """The default as a user would type it into the variable."""
    if default in (None, ()):
        return "unset"
    if isinstance(default, tuple):
        return f"`{','.join(map(str, default))}`"
    return f"`{str(default).lower()}`" if isinstance(default, bool) else f"`{default}`"


def table() -> str:
    """The whole page."""
    rows = []
    for name, field in Settings.model_fields.items():
        variable = "`DATABASE_URL`" if name == "database_url" else f"`CONDUCTOR_{name.upper()}`"
        default = _COMPUTED.get(name) or as_typed(field.default)
        rows.append(f"| {variable} | {default} | {field.description} |")
    return HEAD + "\n".join(rows) + "\n" + FOOT


if __name__ == "__main__":
    print(table(), end="")
