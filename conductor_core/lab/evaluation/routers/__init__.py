"""The learned routers that the Conductor is compared with.

Three follow a paper each: ``router_dc`` (one worker per task), ``mas_router`` (a small team in a fixed shape) and
``smoothie`` (asks all workers and keeps the answer that the others agree with). ``kind_table`` (one plan for each kind
of task) is our own. They are fitted on rows of training tasks, route to workflows, and are saved as JSON and
safetensors. This package imports no torch or scikit-learn, so import its modules only where they are needed.
"""
