"""Being here puts `table.py` on the path of every test."""
