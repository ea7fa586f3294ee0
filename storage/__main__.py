"""``python -m storage``: ``conductor log`` by the name that it had. Nothing is imported, because it lies above."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv.insert(1, "log")
    runpy.run_module("conductor_core", run_name="__main__")
