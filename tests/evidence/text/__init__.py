"""Numbers that the text of the results states, computed from the rows; one file per page."""
