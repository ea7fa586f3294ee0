"""The command line: wires settings, store and engine together, prints, and sets the exit code.

main.main -> a module a command -> inputs.opened_store | opened_engine -> live.watch -> analysis.documents | report
"""
