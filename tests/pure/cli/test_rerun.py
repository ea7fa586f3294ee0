"""What ``rerun`` asks for, from its arguments and the recorded run."""

from conductor_core.cli.rerun import RerunOptions, RerunTarget, overrides_by_hand
from conductor_core.run.events import RunInterrupted
from conductor_core.run.trace import fold
from tests.support.tool_runs import begun, tool_call, tool_sent, tools_called


def test_an_interrupted_run_with_an_output_by_hand_keeps_the_calls_that_it_made() -> None:
    call = tool_call("r", 0, "files__write", '{"path": "a"}')
    dead = fold(
        [*begun("r"), tools_called("r", [call]), tool_sent("r", call, effects=True), RunInterrupted(run_id="r")]
    )
    by_hand = overrides_by_hand(dead, ["1=Paris"], (), ())
    request, forecast = RerunTarget(dead, RerunOptions()).prepare((), by_hand)
    (turn,) = request.overrides.turns_at((0,))
    assert [(each.outcome, each.tool) for each in turn.ran] == [("unknown", "write")]
    assert request.overrides.output_at((1,)) is not None
    assert forecast is not None
    assert forecast.effects_again == ""
