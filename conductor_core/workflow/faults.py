"""Every fault and warning code, in one place. Codes are stable: scripts and the page rely on them.

``FAULTS`` keep a workflow from running; ``WARNINGS`` do not.
"""

FAULTS = {
    # What was written in the place of a plan.
    "plan_refused": "The Conductor refused to write a plan.",
    "plan_filtered": "A filter of the Conductor's server took the plan away.",
    "plan_in_reasoning": "There is no text but what the server calls reasoning.",
    "tool_call_for_a_plan": "The Conductor called a tool; it was offered none.",
    "plan_cut": "The completion reached its limit of tokens before there was a plan.",
    "empty_completion": "The Conductor wrote nothing.",
    # What could not be read.
    "no_workflow": "The text holds neither the three lists nor a workflow in JSON.",
    "missing_list": "One or two of the lists model_id, subtasks and access_list are not there.",
    "cut_off": "The text ends in the middle of a list.",
    "unclosed_string": "A string has no closing quote before the next list begins.",
    "unclosed_list": "A list has no closing bracket and what follows it cannot belong to it.",
    "not_an_agent": "An entry of model_id is neither a number nor a name.",
    "not_text": "An entry of subtasks is not a string.",
    "bad_access": 'An entry of access_list is neither [], "all" nor a list of step indices.',
    "too_deep": "Brackets are nested deeper than a workflow ever needs.",
    "too_large": "The text or a list is longer, or holds more, than this program reads.",
    "bad_json": "A workflow file is not valid JSON.",
    "not_a_workflow": "A workflow file's JSON has another shape than a workflow.",
    "unknown_key": "A workflow file has a key that means nothing here.",
    "missing_key": "A step of a workflow file lacks a key.",
    "duplicate_key": "A workflow file gives the same key twice.",
    "bad_task": "The task of a workflow file is not a string.",
    # What breaks a rule.
    "empty_workflow": "There are no steps, and there is no recursion that three empty lists could end.",
    "too_many_steps": "There are more steps than the limit.",
    "unequal_lengths": "The three lists have different lengths.",
    "empty_instruction": "An instruction is empty or only white space.",
    "unknown_agent": "The pool has no such agent.",
    "self_reference": "A step reads its own output.",
    "forward_reference": "A step reads the output of a later step.",
    "out_of_range": "A step reads a step that does not exist.",
    "negative_index": "A step reads a negative index.",
    "image_not_accepted": "A step is given the task's image, and its worker accepts none.",
    "image_not_given": "No step is given the task's image.",
    # What there is too much of to be told.
    "more_faults": "There are more faults than those told: the last one says how many.",
}

WARNINGS = {
    "unread_output": "No later step reads this step's output, and it is not the answer.",
    "off_the_answers_path": "Only steps that do not lead to the answer read this step's output.",
    "verifier_sees_nothing": "A step is to check an earlier result, and its access list does not grant it.",
    "grants_more_than_named": "An access list grants more than the steps, or the plan, that the instruction names.",
    "task_untold": "No step that the answer comes from is told the task.",
    "answer_reads_nothing": "The last step, whose output is the answer, reads none of the others.",
    "duplicate_step": "A step has the same agent, instruction and inputs as an earlier one, and none reads both.",
}
