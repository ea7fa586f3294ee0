"""The command line: wires settings, store and engine together, prints, and sets the exit code.

main.main -> a module a command -> options.Options.store | engine -> live.watch -> analysis.documents | report
"""
