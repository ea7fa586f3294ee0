"""The material of a cold start: questions, plans, their wordings, and the tokenizer."""
