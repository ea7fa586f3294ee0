"""Runs Python scripts one after another in one process, as ``python SCRIPT`` would: ``run_scripts.py SCRIPT...``.

It runs in another project's environment, so it imports nothing of ours. Its last line on stdout is a JSON list of what
each script printed. One process, because a framework takes seconds to import.
"""

import contextlib
import io
import json
import runpy
import sys

if __name__ == "__main__":
    printed = []
    for script in sys.argv[1:]:
        sys.argv = [script]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            runpy.run_path(script, run_name="__main__")
        printed.append(out.getvalue())
    print(json.dumps(printed))
