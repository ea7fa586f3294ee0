"""The number formats in which a model of this process may keep its weights on a processor. It imports nothing."""

from typing import Literal

Packed = Literal["int8", "int4"]
"""Weights of 8 bits with a scale for each output, or of 4 bits with a scale and a zero for each group of 128 inputs."""
Precision = Literal["bf16", "int8", "int4"]
"""``bf16``: as the checkpoint has them, or in float32 where the processor is quicker with that."""
PrecisionChoice = Literal["auto", "bf16", "int8", "int4"]
"""``auto``: bf16 or int8, whichever writes quicker on this machine; int4 only where nothing else fits."""
