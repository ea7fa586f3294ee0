"""The parts of the pages, a room for each page and for what pages share."""
