"""What a re-run calls: pool and Conductor as the options name them, else those of the run."""

from dataclasses import dataclass
from typing import Any

from conductor_core.chat.messages import ConductorInfo
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import PoolInfo
from conductor_core.settings import Settings


@dataclass(frozen=True)
class RerunTarget:
    """Attributes: conductor, pool: None: that of the run that is run again. excluded: workers to leave out."""

    conductor: str | None
    pool: str | None
    excluded: tuple[str, ...]

    def pool_of(self, source: RunTrace) -> str | PoolInfo:
        return source.pool if self.pool is None else self.pool

    def info(self, settings: Settings) -> ConductorInfo | None:
        """Describes the Conductor that was named in place of the source's; its answers are not the source's.

        None: none was named.
        """
        if self.conductor is None:
            return None
        # Imported when used: naming one is rare here.
        from conductor_core.conductors.catalogue import open_conductor

        return open_conductor(self.conductor, settings).info

    def asked(self, source: RunTrace, settings: Settings, *, needed: bool) -> dict[str, Any]:
        """Returns the fields of the request. ``needed``: whether its plan asks a Conductor."""
        own = settings.conductor if source.conductor is None else source.conductor.name
        conductor = (self.conductor or own) if needed else None
        return {"conductor": conductor, "pool": self.pool_of(source), "excluded": self.excluded}
