"""Programs that models wrote, run where they can do no harm: ``run``."""

from conductor_core.grading.sandbox.run import Layer, ProcessLimits, Ran, active_layers, run

__all__ = ["Layer", "ProcessLimits", "Ran", "active_layers", "run"]
