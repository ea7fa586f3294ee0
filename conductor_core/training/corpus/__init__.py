"""What a cold start learns from: questions, plans, wordings, and the tokens they are written in."""
