"""One module per figure: rows of its CSV file from finished cells; plot and claims from these rows alone."""
