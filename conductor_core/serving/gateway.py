"""What the endpoint answers from: turns, served models and keys; and which responses a client may see again."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from conductor_core.chat.messages import Message
from conductor_core.errors import UnknownRun
from conductor_core.privacy.masking import one_line
from conductor_core.run.actor import Caller
from conductor_core.run.judgement import By, Judgement, Mark
from conductor_core.run.service_key import Keys
from conductor_core.run.values import Path
from conductor_core.serving import chat, messages, responses
from conductor_core.serving.admission import Admission, Client
from conductor_core.serving.errors import Api, ApiError
from conductor_core.serving.outcome import Outcome, made_id, named
from conductor_core.serving.pass_through import PassThrough
from conductor_core.serving.reading import Asked
from conductor_core.serving.served_models import ServedModel, ServedModels
from conductor_core.serving.turns import Turns


class Deletions(Protocol):
    """Which responses were deleted. Each method blocks and raises StoreError."""

    def deleted(self, response_id: str) -> bool: ...

    def delete(self, response_id: str, caller: Caller) -> None: ...


class Judgements(Protocol):
    """What is held of runs. Each method blocks and raises StoreError."""

    def add(
        self,
        run_id: str,
        caller: Caller,
        *,
        path: Path | None = None,
        mark: Mark | None = None,
        score: float | None = None,
        note: str = "",
        by: By = "person",
    ) -> Judgement:
        """Raises: UnknownRun; BadInput."""

    def latest(self, run_ids: Collection[str]) -> Mapping[str, Sequence[Judgement]]:
        """Returns what counts of each run."""


Tools = Callable[[Caller, Scope, Receive, Send], Awaitable[None]]
"""Answers a request of an MCP client whose caller is known."""


@dataclass
class Gateway:
    """What the endpoint answers from. Belongs to one event loop, that of the server.

    Attributes:
        seal: the key of compacted conversations (``compaction.sealing_key``).
        inspector_url: where the inspector shows runs; None: at the address that the request came to.
        tools: of MCP, at ``/mcp``; None: there is nothing there.
        passing: forwards what is asked of models that are not ours; None: nothing is forwarded.
    """

    turns: Turns
    models: ServedModels
    keys: Keys
    seal: bytes
    deletions: Deletions
    judgements: Judgements
    inspector_url: str | None = None
    tools: Tools | None = None
    passing: PassThrough | None = None

    def __post_init__(self) -> None:
        self.admission = Admission(self.keys)

    # Requests.

    async def read(self, api: Api, body: bytes, client: Client) -> Asked:
        """Reads what a client asks, and checks that it may ask this model. Raises: ApiError."""
        match api:
            case "chat":
                asked = await asyncio.to_thread(chat.read, body)
            case "messages":
                asked = await asyncio.to_thread(messages.read, body)
            case "responses":
                asked = await asyncio.to_thread(responses.read, body, self._resolve(client), self.seal)
        self.model_for(client, asked.model)
        if asked.previous_response_id is not None:
            await self.previous(client, asked.previous_response_id)
        return asked

    async def read_compact(self, body: bytes, client: Client) -> tuple[Asked, Sequence[Message]]:
        """Reads a conversation that is to be made short, and the turns before it. Raises: ApiError."""
        asked = await asyncio.to_thread(responses.read_compact, body, self._resolve(client), self.seal)
        self.model_for(client, asked.model)
        if asked.previous_response_id is None:
            return asked, ()
        before = await self.previous(client, asked.previous_response_id)
        turns = await asyncio.to_thread(self.turns.input_of, before.run_id, 0)
        said = (Message(role="assistant", content=before.text),) if before.text else ()
        return asked, (*turns, *said)

    def _resolve(self, client: Client) -> responses.Resolve:
        """Returns what finds recorded items for a reader in another thread, and reads each run once.

        It does all in that thread: one that waited for another of the few there are could wait for ever.
        """
        known: dict[str, list[Outcome]] = {}

        def items(item_id: str) -> Sequence[Mapping[str, Any]] | None:
            found = named(item_id)
            if found is None:
                return None
            if found.run_id not in known:
                known[found.run_id] = self._kept(client, found.run_id)
            told = (item for outcome in known[found.run_id] for item in responses.whole(outcome)["output"])
            return next(([item] for item in told if item["id"] == item_id), None)

        return items

    def _kept(self, client: Client, run_id: str) -> list[Outcome]:
        """Returns the responses of a run that this client may see. Blocks."""
        try:
            outcomes = self.turns.outcomes(run_id)
        except ApiError as error:
            if error.status != 404:
                raise
            return []
        return [outcome for outcome in outcomes if self._may_see(client, outcome)]

    def _may_see(self, client: Client, outcome: Outcome) -> bool:
        foreign = client.key is not None and (outcome.actor is None or outcome.actor.id != client.key.actor.id)
        if foreign or outcome.client.api != "responses" or not outcome.client.store:
            return False
        return not self.deletions.deleted(made_id("resp", outcome.run_id, outcome.number))

    # Models.

    def model_for(self, client: Client, model_id: str) -> ServedModel:
        """Raises: ApiError 404, or 403 for a model that the client's key may not ask."""
        model, shown = self.models.get(model_id), one_line(model_id, limit=80)
        if model is None:
            known = ", ".join(each for each, _ in self.listed(client)[:20])
            message = f"The model '{shown}' does not exist. Choose one of {known}."
            raise ApiError(404, message, code="model_not_found", param="model")
        if not _may_ask(client, model):
            message = f"This key may not ask the model '{shown}'."
            raise ApiError(403, message, code="model_not_allowed", param="model")
        return model

    def listed(self, client: Client) -> list[tuple[str, ServedModel]]:
        """Returns the ids that a client may ask, with their models."""
        return [(each, model) for model in self.models.all if _may_ask(client, model) for each in model.ids]

    # What was answered.

    async def response(self, client: Client, response_id: str) -> Outcome:
        """Returns a kept response of the client's own. Raises: ApiError 404."""
        return await asyncio.to_thread(self._response, client, response_id)

    def _response(self, client: Client, response_id: str) -> Outcome:
        """Like ``response``. Blocks."""
        found, shown = named(response_id), one_line(response_id, limit=80)
        unknown = ApiError(404, f"Response '{shown}' not found.", code="response_not_found")
        if found is None or response_id != made_id("resp", found.run_id, found.number):
            raise unknown
        try:
            outcome = self.turns.recorded(found.run_id, found.number)
        except (ApiError, UnknownRun) as error:
            if isinstance(error, ApiError) and error.status != 404:
                raise
            raise unknown from None
        if not self._may_see(client, outcome):
            raise unknown
        return outcome

    async def previous(self, client: Client, response_id: str) -> Outcome:
        """Returns the response that a request goes on from. Raises: ApiError 400."""
        try:
            return await self.response(client, response_id)
        except ApiError as error:
            if error.status != 404:
                raise
            shown = one_line(response_id, limit=80)
            message, code = f"Previous response '{shown}' not found.", "previous_response_not_found"
            raise ApiError(400, message, code=code, param="previous_response_id") from None


def _may_ask(client: Client, model: ServedModel) -> bool:
    allowed = None if client.key is None else client.key.models
    return allowed is None or not set(allowed).isdisjoint(model.ids)
