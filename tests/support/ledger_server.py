"""A tool server on standard input and output whose tool ``write`` adds a line to a file: what happened, and how often.

Run as a program: ``ledger_server.py FILE``. Next to the file, ``hold-before`` and ``hold-after`` hold a call before or
after its line is written, for as long as they are there; ``arrived`` has a line for each call that came.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

TOOL = {"name": "write", "description": "Writes a line.", "inputSchema": {"type": "object"}}


def held(file: Path) -> None:
    while file.exists():
        time.sleep(0.01)


def main(ledger: Path) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message.get("method")
        answer: dict[str, Any] = {"error": {"code": -32601, "message": "Method not found"}}
        if method == "initialize":
            known = {"capabilities": {"tools": {}}, "serverInfo": {"name": "ledger", "version": "1"}}
            answer = {"result": {"protocolVersion": message["params"]["protocolVersion"], **known}}
        elif method == "tools/list":
            answer = {"result": {"tools": [TOOL]}}
        elif method == "tools/call":
            with ledger.with_name("arrived").open("a") as file:
                file.write("call\n")
            held(ledger.with_name("hold-before"))
            with ledger.open("a") as file:
                file.write(f"{message['params'].get('arguments', {}).get('text')}\n")
            held(ledger.with_name("hold-after"))
            answer = {"result": {"content": [{"type": "text", "text": "written"}]}}
        if number is not None:
            print(json.dumps({"jsonrpc": "2.0", "id": number, **answer}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
