"""Programs that models wrote, run where they can do no harm: ``run.run``."""
