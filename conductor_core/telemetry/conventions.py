"""The one table between our words and OpenTelemetry's GenAI conventions.

The conventions are in development and change. These are those of the commit ``COMMIT`` of
https://github.com/open-telemetry/semantic-conventions-genai (docs/gen-ai/gen-ai-spans.md and gen-ai-agent-spans.md).

| ours | span | kind |
|---|---|---|
| run | ``invoke_workflow {gen_ai.workflow.name}`` | INTERNAL |
| the Conductor writes the plan of a round | ``plan {gen_ai.agent.name}`` | INTERNAL |
| step | ``invoke_agent {gen_ai.agent.name}`` | INTERNAL |
| call of a model, with its retries | ``chat {gen_ai.request.model}`` | CLIENT; INTERNAL for a model in this process |

There is no ``execute_tool``: a tool that a model calls is recorded and never run. What the conventions have no word for
begins with ``conductor.``.
"""

from typing import Final

COMMIT: Final = "002c8a6ea1c8a42b14a4527db83b3cabcded610a"
SCHEMA: Final = f"https://github.com/open-telemetry/semantic-conventions-genai/tree/{COMMIT}"

OPERATION: Final = "gen_ai.operation.name"
WORKFLOW: Final = "gen_ai.workflow.name"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT: Final = "gen_ai.agent.name"
AGENT_ID: Final = "gen_ai.agent.id"
PROVIDER: Final = "gen_ai.provider.name"
MODEL: Final = "gen_ai.request.model"
STREAM: Final = "gen_ai.request.stream"
MODEL_ANSWERED: Final = "gen_ai.response.model"
FINISH: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
TOKENS_IN: Final = "gen_ai.usage.input_tokens"
TOKENS_OUT: Final = "gen_ai.usage.output_tokens"
ERROR: Final = "error.type"
HOST: Final = "server.address"
PORT: Final = "server.port"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
CONTENTS: Final = frozenset({INPUT, OUTPUT})
"""Attributes that hold what people and models wrote. They are left out unless somebody asks for them."""

PARAMS: Final = {
    "temperature": ("gen_ai.request.temperature", float),
    "top_p": ("gen_ai.request.top_p", float),
    "max_tokens": ("gen_ai.request.max_tokens", int),
    "max_completion_tokens": ("gen_ai.request.max_tokens", int),
    "seed": ("gen_ai.request.seed", int),
    "frequency_penalty": ("gen_ai.request.frequency_penalty", float),
    "presence_penalty": ("gen_ai.request.presence_penalty", float),
}
"""By the name of a pool file's parameter: the attribute and its type."""

WORKFLOW_NAME: Final = "conductor"
"""The conventions want a name of few values, so that it cannot be the task."""
