"""Says, on the page and in the terminal, what a person can do about a fault, by the code that the run records.

The codes are the names of the errors (``errors``), and ``AnswerCut`` and the like for incomplete answers.
"""

from collections.abc import Mapping
from types import MappingProxyType

OTHERWISE = "Edit the plan or re-run: finished steps are reused."
_REUSED = "finished steps are reused"
_ASK_OTHERWISE = f"Ask in other words, or give the step to another worker under Edit plan: {_REUSED}."

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "WorkerUnreachable": f"Check that the server runs and its address in the pool file, then re-run: {_REUSED}.",
        "WorkerCertificate": "Check the https address in the pool file. For a certificate of your own, name its "
        "authority in SSL_CERT_FILE before starting the program.",
        "WorkerTimedOut": "Raise timeout_s of this worker in the pool file, or give the step to a faster one.",
        "WorkerRateLimited": f"Wait a moment and re-run, or lower max_concurrency of this worker: {_REUSED}.",
        "WorkerUnpaid": f"Add credit to the provider's account or choose another worker, then re-run: {_REUSED}.",
        "WorkerFailed": "The provider reported a fault of its own. Re-run later, or give the step to another worker.",
        "WorkerLoading": f"The server was still loading its model. Re-run when it has: {_REUSED}.",
        "WorkerStreamCut": f"The answer broke off; what arrived is kept. Re-run: {_REUSED}.",
        "WorkerKeyRefused": "Check the key in the environment variable that the pool file names: the Workers page "
        "shows which are set.",
        "WorkerModelUnknown": "Check the worker's model and base_url in the pool file. A local model must be on "
        "this machine: the Models page downloads it.",
        "WorkerContextOverflow": "Let the step read fewer steps, shorten its instruction, or give it to a worker with "
        "a longer context, under Edit plan.",
        "WorkerFiltered": _ASK_OTHERWISE,
        "WorkerRefused": "The server does not accept this request: check the worker's model, base_url and params in "
        "the pool file.",
        "WorkerOutputTooLarge": "Ask for a shorter answer in the instruction, or raise the worker's max_output_bytes.",
        "AnswerRefused": _ASK_OTHERWISE,
        "AnswerFiltered": _ASK_OTHERWISE,
        "AnswerCut": "Raise max_tokens of this worker in the pool file, or ask for a shorter answer.",
        "AnswerEmpty": "Ask again, or give the step to another worker under Edit plan. A model that thinks may need a "
        "higher max_tokens.",
        "ConductorError": "Choose another Conductor, or look into the program's log.",
        "ConductorUnavailable": "Choose another Conductor, or check that its files or its server are there.",
        "ConductorCertificate": "Check the Conductor's https address. For a certificate of your own, name its "
        "authority in SSL_CERT_FILE before starting the program.",
        "ConductorTimedOut": "The Conductor's server is slow: run again, or choose a smaller Conductor.",
        "ConductorStreamCut": "The plan broke off, each time: run again, or choose another Conductor.",
        "ConductorRateLimited": "Wait a moment and run again, or choose another Conductor.",
        "ConductorUnpaid": "Add credit to the provider's account, or choose another Conductor.",
        "ConductorFailed": "The Conductor's server reported a fault of its own: run again later, or choose another.",
        "ConductorLoading": "The Conductor's server was still loading its model: run again when it has.",
        "ConductorKeyRefused": "Check the Conductor's key in its environment variable, then run again.",
        "ConductorModelUnknown": "Check the Conductor's model name and address: its server does not have this one.",
        "PromptOverflows": "Shorten the task, leave out some workers, or choose a Conductor with a longer context.",
        "PlanRejected": "Run again, choose another Conductor, or give a plan of your own in the terminal: conductor "
        "run TASK --workflow FILE.",
        "NothingToReturn": "Give the step that asks the Conductor an access list, under Edit plan.",
        "LimitReached": f"Raise the limit under Limits and re-run: {_REUSED}.",
        "StoreError": "Look into the program's log, then start it again: the run can be resumed.",
        "StoreFull": "Free some space on the disk that holds the database, then re-run.",
        "StoreLocked": "Close the other program that writes to the database, then re-run.",
        "StoreReadOnly": "Make the database's file and folder writable, then re-run.",
    }
)

_STEP = f"conductor rerun RUN_ID --step N --agent NAME ({_REUSED})"
_OTHER_WORDS = f"Ask in other words, or give the step to another worker: {_STEP}."

_IN_TERMINAL: Mapping[str, str] = MappingProxyType(
    {
        "WorkerModelUnknown": "Check the worker's model and base_url in the pool file. A local model must be on this "
        "machine: conductor models pull OWNER/NAME downloads it.",
        "WorkerKeyRefused": "Check the key in the environment variable that the pool file names.",
        "WorkerContextOverflow": "Let the step read fewer steps (conductor rerun RUN_ID --step N --access LIST), "
        "shorten its instruction (--instruction TEXT), or give it to a worker with a longer context (--agent NAME).",
        "WorkerFiltered": _OTHER_WORDS,
        "AnswerRefused": _OTHER_WORDS,
        "AnswerFiltered": _OTHER_WORDS,
        "AnswerEmpty": f"Ask again, or give the step to another worker: {_STEP}. A model that thinks may need a higher "
        "max_tokens.",
        "PlanRejected": "Run again, choose another Conductor (--conductor NAME), or give a plan of your own "
        "(--workflow FILE).",
        "NothingToReturn": "Give the step that asks the Conductor an access list: "
        "conductor rerun RUN_ID --step N --access LIST.",
        "LimitReached": "Raise the limit: conductor rerun RUN_ID with a higher --max-seconds, --max-tokens, --max-usd "
        f"or --max-depth ({_REUSED}).",
    }
)
"""Advice that names a command where ``ADVICE`` names a part of the page."""


def advice(code: str | None, run_id: str) -> str:
    """Says, for the terminal, what can be done about the failure ``code`` of a run. An unknown code gets what always
    can be done."""
    otherwise = f"Run it again: conductor rerun RUN_ID ({_REUSED})."
    said = _IN_TERMINAL.get(code or "") or ADVICE.get(code or "", otherwise)
    return said.replace("RUN_ID", run_id)
