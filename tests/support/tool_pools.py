"""A pool file with the tool server that misbehaves, and the sandbox."""

import sys
from pathlib import Path

PLAIN = Path(__file__).with_name("plain_tool_server.py")


def write_tool_pool(folder: Path) -> Path:
    """Writes a pool of two workers: ``coder`` may call all of ``plain`` and the sandbox, ``critic`` its tool echo."""
    file = folder / "tools-pool.toml"
    file.write_text(
        f"""
[[worker]]
name = "coder"
provider = "openai"
model = "m"
tools = ["plain", "python"]

[[worker]]
name = "critic"
provider = "openai"
model = "m"
tools = ["plain.echo"]

[[tools]]
name = "plain"
command = ["{sys.executable}", "{PLAIN}"]
only = ["echo", "die", "image", "changes"]

[[tools]]
name = "gone"
command = ["no-such-program"]
"""
    )
    return file
