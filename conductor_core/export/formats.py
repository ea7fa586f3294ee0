"""The forms in which a plan can be exported."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from conductor_core.export.for_autogen import AUTOGEN
from conductor_core.export.for_crewai import CREWAI
from conductor_core.export.for_langgraph import LANGGRAPH
from conductor_core.export.for_openai_agents import OPENAI_AGENTS
from conductor_core.export.mermaid import mermaid
from conductor_core.export.picture import png, svg
from conductor_core.export.plan import Plan
from conductor_core.export.script import Framework
from conductor_core.export.text_forms import lists, workflow_json

Content = TypeVar("Content", str, bytes)


@dataclass(frozen=True, slots=True)
class PlanFormat(Generic[Content]):
    """One form.

    Attributes:
        title: for people. suffix: of its files, with the dot. mime: its media type.
        write: returns the text, or the bytes of a picture. Raises: BadInput, which says what keeps the plan from this
            form.
    """

    title: str
    suffix: str
    mime: str
    write: Callable[[Plan], Content]


FRAMEWORKS: Mapping[str, Framework] = {
    "langgraph": LANGGRAPH,
    "crewai": CREWAI,
    "openai-agents": OPENAI_AGENTS,
    "autogen": AUTOGEN,
}
"""The targets of scripts, by the name that ``export --as`` takes."""

PLAN_FORMATS: Mapping[str, PlanFormat[str]] = {
    "lists": PlanFormat("Three Python lists", ".txt", "text/plain", lists),
    "json": PlanFormat("Workflow file (JSON)", ".json", "application/json", workflow_json),
    "mermaid": PlanFormat("Mermaid", ".mmd", "text/plain", mermaid),
    "svg": PlanFormat("Picture (SVG)", ".svg", "image/svg+xml", svg),
    **{
        name: PlanFormat(f"Script for {each.title}", ".py", "text/x-python", each.write)
        for name, each in FRAMEWORKS.items()
    },
}
"""The forms that are text, by the name that ``export --as`` takes."""

PNG = PlanFormat("Picture (PNG)", ".png", "image/png", png)
