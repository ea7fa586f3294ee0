"""Which gates hold a call back: to whom it would go, and what it could cost."""

from collections.abc import Callable, Collection, Iterable

from conductor_core.chat import ConductorInfo, Message, Price, Usage, WorkerSpec, sum_of_costs
from conductor_core.engine.context import told_instruction
from conductor_core.engine.cost_cap import longest_answer
from conductor_core.engine.fallbacks import with_fallbacks
from conductor_core.engine.step_input import StepInputs
from conductor_core.errors import BadInput
from conductor_core.gates import Gate
from conductor_core.run_facts import Path
from conductor_core.servers import servers, servers_of_conductor
from conductor_core.token_estimates import estimate_input_tokens, estimate_tokens
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow, is_told

Most = tuple[Usage, float | None]
"""The highest number of tokens that something may use without a repeated call, by estimate, and their cost in USD;
None: a price is unknown."""


class GateRules:
    """The gates of a run, over the workers and the Conductor that it may call."""

    def __init__(self, gates: Iterable[Gate], inputs: StepInputs, plan_max_tokens: int) -> None:
        self._gates = tuple(gates)
        self._inputs = inputs
        self._plan_max_tokens = plan_max_tokens

    def __bool__(self) -> bool:
        return bool(self._gates)

    def for_plan(self, path: Path, most_usd: float | None) -> tuple[str, ...]:
        """Returns the gates that hold back a plan with which the run costs up to ``most_usd`` in all."""

        def holds(gate: Gate) -> bool:
            return (gate.rule == "plan" and not path) or _dear(gate, most_usd)

        return self._that(holds)

    def for_step(self, path: Path, agent: str, most_usd: float | None) -> tuple[str, ...]:
        """Returns the gates that hold back a step after which the run costs up to ``most_usd`` in all."""
        servers = self._servers(agent)

        def holds(gate: Gate) -> bool:
            return (
                gate.rule == "steps"
                or (gate.rule == "step" and path == (gate.number,))
                or _at(gate, servers)
                or _dear(gate, most_usd)
            )

        return self._that(holds)

    def for_conductor(self) -> tuple[str, ...]:
        """Returns the gates that hold back a question to the Conductor."""
        servers = servers_of_conductor(self._inputs.conductor)
        return self._that(lambda gate: _at(gate, servers))

    def most_of_call(self, agent: str, messages: tuple[Message, ...]) -> Most:
        """Returns the highest cost of one call. A fallback may make it."""
        return self._most(agent, estimate_input_tokens(messages))

    def most_of_plan(self, workflow: Workflow, spent: Collection[int] = ()) -> Most:
        """Returns the highest cost of all steps but ``spent``. An inner plan of the Conductor is not in it."""
        mosts = []
        for index, step in enumerate(workflow.steps):
            if index in spent:
                continue
            read = [workflow.steps[earlier].agent for earlier in workflow.reads(index)]
            tokens = self._told(step.instruction) + sum(self._longest(agent) for agent in read)
            mosts.append(self._most(step.agent, tokens))
        usage = sum((usage for usage, _ in mosts), Usage(estimated=True))
        return usage, sum_of_costs(usd for _, usd in mosts)

    def _told(self, instruction: str) -> int:
        """Returns the tokens of an instruction as it is sent, with all that comes with the task if it is told that."""
        inputs, every = self._inputs, self._inputs.give_question
        tokens = estimate_tokens(told_instruction(instruction, inputs.task, give_question=every))
        if is_told(instruction, give_question=every):
            tokens += estimate_input_tokens(inputs.turns_before) + sum(image.tokens for image in inputs.images)
        return tokens

    def _that(self, holds: Callable[[Gate], bool]) -> tuple[str, ...]:
        return tuple(str(gate) for gate in self._gates if holds(gate))

    def _longest(self, agent: str) -> int:
        return self._plan_max_tokens if agent == CONDUCTOR_AGENT else longest_answer(self._inputs.workers[agent])

    def _most(self, agent: str, input_tokens: int) -> Most:
        usage = Usage(input_tokens=input_tokens, output_tokens=self._longest(agent), estimated=True)
        conductor = self._inputs.conductor
        prices: list[Price | None]
        if agent == CONDUCTOR_AGENT:
            prices = [None if conductor is None else conductor.price]
        else:
            prices = [spec.price for spec in with_fallbacks(agent, self._inputs.workers)]
        costs = [None if price is None else price.cost_usd(usage) for price in prices]
        return usage, None if None in costs else max(cost or 0.0 for cost in costs)

    def _servers(self, agent: str) -> set[str]:
        if agent == CONDUCTOR_AGENT:
            return set()  # It is asked about as the Conductor, which is called, and for each step of its own plan.
        return {server for spec in with_fallbacks(agent, self._inputs.workers) for server in servers(spec)}


def check_providers(gates: Iterable[Gate], workers: Iterable[WorkerSpec], conductor: ConductorInfo | None) -> None:
    """Raises: BadInput for a gate that could hold nothing back, because nothing of the run goes to its provider."""
    known = {server for spec in workers for server in servers(spec)}
    known |= set() if conductor is None else servers_of_conductor(conductor)
    for gate in gates:
        if gate.rule == "provider" and not _at(gate, known):
            raise BadInput(f"gate {gate}: nothing of this run goes there; it goes to {', '.join(sorted(known))}")


def check_steps(gates: Iterable[Gate], max_steps: int, workflow: Workflow | None) -> None:
    """Raises: BadInput for a gate before a step that the plan cannot have. ``workflow``: the plan, if it is known."""
    steps = max_steps if workflow is None else len(workflow.steps)
    for gate in gates:
        if gate.number is not None and gate.number >= steps:
            has = f"a plan of this run has at most {steps}" if workflow is None else f"the workflow has {steps}"
            raise BadInput(f"gate {gate}: there is no such step; steps count from 0, and {has}")


def _at(gate: Gate, servers: Collection[str]) -> bool:
    if gate.provider is None:
        return False
    named = gate.provider.lower().replace("[", "").replace("]", "")  # of an IPv6 address
    host, colon, port = named.partition(":")
    return named in servers or f"{host.rstrip('.')}{colon}{port}" in servers


def _dear(gate: Gate, most_usd: float | None) -> bool:
    return gate.usd is not None and (most_usd is None or most_usd > gate.usd)
