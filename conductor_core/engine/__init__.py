"""The engine: who starts when, what each step sees, what it may spend, what is reused.

host.EngineHost.start -> runner.Engine.create -> runner.Execution.run
    -> planner.ask_conductor                   the workflow, unless it is given
    -> runner.RoundRunner.run                  a step starts the moment its reads are there
        -> prompts.StepInputs.of               its messages and its identity
        -> request.EarlierAnswers.find           the recorded answer of an identical step
        -> step.StepCall.run                   one step: attempts (calls.CallSequence), stream, usage
    -> recorder.Recorder                       every event, durable and folded
"""
