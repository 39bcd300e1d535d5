"""Another way from the raw records to the numbers of the pages; see scripts/recompute.py."""
