"""The workflow language: model, parser, printer, validation and topology. Pure; evaluates nothing."""
