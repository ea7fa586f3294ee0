"""One run as data: what was asked, what happened, what it cost, and what left this machine."""
