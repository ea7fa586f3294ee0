"""The errors of a model that runs in this process, whether it is a Conductor or a worker.

InspectorError
└── InferenceError
    ├── ModelUnavailable    cannot be found, downloaded, trusted or held in memory
    │   └── ModelNotHere        is not on this machine
    └── PromptTooLong       more tokens than the model's context has room for
"""

from conductor_core.errors import InspectorError


class InferenceError(InspectorError):
    pass


class ModelUnavailable(InferenceError):
    pass


class ModelNotHere(ModelUnavailable):
    pass


class PromptTooLong(InferenceError):
    pass


class Interrupted(Exception):
    """Nobody waits for the model any more. No failure, so no InspectorError: whoever starts the work catches it."""
