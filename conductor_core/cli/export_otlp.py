"""``export --as otlp``: a run as a trace of OpenTelemetry, as its collectors and viewers read it."""

from collections.abc import Sequence

from conductor_core.cli.main import needs_extra
from conductor_core.run.redaction import Redactor, read_patterns
from conductor_core.settings import Settings
from storage import Store


def otlp_of(store: Store, run_id: str, redact: Sequence[str]) -> str:
    """Returns one request of OTLP/JSON. ``redact``: regular expressions of what is hidden in it; keys are in any case.

    Texts of people and models are left out, unless the settings ask for them.

    Raises: UnknownRun, RunUnreadable, StoreError; BadInput for what is no pattern, and without the extra ``otlp``.
    """
    needs_extra("otlp")
    from conductor_core.export.otel import (
        otlp_json,  # when used: the extra brings what it imports
        spans_of,
    )

    store.trace(run_id)  # raises what is wrong with the run
    events = Redactor(read_patterns(redact)).events([stored.event for stored in store.events(run_id)])
    return otlp_json(spans_of(events, contents=Settings().otlp_contents), at_utc=events[-1].at_utc)
