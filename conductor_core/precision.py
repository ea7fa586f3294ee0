"""The number formats that packed weights had, in records of versions that packed them. It imports nothing."""

from typing import Literal

Packed = Literal["int8", "int4"]
PrecisionChoice = Literal["auto", "bf16", "int8", "int4"]
"""What a batch's Conductor was asked to keep its weights in."""
