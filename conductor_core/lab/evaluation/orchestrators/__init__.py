"""Ways to answer a task with a pool. Each answers by runs of the engine, so that every answer has a trace.

catalogue.open_orchestrators -> Orchestrator.attempt(asked, run) -> engine.Engine.run -> Attempt
"""
