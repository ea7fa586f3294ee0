"""A Conductor that runs in this process: any causal language model of a folder or the hub, and the shipped tiny one."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

from pydantic import Field, ValidationError

from conductor_core.chat.messages import ConductorInfo, Message, PlanFinished, PlanRequest, Sampling, TextDelta
from conductor_core.conductors.conductors_file import ConductorSpec
from conductor_core.conductors.grammar import PlanShape, choices_of, plan_grammar
from conductor_core.conductors.prompts import STATIC_MESSAGES, PromptKind, asked, require_room
from conductor_core.conductors.roles import agents_by_ordinal
from conductor_core.errors import ConductorUnavailable, PromptOverflows, UnknownConductor
from conductor_core.files import is_folder
from conductor_core.inference.generation import Done, Generation, InferenceError, PromptTooLong
from conductor_core.inference.shared import shared_model
from conductor_core.settings import Settings

PHRASES = "phrases.gbnf"
_NEEDED_RULES = (
    "task_head1", "usual1", "usual_opening1", "anew1", "anew_opening1", "again", "done", "again_done", "stop_thought",
)  # fmt: skip
ANSWER_BEGINS = "model_id"
USUAL_TOKENS = 150
"""The length of a plan, for the estimate of the time left, before the model has written one."""
RETRY_TEMPERATURE = 0.7
"""A second attempt of a greedy Conductor would repeat the first word by word."""


class LocalConfig(Sampling):
    """The ``conductor.json`` of a model folder says how to ask this model for plans. All keys may be left out.

    Attributes:
        prompt: ``short`` or ``roles`` for models that were trained on that prompt (``prompts``), else ``full``.
        phrases: grammar rules of what the model was taught to say (see ``grammar.PlanShape``), from ``phrases.gbnf``
            beside; empty where no such file.
        max_tokens: the longest completion of this model, within the setting ``plan_max_tokens``.
    """

    prompt: PromptKind = "full"
    phrases: str = ""
    max_tokens: int | None = Field(None, ge=16, le=10**6)


def read_config(folder: Path) -> LocalConfig:
    """Reads the configuration of a model folder. Raises: UnknownConductor if its ``conductor.json`` cannot be used."""
    path, phrases = folder / "conductor.json", folder / PHRASES
    if not path.is_file():
        return LocalConfig()
    try:
        config = LocalConfig.model_validate(json.loads(path.read_text(encoding="utf-8")))
        taught = phrases.read_text(encoding="utf-8") if phrases.is_file() else ""
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"]) or "the whole"
        raise UnknownConductor(f"{path} cannot be used: {where}: {fault['msg']}") from error
    except (OSError, ValueError) as error:
        raise UnknownConductor(f"{path} cannot be read as JSON: {error}") from error
    except RecursionError:
        raise UnknownConductor(f"{path} cannot be read as JSON: it is too deeply nested") from None
    if missing := [rule for rule in _NEEDED_RULES if taught and f"\n{rule} ::=" not in f"\n{taught}"]:
        raise UnknownConductor(
            f"{phrases} lacks the rules {', '.join(missing)}: its model is of another version: train it again, "
            "or take the phrases.gbnf of this version's tiny Conductor if it was trained on the same corpus"
        )
    return config.model_copy(update={"phrases": taught or config.phrases})


class LocalConductor:
    """Writes plans with a model of this process. Cheap to make: weights are loaded at the first ``write``."""

    def __init__(
        self, name: str, ref: str, settings: Settings, config: LocalConfig, spec: ConductorSpec | None = None
    ) -> None:
        """``name`` is the user's name for the folder or hub id ``ref``. ``spec`` is what a conductors file says of it;
        it goes before the settings and ``config``."""
        self._spec = spec = spec or ConductorSpec(name=name, model=ref)
        self._name, self._ref = name, ref
        self._config = config = configured(config, spec, name)
        self._constrained = settings.constrained if spec.constrained is None else spec.constrained
        self._max_tokens = min(settings.plan_max_tokens, config.max_tokens or settings.plan_max_tokens)
        self._model = shared_model(ref)
        self._model.idle_s = settings.model_idle_s

    @property
    def info(self) -> ConductorInfo:
        placement = self._model.placement
        return ConductorInfo(
            name=self._name,
            kind="local",
            model=Path(self._ref).name if is_folder(self._ref) else self._ref,
            device=placement.device if placement else None,
            dtype=placement.dtype if placement else None,
            constrained=self._constrained,
            seated=self._config.prompt != "full",
            usd_per_mtok=self._spec.usd_per_mtok,
            prompt_sha256=self._spec.prompt_sha256,
        )

    def messages(self, request: PlanRequest) -> tuple[Message, ...]:
        return asked(request, self._config.prompt, self._spec.prompt_text)

    async def write(self, request: PlanRequest) -> AsyncIterator[TextDelta | PlanFinished]:
        require_room(self._name, self.messages(request), self._spec.context)
        try:
            async with aclosing(self._model.stream(self._generation(request))) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Done):
                        yield PlanFinished(
                            finish_reason=piece.finish_reason,
                            usage=piece.usage,
                            choices=piece.choices,
                        )
                    else:
                        yield TextDelta(text=piece)
        except PromptTooLong as error:
            raise PromptOverflows(f"Conductor {self._name}: {error}") from error
        except InferenceError as error:
            raise ConductorUnavailable(f"Conductor {self._name}: {error}") from error

    def _generation(self, request: PlanRequest) -> Generation:
        short = self._config.prompt == "short"
        shape = plan_shape(self.info, request, self._config) if self._constrained else None
        temperature = self._config.temperature or request.temperature or 0.0
        if request.rejected and temperature == 0:
            temperature = RETRY_TEMPERATURE
        return Generation(
            prompt=self.messages(request)[0].text if short else self.messages(request),
            max_tokens=self._max_tokens,
            sampling=self._config.model_copy(update={"temperature": temperature}),
            seed=request.seed,
            static_messages=0 if short else STATIC_MESSAGES,
            grammar=plan_grammar(shape) if shape else None,
            keep_choices=True,
            answer_begins=ANSWER_BEGINS,
            usual_tokens=USUAL_TOKENS,
        )

    async def aclose(self) -> None:
        """Releases nothing: the model stays with the process, for all who share it."""


def plan_shape(info: ConductorInfo, request: PlanRequest, config: LocalConfig) -> PlanShape:
    """Returns which plans are allowed."""
    return PlanShape(
        choices=choices_of(agents_by_ordinal(info, request.agents), recursion=request.allow_recursion),
        max_steps=request.max_steps,
        may_stop=request.parent is not None,
        task_first=config.prompt != "full",
        phrases=config.phrases,
        recursion=request.allow_recursion,
    )


def configured(config: LocalConfig, spec: ConductorSpec, name: str) -> LocalConfig:
    """Returns ``config`` with what a conductors file says. Raises: UnknownConductor if both do not go together."""
    chosen = {"prompt": spec.prompt, "max_tokens": spec.max_tokens, **spec.params}
    config = config.model_copy(update={key: value for key, value in chosen.items() if value is not None})
    if spec.prompt_text is not None and config.prompt != "full":
        raise UnknownConductor(
            f"Conductor {name}: {spec.model} was trained on the {config.prompt} prompt only: remove prompt_file, "
            'or give prompt = "full" to try it'
        )
    return config
