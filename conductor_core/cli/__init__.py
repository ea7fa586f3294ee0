"""The command line: wires settings, store and engine together, prints, and sets the exit code.

main.main -> commands.* -> wiring.opened_store / opened_engine -> live.watch -> documents | report
"""
