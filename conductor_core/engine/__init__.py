"""The engine: who starts when, what each step sees, what it may spend, what is reused.

host.EngineHost.start -> runner.Engine.create / Execution.carry_out
    -> planning.ask_conductor      the workflow, if none was given
    -> rounds.Round.carry_out      a step starts the moment its reads are there
        -> context.build           messages from the access list alone
        -> reuse.Source.find       the recorded answer of an identical step
        -> step.StepCall.run       one step: attempts, stream, usage
    -> recorder.Recorder           every event, durable and folded
"""
