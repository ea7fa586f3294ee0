"""Serves one GGUF model on a Unix socket with llama.cpp's server: the program of the child process of ``llama``.

It reads what to serve as one line of JSON from its standard input, writes ``ready`` once the model is loaded, and ends
when that input is closed, which happens however its parent ends. It imports nothing of ours.
"""

import ctypes
import fcntl
import json
import os
import select
import signal
import sys
import time
from typing import Any


def end_with_parent() -> None:
    """Makes the end of standard input end this process.

    Loading and answering may hold Python's lock for long, so no thread of Python can watch: the kernel's signal does.
    """
    library = ctypes.CDLL(None)
    library.signal(signal.SIGIO, ctypes.cast(library._exit, ctypes.c_void_p))
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([0], [], [], 0)[0]:
        os._exit(0)  # it was closed before


def params_of(asked: dict[str, Any]) -> Any:
    """Returns the parameters of llama.cpp's server: no port, no page, one answer at a time."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = asked["file"]
    params.model_alias = [asked["name"]]
    if asked["lora"] is not None:
        adapter = xllamacpp.CommonAdapterLoraInfo()
        adapter.path, adapter.scale = asked["lora"], 1.0
        params.lora_adapters = [adapter]
    params.hostnames = [asked["socket"]]
    params.ui = False
    params.cors_origins = "null"
    params.offline = True
    params.endpoint_metrics = False
    params.n_parallel = 1
    params.n_ctx = asked["context"]
    params.n_batch = params.n_ubatch = asked["batch"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = asked["threads"]
    params.cache_ram_mib = 0
    params.slot_save_path = asked["folder"]
    params.warmup = False
    # Flash attention rounds differently with each number of threads: the same plan would not come out again.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.verbosity = 2
    return params


LOG_S = 0.3
"""llama.cpp writes its log from a thread of its own, which a quick end would cut off: with it goes the reason."""


def main() -> None:
    asked = json.loads(sys.stdin.buffer.readline())
    end_with_parent()
    os.umask(0o077)
    import xllamacpp

    try:
        server = xllamacpp.Server(params_of(asked))
    except RuntimeError as error:
        time.sleep(LOG_S)
        print(f"the model was not loaded: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
    print("ready", flush=True)
    while server is not None:
        signal.pause()


if __name__ == "__main__":
    main()
