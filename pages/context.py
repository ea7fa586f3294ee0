"""Context: who saw what in a run, of what each prompt consisted, and what other access lists would cost."""

from pages.components.context.page import show

show()
