"""Loads tasks from the rehearsal world, from files of public benchmarks, and from benchmarks by their hub id."""

from conductor_core.lab.evaluation.suites.files import load_suite

__all__ = ["load_suite"]
