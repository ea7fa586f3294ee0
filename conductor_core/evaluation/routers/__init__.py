"""The learned routers that the Conductor is compared with, each after its own paper but ``kind_table``.

``router_dc`` (one worker per task), ``mas_router`` (a small team in a fixed shape) and ``smoothie`` (ask all, keep the
answer that the others agree with); ``kind_table`` (one plan for each kind of task) is our own. They are fitted on plain
rows of training tasks, route to a workflow of our language, and are saved as JSON and safetensors. Nothing here imports
torch or scikit-learn until a router is used: import the modules where they are needed.
"""
