"""The demo that needs no installation: `make demo` runs the last example and writes it as docs/demo.html.

The shipped Conductor plans and the simulated workers answer, at a pace that can be read. The page is the file that
*Share* and `conductor export` write.
"""

import sys
import tempfile
from pathlib import Path

from conductor_core.engine.host import EngineHost
from conductor_core.rehearsal import EXAMPLES
from conductor_core.run.actor import THE_PROGRAM
from conductor_core.run.redaction import Redactor
from conductor_core.run.request import RunRequest
from conductor_core.settings import Settings
from pages.components.live_workflow.shared_page import page_of_run
from storage import open_store

PAGE = Path(__file__).parents[1] / "docs" / "demo.html"
TOKENS_PER_S = 45


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_folder=Path(folder), rehearsal_tokens_per_s=TOKENS_PER_S, delta_interval_ms=80)
        store = open_store(settings.resolved_database_url)
        host = EngineHost(store.log, settings, store)
        try:
            request = RunRequest(task=EXAMPLES[-1].task, conductor="tiny", actor=THE_PROGRAM, door=None)
            trace = host.wait(host.start(request), 300)
            if trace.status != "completed":
                print(f"error: the run ended as {trace.status}: {trace.error}", file=sys.stderr)
                return 1
            PAGE.write_text(page_of_run(store, trace.run_id, Redactor()), encoding="utf-8", newline="\n")
        finally:
            host.close()
            store.close()
    print(f"wrote {PAGE}: {PAGE.stat().st_size / 1e6:.2f} MB, {len(trace.steps)} steps, answer {trace.answer!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
