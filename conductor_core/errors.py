"""Every error a user can meet, named by the boundary at which it arises; and advice on what a person can do about it.

The message is one line that names the fault and its place and says what to do. Facts are attributes. An error that
carries a value of a room above lies there: ``WorkflowInvalid`` in ``workflow.validation``, ``RunUnreadable`` and its
kinds in ``run.trace``.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType


class InspectorError(Exception):
    """Base of all errors shown to a user as one clear line."""

    @property
    def code(self) -> str:
        """The name under which the error is recorded, e.g. ``WorkerRateLimited``."""
        return type(self).__name__


def codes_of(*kinds: type[InspectorError]) -> frozenset[str]:
    """Returns the codes of ``kinds`` and of all their subclasses."""
    below = frozenset[str]().union(*(codes_of(*kind.__subclasses__()) for kind in kinds))
    return below | {kind.__name__ for kind in kinds}


class BadInput(InspectorError): ...  # what the user gave cannot be used (exit 2)


class ModelsInvalid(BadInput):  # a file of models; carries every fault with its place
    def __init__(self, message: str, faults: Sequence[str]) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class PoolInvalid(ModelsInvalid): ...  # a pool file


class ConductorsInvalid(ModelsInvalid): ...  # a conductors file


class UnknownConductor(BadInput): ...  # no such name, folder, hub id or server


class UnknownRun(BadInput): ...  # no run of that id in this database


class RunGone(UnknownRun): ...  # it was deleted or erased, and the record says who did


class RunHasEnded(BadInput): ...  # a command to a run that is over


class NotHeard(InspectorError): ...  # no process answers a command to a run


class CallError(InspectorError):
    """A call to a model that brought no complete answer.

    Attributes:
        retryable: whether the same call may succeed if made again.
        loading: whether the server is loading its model. It will answer, and waiting for it is no attempt.
        retry_after_s: how long the provider asked us to wait, if it did.
    """

    retryable = False
    loading = False

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ConductorError(CallError): ...  # the model that writes workflows


class ConductorUnavailable(ConductorError): ...  # cannot be loaded or reached


class ConductorRateLimited(ConductorUnavailable):  # 429, perhaps with Retry-After
    retryable = True


class ConductorFailed(ConductorUnavailable):  # 5xx
    retryable = True


class ConductorLoading(ConductorFailed):  # 503: its model is being loaded
    loading = True


class ConductorTimedOut(ConductorUnavailable):  # nothing came for too long
    retryable = True


class ConductorStreamCut(ConductorUnavailable):  # broke off, or no finish_reason
    retryable = True


class ConductorUnpaid(ConductorUnavailable): ...


class ConductorKeyRefused(ConductorUnavailable): ...


class ConductorModelUnknown(ConductorUnavailable): ...


class ConductorCertificate(ConductorUnavailable): ...


class PromptOverflows(ConductorError): ...  # the task, or what a recursion adds to it, is longer than its context


class PlanRejected(ConductorError): ...  # wrote no usable workflow, after all attempts


class WorkerError(CallError):  # the model that answers a step
    retryable = True


class WorkerUnreachable(WorkerError): ...  # no connection


class WorkerCertificate(WorkerUnreachable):  # no certificate that is trusted
    retryable = False


class WorkerTimedOut(WorkerError): ...  # the step's time limit passed


class WorkerRateLimited(WorkerError): ...  # 429, perhaps with Retry-After


class WorkerFailed(WorkerError): ...  # 5xx, or an error object under 200


class WorkerLoading(WorkerFailed):  # 503: its model is being loaded
    loading = True


class WorkerStreamCut(WorkerError): ...  # ended without a finish_reason


class WorkerRefused(WorkerError):
    """A refusal that asking again will not change.

    Attributes:
        of_request: whether another request may be accepted. If not, every request with this key, account, model or
            address is refused.
    """

    retryable = False
    of_request = False

    def __init__(self, message: str, *, of_request: bool = False) -> None:
        super().__init__(message)
        self.of_request |= of_request


class WorkerKeyRefused(WorkerRefused): ...  # 401, 403, or no key is set


class WorkerUnpaid(WorkerRefused): ...  # no credit or quota is left


class WorkerModelUnknown(WorkerRefused): ...  # no such model on the server or this machine, or no such path


class WorkerModelUnusable(WorkerRefused): ...  # its file cannot be loaded here: damaged, or memory is short


class WorkerContextOverflow(WorkerRefused):  # longer than the model's context
    of_request = True


class WorkerNoImages(WorkerRefused):  # its model does not see images
    of_request = True


class WorkerToolsAway(WorkerRefused):  # a tool server of which it may call something cannot be reached
    of_request = True


class WorkerFiltered(WorkerRefused):  # a filter refuses what was asked, and the step ends as ``filtered``
    of_request = True


class WorkerOutputTooLarge(WorkerError):  # more bytes than this worker may send
    retryable = False


class LimitReached(InspectorError):  # a budget of the run: steps, tokens, USD, seconds, depth
    def __init__(self, message: str, *, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class StoreError(InspectorError): ...  # the database


class StoreFull(StoreError): ...  # no space left; the log goes on once there is


class StoreReadOnly(StoreError): ...  # the file or its folder may not be written


class StoreTooNew(StoreError): ...  # written by a newer version of this program


class StoreLocked(StoreError): ...  # another program holds the write lock for too long


class StoreDamaged(StoreError): ...  # not a database, or one with broken pages


class StoreGone(StoreError): ...  # the file was deleted or replaced while it was open


class OwnerGone(StoreError): ...  # the lock that says who writes a run was deleted under it


class ContentMissing(StoreError): ...


class EventOutOfOrder(StoreError): ...  # an event that cannot follow those already kept of its run


# Advice: what a person can do about a fault, by the code that the run records (an error's name, or ``AnswerCut`` etc.).

OTHERWISE = "Edit the plan or re-run: finished steps are reused."
_REUSED = "finished steps are reused"
_ASK_OTHERWISE = f"Ask in other words, or give the step to another worker under Change a step: {_REUSED}."

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
        "WorkerKeyRefused": f"When the key is right, re-run: {_REUSED}. The Workers page shows which keys are set.",
        "WorkerModelUnknown": "Check the worker's model and base_url in the pool file. A local model must be on "
        "this machine: the Models page downloads it.",
        "WorkerModelUnusable": "Give the step to another worker under Change a step. If memory was short, close other "
        "programs and re-run; if the file is at fault, get it again.",
        "WorkerContextOverflow": "Let the step read fewer steps, shorten its instruction, or give it to a worker with "
        "a longer context, under Change a step.",
        "TooManyToolCalls": "The worker called tools again and again. Look at its turns, say in the instruction when "
        "to stop, or give the step to another worker under Change a step.",
        "WorkerToolsAway": "See `conductor tools POOL_FILE`: start the server or mend its table, then run again.",
        "WorkerNoImages": 'Remove "image" from accepts of this worker in the pool file, or load its projector file '
        f"(mmproj) at the server. Then re-run: {_REUSED}.",
        "WorkerFiltered": _ASK_OTHERWISE,
        "WorkerRefused": "The server does not accept this request: check the worker's model, base_url and params in "
        "the pool file.",
        "WorkerOutputTooLarge": "Ask for a shorter answer in the instruction, or raise the worker's max_output_bytes.",
        "AnswerRefused": _ASK_OTHERWISE,
        "AnswerFiltered": _ASK_OTHERWISE,
        "AnswerCut": "Raise max_tokens of this worker in the pool file, or ask for a shorter answer.",
        "AnswerEmpty": "Ask again, or give the step to another worker under Change a step. A model that thinks may "
        "need a higher max_tokens.",
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
        "ConductorKeyRefused": "When the key is right, run again.",
        "ConductorModelUnknown": "Check the Conductor's model name and address: its server does not have this one.",
        "PromptOverflows": "Shorten the task, leave out some workers, or choose a Conductor with a longer context.",
        "PlanRejected": "Run again, choose another Conductor, or give a plan of your own in the terminal: conductor "
        "run TASK --workflow FILE.",
        "NothingToReturn": "Give the step that asks the Conductor an access list, under Change a step.",
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
        "WorkerKeyRefused": f"When the key is right, run it again: conductor rerun RUN_ID ({_REUSED}).",
        "WorkerModelUnusable": f"Give the step to another worker: {_STEP}. If memory was short, close other programs "
        "and re-run; if the file is at fault, get it again.",
        "WorkerContextOverflow": "Let the step read fewer steps (conductor rerun RUN_ID --step N --access LIST), "
        "shorten its instruction (--instruction TEXT), or give it to a worker with a longer context (--agent NAME).",
        "WorkerFiltered": _OTHER_WORDS,
        "AnswerRefused": _OTHER_WORDS,
        "AnswerFiltered": _OTHER_WORDS,
        "AnswerEmpty": f"Ask again, or give the step to another worker: {_STEP}. A model that thinks may need a higher "
        "max_tokens.",
        "PlanRejected": "Run again, choose another Conductor (--conductor NAME), allow longer plans (--max-steps N), "
        "or give a plan of your own (--workflow FILE).",
        "NothingToReturn": "Give the step that asks the Conductor an access list: "
        "conductor rerun RUN_ID --step N --access LIST.",
        "LimitReached": "Raise the limit: conductor rerun RUN_ID with a higher --max-steps, --max-seconds, "
        f"--max-tokens, --max-usd or --max-depth ({_REUSED}).",
    }
)
"""Advice that names a command where ``ADVICE`` names a part of the page."""


_OPTIONS = {"cost": "--max-usd USD", "token": "--max-tokens N", "time": "--max-seconds S", "step": "--max-steps N"}
"""The option that raises a limit, by the name of the limit in the sentence of ``LimitReached``."""


def advice(code: str | None, run_id: str, error: str = "", *, planned: bool = True) -> str:
    """Says, for the terminal, what can be done about the failure ``code`` of a run. An unknown code gets what always
    can be done. ``error``: what the run says of it. ``planned``: whether it has a plan that can be run again."""
    otherwise = f"Run it again: conductor rerun RUN_ID ({_REUSED})."
    for limit, option in _OPTIONS.items():
        if code == "LimitReached" and f"the {limit} limit" in error:
            if not planned:
                return f"Raise the limit: run the task again with {option}."
            return f"Raise the limit: conductor rerun {run_id} {option} ({_REUSED})."
    said = _IN_TERMINAL.get(code or "") or ADVICE.get(code or "", otherwise)
    return said.replace("RUN_ID", run_id)
