"""One module per figure: rows of its CSV file from finished cells; picture and claims from these rows alone."""
