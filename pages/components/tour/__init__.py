"""The tour of about a minute: a story on the Run page that a person steps through."""
